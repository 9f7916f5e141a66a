/* SPDX-License-Identifier: MIT */
/* A family of pools, made, used and ended while every host allocation and every driver call fails in turn, once and for
 * good. After each fault all pools are whole, and nothing is left in the end: neither on the host nor on the device. */
#include "faulty_driver.h"
#include "memory/pool/report/check.h"
#include "sweep.h"
#include "test.h"

#define MEMBERS 5
#define BLOCKS 12

typedef struct program {
    test_notes notes; /* with the device */
    loch_stream *stream;
    loch_allocator *members[MEMBERS]; /* the root, a quota, a range in it, a quota beside, a range in the root */
    void *blocks[BLOCKS];
    size_t scale; /* of limits: more where granules are large */
} program;

static void program_look(program *p)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        lochi_pool *pool = p->members[i] ? lochi_pool_of(p->members[i]) : NULL;
        const char *wrong = pool ? lochi_pool_check(pool) : NULL;
        if (wrong) p->notes.wrong = wrong;
    }
}

static bool program_note(program *p, loch_status status, const char *call)
{
    program_look(p);
    return test_notes_take(&p->notes, status, call);
}

#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        if (!program_note(p, (call), #call)) return;                                                                   \
    } while (0)

static loch_status make(program *p, size_t parent, size_t i, loch_child_kind kind, size_t minimum, size_t limit)
{
    const loch_child_options options = {
        .size = sizeof options, .kind = kind, .minimum_bytes = minimum, .limit_bytes = limit, .stream = p->stream};
    p->members[i] = TEST_UNTOUCHED;
    const loch_status status = loch_pool_create_child(p->members[parent], "child", &options, &p->members[i]);
    if ((status == LOCH_OK) != (p->members[i] != NULL)) p->notes.wrong = "a child beside a failure";
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
    STEP(loch_stream_create(p->notes.device, NULL, &p->stream));
    STEP(loch_pool_create(p->notes.device, "root", &options, &p->members[0]));
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
            p->notes.wrong = loch_error_get()->sentence;
    program_look(p);
    for (size_t i = 0; i < MEMBERS; i++)
        loch_allocator_release(p->members[i]);
    loch_stream_close(p->stream);
}

static void run_faulted(test_round *round, const void *user)
{
    const char *device = user;
    program p = {.scale = strcmp(device, "cpu") == 0 || strstr(device, "virtual=off") ? 4 : 1};
    CHECK_OK(loch_device_open(device, &p.notes.device));
    test_round_begin(round, p.notes.device);
    program_work(&p);
    program_end(&p);
    test_round_end(round);
    test_notes_check(&p.notes, round);
    test_sim_expect_empty(p.notes.device, !round->is_felt && !round->is_reached, round->when, p.notes.call);
    loch_device_release(p.notes.device);
}

static void sweep(const test_faults *from, const char *device)
{
    const test_rounds rounds = test_rounds_run(from, device, run_faulted, device);
    assert_true(rounds.places > 40 && rounds.felt > 10);
}

static const char *const devices[] = {"sim:64MiB,granule=256KiB", "sim:64MiB,granule=256KiB,async=off",
                                      "sim:64MiB,granule=256KiB,alias=off", "sim:128MiB,virtual=off", "cpu"};

static void a_family_survives_failing_host_memory(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        sweep(&test_host_faults, devices[d]);
}

static void a_family_survives_failing_driver_calls(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        if (strcmp(devices[d], "cpu") != 0) sweep(&test_sim_faults, devices[d]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_family_survives_failing_host_memory),
                                       cmocka_unit_test(a_family_survives_failing_driver_calls)};
    if (test_heap_install() != LOCH_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
