/* SPDX-License-Identifier: MIT */
/* A family of pools, made, used and ended while every host allocation and every driver call fails in turn, once and for
 * good. After each fault all pools are whole, and nothing is left in the end: neither on the host nor on the device. */
#include "faulty_driver.h"
#include "memory/pool/inside.h"
#include "sweep.h"
#include "test.h"

#define MEMBERS 5
#define BLOCKS 12

typedef struct program {
    loch_device *device;
    loch_stream *stream;
    loch_allocator *members[MEMBERS]; /* the root, a quota, a range in it, a quota beside, a range in the root */
    void *blocks[BLOCKS];
    size_t scale;       /* of limits: more where granules are large */
    loch_status status; /* of the first call that failed */
    const char *wrong;  /* a promise that was broken */
} program;

static void program_look(program *p)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        lochi_pool *pool = p->members[i] ? lochi_pool_of(p->members[i]) : NULL;
        const char *wrong = pool ? lochi_pool_check(pool) : NULL;
        if (wrong) p->wrong = wrong;
    }
}

static bool program_note(program *p, loch_status status)
{
    program_look(p);
    if (status == LOCH_OK) return true;
    p->status = status;
    if (loch_error_get()->status != status || !loch_error_get()->sentence[0]) p->wrong = "a failure without a sentence";
    return false;
}

#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        if (!program_note(p, (call))) return;                                                                          \
    } while (0)

static loch_status make(program *p, size_t parent, size_t i, loch_child_kind kind, size_t minimum, size_t limit)
{
    const loch_child_options options = {
        .size = sizeof options, .kind = kind, .minimum_bytes = minimum, .limit_bytes = limit, .stream = p->stream};
    p->members[i] = TEST_UNTOUCHED;
    const loch_status status = loch_pool_create_child(p->members[parent], "child", &options, &p->members[i]);
    if ((status == LOCH_OK) != (p->members[i] != NULL)) p->wrong = "a child beside a failure";
    return status;
}

static loch_status take(program *p, size_t member, size_t i, size_t bytes)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = i % 2 ? p->stream : NULL};
    return loch_allocator_alloc(p->members[member], &request, &p->blocks[i]);
}

/* Blocks are of the member with their number, modulo the members. */
static void program_work(program *p)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = p->scale * 8 * TEST_MIB};
    STEP(loch_stream_create(p->device, NULL, &p->stream));
    STEP(loch_pool_create(p->device, "root", &options, &p->members[0]));
    STEP(make(p, 0, 1, LOCH_CHILD_QUOTA, TEST_MIB, p->scale * 5 * TEST_MIB));
    STEP(make(p, 1, 2, LOCH_CHILD_RANGE, 0, TEST_MIB));
    STEP(make(p, 0, 3, LOCH_CHILD_QUOTA, TEST_MIB, 0));
    STEP(make(p, 0, 4, LOCH_CHILD_RANGE, 0, 700 * TEST_KIB));
    for (size_t i = 0; i < 2 * MEMBERS; i++)
        STEP(take(p, i % MEMBERS, i, i < MEMBERS ? 300 * TEST_KIB : 500));
    for (size_t i = 1; i < MEMBERS; i += 2)
        STEP(loch_fill_on(p->blocks[i], 300 * TEST_KIB, "x", 1, p->stream));
    for (size_t i = 0; i < MEMBERS; i++) {
        STEP(loch_free(p->members[i], p->blocks[i]));
        p->blocks[i] = NULL;
    }
    STEP(take(p, 3, 3, 3 * TEST_MIB)); /* what others hold idle */
    STEP(loch_free(p->members[3], p->blocks[3]));
    p->blocks[3] = NULL;
    STEP(take(p, 1, 1, 3 * TEST_MIB));
}

