/* SPDX-License-Identifier: MIT */
/* A pool is compacted while every host allocation and every driver call fails in turn, once and for good: after each
 * fault the pool is whole, every buffer holds what it held, moved or not, and a compaction without a fault succeeds. */
#include "memory/pool/report/check.h"
#include "sweep.h"
#include "test.h"

#define BUFFERS 24
#define BYTES (100 * TEST_KIB)
#define GAP (40 * TEST_KIB) /* of the holes, where blocks can only slide */
#define LIMIT (4 * TEST_MIB)

typedef struct program {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *stream;
    loch_buffer *buffers[BUFFERS];
} program;

static char pattern[BYTES], seen[BYTES];

/* Every word differs: a slide that copies the wrong part is seen. */
static void program_put(program *p, uint32_t i)
{
    void *address;
    const size_t bytes = loch_buffer_get_bytes(p->buffers[i]);
    const loch_copy_options copy = {.size = sizeof copy, .stream = p->stream, .wait = LOCH_WAIT_END};
    test_pattern_write(pattern, bytes, i);
    CHECK_OK(loch_buffer_pin(p->buffers[i], p->stream, &address));
    CHECK_OK(loch_copy_with(address, pattern, bytes, &copy));
    CHECK_OK(loch_buffer_unpin(p->buffers[i], p->stream));
}

/* With holes as large as the blocks, or smaller ones. */
static void program_open(program *p, const char *name, size_t hole_bytes)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    *p = (program){NULL, NULL, NULL, {NULL}};
    CHECK_OK(loch_device_open(name, &p->device));
    CHECK_OK(loch_stream_create(p->device, NULL, &p->stream));
    CHECK_OK(loch_pool_create(p->device, "compacted", &options, &p->pool));
    const loch_request request = {.size = sizeof request, .stream = p->stream, .flags = LOCH_ALLOC_MOVABLE};
    for (uint32_t i = 0; i < BUFFERS; i++) {
        CHECK_OK(loch_buffer_create(p->pool, i % 2 ? BYTES : hole_bytes, &request, &p->buffers[i]));
        program_put(p, i);
    }
    for (size_t i = 0; i < BUFFERS; i += 2)
        loch_buffer_clear(&p->buffers[i]);
}

static void program_expect(program *p, const char *when)
{
    const char *wrong = lochi_pool_check(lochi_pool_of(p->pool));
    if (wrong) fail_msg("%s: %s", when, wrong);
    for (uint32_t i = 1; i < BUFFERS; i += 2) {
        void *address;
        CHECK_OK(loch_buffer_pin(p->buffers[i], p->stream, &address));
        const loch_copy_options copy = {.size = sizeof copy, .stream = p->stream, .wait = LOCH_WAIT_END};
        CHECK_OK(loch_copy_with(seen, address, BYTES, &copy));
        CHECK_OK(loch_buffer_unpin(p->buffers[i], p->stream));
        const size_t differs = test_pattern_differs(seen, BYTES, i);
        if (differs != BYTES) fail_msg("%s: buffer %u differs at byte %zu", when, i, differs);
    }
}

static void program_close(program *p)
{
    for (size_t i = 0; i < BUFFERS; i++)
        loch_buffer_release(p->buffers[i]);
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_device_sync(p->device));
    CHECK_OK(loch_sim_get_stats(p->device, &stats));
    assert_int_equal(stats.violations, 0);
    loch_stream_close(p->stream);
    loch_allocator_release(p->pool);
    loch_device_release(p->device);
}

/* What a sweep runs on. */
typedef struct ground {
    const char *device;
    size_t hole_bytes;
} ground;

static void compact_faulted(test_round *round, const void *user)
{
    const ground *on = user;
    const loch_compact_options options = {.size = sizeof options};
    program p;
    program_open(&p, on->device, on->hole_bytes);
    test_round_begin(round, p.device);
    round->is_felt = loch_pool_compact(p.pool, &options, NULL) != LOCH_OK;
    test_round_end(round);
    program_expect(&p, round->when);
    CHECK_OK(loch_pool_compact(p.pool, &options, NULL));
    program_expect(&p, round->when);
    program_close(&p);
}

static void sweep(const test_faults *from, size_t hole_bytes)
{
    const ground grounds[] = {{"sim:64MiB,backed,granule=64KiB", hole_bytes},
                              {"sim:64MiB,backed,virtual=off", hole_bytes}};
    uint64_t places = 0, felt = 0;
    for (size_t g = 0; g < sizeof grounds / sizeof *grounds; g++) {
        const test_rounds rounds = test_rounds_run(from, grounds[g].device, compact_faulted, &grounds[g]);
        places += rounds.places;
        felt += rounds.felt;
    }
    assert_true(places > 16 && felt > 4);
}

static void compaction_survives_failing_host_memory(void **state)
{
    (void)state;
    sweep(&test_host_faults, BYTES);
    sweep(&test_host_faults, GAP);
}

static void compaction_survives_failing_driver_calls(void **state)
{
    (void)state;
    sweep(&test_sim_faults, BYTES);
    sweep(&test_sim_faults, GAP);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compaction_survives_failing_host_memory),
        cmocka_unit_test(compaction_survives_failing_driver_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