/* Owners go first, then blocks; faults are still there. */
static void program_end(program *p)
{
    loch_allocator *pools[MEMBERS];
    for (size_t i = 0; i < MEMBERS; i++) {
        pools[i] = p->members[i];
        bool has_blocks = false;
        for (size_t k = i; k < BLOCKS; k += MEMBERS)
            has_blocks |= p->blocks[k] != NULL;
        if (!has_blocks) continue;
        loch_allocator_release(p->members[i]);
        p->members[i] = NULL;
    }
    for (size_t k = 0; k < 2 * MEMBERS; k++)
        if (p->blocks[k] && loch_free(pools[k % MEMBERS], p->blocks[k]) != LOCH_OK)
            p->wrong = loch_error_get()->sentence;
    program_look(p);
    for (size_t i = 0; i < MEMBERS; i++)
        loch_allocator_release(p->members[i]);
    loch_stream_close(p->stream);
}

typedef struct source {
    const char *name;
    void (*set)(test_failing mode, uint64_t after, loch_device *device);
    uint64_t (*count)(loch_device *device);
} source;

static bool sweep_at(const source *from, const char *device, test_failing mode, uint64_t after, uint64_t *felt)
{
    loch_host_usage before = {.size = sizeof before}, usage = {.size = sizeof usage};
    program p = {.scale = strcmp(device, "cpu") == 0 || strstr(device, "virtual=off") ? 4 : 1};
    CHECK_OK(loch_host_get_usage(&before));
    CHECK_OK(loch_device_open(device, &p.device));
    from->set(mode, after, p.device);
    program_work(&p);
    program_end(&p);
    const bool is_reached = from->count(p.device) > after;
    from->set(TEST_FAILING_NEVER, 0, p.device);
    *felt += p.status != LOCH_OK;
    if (p.wrong)
        fail_msg("%s on %s, mode %d at %llu: %s", from->name, device, mode, (unsigned long long)after, p.wrong);
    if (!is_reached && p.status != LOCH_OK) fail_msg("%s failed without a fault", device);
    if (!strncmp(device, "sim:", 4)) {
        loch_sim_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_sim_get_stats(p.device, &stats));
        if (stats.physical_bytes || stats.mappings || stats.reserved_bytes || stats.events || stats.streams)
            fail_msg("%s on %s, mode %d at %llu: %zu bytes, %zu mappings, %zu events are left", from->name, device,
                     mode, (unsigned long long)after, stats.physical_bytes, stats.mappings, stats.events);
        if (p.status == LOCH_OK && !is_reached) assert_int_equal(stats.violations, 0);
    }
    loch_device_release(p.device);
    CHECK_OK(loch_host_get_usage(&usage));
    assert_int_equal(usage.blocks, before.blocks);
    assert_int_equal(usage.bytes, before.bytes);
    return is_reached;
}

static void sweep(const source *from, const char *device)
{
    uint64_t places = 0, felt = 0;
    for (test_failing mode = TEST_FAILING_ONCE; mode <= TEST_FAILING_FOREVER; mode++) {
        uint64_t after = 0;
        while (sweep_at(from, device, mode, after, &felt))
            after++;
        places += after;
    }
    print_message("%s on %s: %llu faults, %llu of them felt\n", from->name, device, (unsigned long long)places,
                  (unsigned long long)felt);
    assert_true(places > 40 && felt > 10);
}

static void heap_set(test_failing mode, uint64_t after, loch_device *device)
{
    (void)device;
    test_heap_set(mode, after);
}

static uint64_t heap_count(loch_device *device)
{
    (void)device;
    return test_heap_count();
}

static const char *const devices[] = {"sim:64MiB,granule=256KiB", "sim:64MiB,granule=256KiB,async=off",
                                      "sim:64MiB,granule=256KiB,alias=off", "sim:128MiB,virtual=off"};

static void host_memory(void **state)
{
    (void)state;
    static const source heap = {"host memory", heap_set, heap_count};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        sweep(&heap, devices[d]);
    sweep(&heap, "cpu");
}

static void driver_calls(void **state)
{
    (void)state;
    static const source calls = {"driver calls", test_sim_set, test_sim_count};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        sweep(&calls, devices[d]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_memory), cmocka_unit_test(driver_calls)};
    if (test_heap_install() != LOCH_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
