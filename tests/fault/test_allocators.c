/* SPDX-License-Identifier: MIT */
/* Every host allocation and every driver call fails in turn, once and for good, while a small program uses an
 * allocator: all of them, wrapped in all ways. Each failure has to be reported with a sentence; what could not be
 * freed while things failed is still there and can be freed afterwards; nothing is left in the end; and the program
 * runs as if nothing had been. */
#include "allocators.h"
#include "faulty_driver.h"
#include "sweep.h"

#define BLOCKS 8

/* What a sweep runs on. */
typedef struct ground {
    const char *device;
    bool hold; /* the device stays open around the runs: faults are set on it */
    const char *stack;
} ground;

/* One run of the program. */
typedef struct program {
    test_notes notes;
    const ground *ground;
    loch_device *device;
    loch_stream *stream;
    loch_allocator *allocator;
    void *blocks[BLOCKS];
    loch_profile *profile;
    loch_census *census;
    bool has_pressure;
} program;

#define STEP(call) TEST_STEP(&p->notes, call)

static size_t program_press(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator;
    (void)bytes;
    (void)user;
    return 0;
}

static loch_status program_count(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes != 0; /* an id may be missing because there is no host memory */
    return LOCH_OK;
}

static void program_allocate(program *p)
{
    loch_tag tag;
    STEP(loch_tag_create("fault", &tag));
    const loch_request requests[] = {
        {.size = sizeof *requests, .bytes = 100},
        {.size = sizeof *requests, .bytes = 5000, .alignment = 16},
        {.size = sizeof *requests, .bytes = 300, .tag = tag},
        {.size = sizeof *requests, .bytes = 300, .tag = tag, .stream = p->stream},
        {.size = sizeof *requests, .bytes = 4000, .flags = LOCH_ALLOC_ZEROED},
        {.size = sizeof *requests, .bytes = 4000, .flags = LOCH_ALLOC_ZEROED, .stream = p->stream},
    };
    for (size_t i = 0; i < 6; i++)
        STEP(loch_allocator_alloc(p->allocator, &requests[i], &p->blocks[i]));
    STEP(loch_alloc_array(p->allocator, 10, 20, NULL, &p->blocks[6]));
    void *none = TEST_UNTOUCHED;
    if (loch_alloc(p->allocator, (size_t)1 << 40, &none) == LOCH_OK || none) p->notes.wrong = "too much was handed out";
}

static void program_ask(program *p)
{
    loch_stats stats = {.size = sizeof stats};
    loch_block block = {.size = sizeof block};
    size_t seen = 0;
    STEP(loch_allocator_find(p->allocator, p->blocks[1], &block));
    if (block.requested_bytes != 5000) p->notes.wrong = "another size";
    STEP(loch_allocator_walk(p->allocator, program_count, &seen));
    STEP(loch_allocator_get_stats(p->allocator, &stats));
    if (stats.blocks != 7 || seen != 7) p->notes.wrong = "another number of blocks";
    STEP(loch_census_create(p->allocator, &p->census));
    if (test_census_count(p->census) != 7) p->notes.wrong = "another census";
    STEP(loch_allocator_measure(p->allocator, LOCH_MEASURE_ON));
    STEP(loch_allocator_reset_stats(p->allocator));
}

/* Changes the size of a block. After a failure the old one is still there. */
static void program_resize(program *p, void **block, size_t bytes, loch_stream *stream)
{
    void *resized = TEST_UNTOUCHED;
    if (p->notes.status != LOCH_OK) return;
    if (stream) STEP(loch_device_sync(p->device)); /* the block was another stream's */
    const loch_status status = loch_allocator_realloc(p->allocator, *block, bytes, stream, &resized);
    if ((status == LOCH_OK) != (resized != NULL)) p->notes.wrong = "a block beside a failure";
    if (status == LOCH_OK) *block = resized;
    STEP(status /* of loch_allocator_realloc */);
}

/* A growable block, where the allocators have them: it grows and shrinks in place, and moves beyond its reservation. */
static void program_grow(program *p)
{
    const loch_request request = {
        .size = sizeof request, .bytes = 1000, .max_bytes = 128 * TEST_KIB, .stream = p->stream, .tag = 1};
    const loch_status made = loch_allocator_alloc(p->allocator, &request, &p->blocks[0]);
    if (made == LOCH_E_UNSUPPORTED) return;
    STEP(made /* of loch_allocator_alloc */);
    const loch_status grown = loch_pool_resize_growable(p->allocator, p->blocks[0], 100 * TEST_KIB);
    if (grown != LOCH_E_UNSUPPORTED) STEP(grown /* of loch_pool_resize_growable */);
    if (grown == LOCH_OK) STEP(loch_pool_resize_growable(p->allocator, p->blocks[0], 100));
    program_resize(p, &p->blocks[0], 130 * TEST_KIB, NULL);
    if (p->notes.status != LOCH_OK) return;
    STEP(loch_free(p->allocator, p->blocks[0]));
    p->blocks[0] = NULL;
}

static void program_use(program *p)
{
    STEP(loch_fill_on(p->blocks[3], 300, "f", 1, p->stream));
    STEP(loch_stream_sync(p->stream));
    STEP(loch_fill_on(p->blocks[3], 300, "g", 1, NULL));
    STEP(loch_fill_with(p->blocks[3], 300, "h", 1, LOCH_OPTIONS(copy, .stream = p->stream, .wait = LOCH_WAIT_END)));
    STEP(loch_allocator_record_use(p->allocator, p->blocks[3], NULL));
    STEP(loch_free(p->allocator, p->blocks[3]));
    p->blocks[3] = NULL;
    STEP(loch_allocator_free_sized(p->allocator, p->blocks[0], 100));
    p->blocks[0] = NULL;
    STEP(loch_allocator_free_on(p->allocator, p->blocks[5], p->stream));
    p->blocks[5] = NULL;
    STEP(loch_address_free(p->blocks[6]));
    p->blocks[6] = NULL;
    STEP(loch_alloc(p->allocator, 200000, &p->blocks[7]));
    program_resize(p, &p->blocks[1], 5010, NULL); /* in place, where that can be */
    program_resize(p, &p->blocks[1], 9000, NULL);
    program_resize(p, &p->blocks[2], 200, p->stream);
    if (p->notes.status == LOCH_OK) program_grow(p);
    if (p->notes.status != LOCH_OK) return;
    STEP(loch_allocator_trim(p->allocator, 0, NULL));
}

static void program_work(program *p)
{
    STEP(loch_device_open(p->ground->device, &p->device));
    STEP(loch_stream_create(p->device, NULL, &p->stream));
    STEP(test_stack_create(p->device, p->ground->stack, &p->allocator));
    STEP(loch_allocator_add_pressure(p->allocator, program_press, p));
    p->has_pressure = true;
    STEP(loch_profile_begin(p->allocator, "all", &p->profile));
    program_allocate(p);
    if (p->notes.status == LOCH_OK) program_ask(p);
    if (p->notes.status == LOCH_OK) program_use(p);
}

/* Frees what is left, and may fail at it; then the block has to be there as before. */
static void program_try_to_free(program *p)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        if (!p->blocks[i]) continue;
        const loch_status status = loch_free(p->allocator, p->blocks[i]);
        if (status == LOCH_OK)
            p->blocks[i] = NULL;
        else if (status == LOCH_E_DOUBLE_FREE || status == LOCH_E_FOREIGN || status == LOCH_E_INTERIOR)
            p->notes.wrong = "a block is not known any more";
    }
}

/* Nothing fails any more: everything has to go. */
static void program_end(program *p)
{
    loch_profile_report report = {.size = sizeof report};
    /* what a failing allocation could not give back is tried again by trim */
    if (p->allocator && loch_allocator_trim(p->allocator, 0, NULL) != LOCH_OK) p->notes.wrong = "trim failed";
    for (size_t i = 0; i < BLOCKS; i++)
        if (loch_free(p->allocator, p->blocks[i]) != LOCH_OK && p->blocks[i])
            p->notes.wrong = loch_error_get()->sentence;
    if (p->allocator) {
        loch_stats stats = {.size = sizeof stats};
        if (loch_allocator_get_stats(p->allocator, &stats) != LOCH_OK || stats.blocks || stats.requested_bytes)
            p->notes.wrong = "the figures are wrong";
    }
    if (p->has_pressure && loch_allocator_remove_pressure(p->allocator, program_press, p) != LOCH_OK)
        p->notes.wrong = "the pressure function has gone";
    loch_profile_end(p->profile, &report);
    loch_census_destroy(p->census);
    loch_allocator_release(p->allocator);
    if (p->device && loch_device_sync(p->device) != LOCH_OK) p->notes.wrong = "the device does not recover";
    loch_stream_close(p->stream);
    loch_device_release(p->device);
}

/* Runs the program without a fault. */
static void run_plain(const ground *on, loch_device *held, const test_round *after)
{
    test_round round = *after;
    program p = {.ground = on};
    program_work(&p);
    program_end(&p);
    test_notes_check(&p.notes, &round);
    if (round.is_felt) fail_msg("after %s: %s: %s", round.when, round.call, p.notes.error.sentence);
    if (held) test_sim_expect_empty(held, false, round.when, "without a fault");
}

static void run_faulted(test_round *round, const void *user)
{
    const ground *on = user;
    const uint64_t alive = test_user_alive(), wrong = test_user_wrong();
    program p = {.ground = on};
    loch_device *held = NULL;
    if (on->hold) CHECK_OK(loch_device_open(on->device, &held));
    test_round_begin(round, held);
    program_work(&p);
    if (round->mode != TEST_FAILING_NEVER) program_try_to_free(&p);
    test_round_end(round);
    program_end(&p);
    test_notes_check(&p.notes, round);
    /* memory may have been given back under work that could not be waited for */
    if (held) test_sim_expect_empty(held, false, round->when, p.notes.call);
    run_plain(on, held, round);
    loch_device_release(held);
    if (test_user_alive() != alive || test_user_wrong() != wrong)
        fail_msg("%s: a user's allocator was not treated as promised", round->when);
}

static bool has_pinned(const char *name)
{
    loch_device *device = NULL;
    CHECK_OK(loch_device_open(name, &device));
    const int can = loch_device_can(device, LOCH_CAN_PINNED);
    loch_device_release(device);
    return can;
}

static void sweep(const test_faults *from, const char *device, bool hold)
{
    uint64_t places = 0, felt = 0;
    const bool can_pin = has_pinned(device);
    for (size_t i = 0; i < test_stacks_count; i++) {
        const ground on = {device, hold, test_stacks[i]};
        char name[160];
        if (test_stack_is_pinned(on.stack) && !can_pin) continue;
        snprintf(name, sizeof name, "%s on %s", on.stack, device);
        const test_rounds rounds = test_rounds_run(from, name, run_faulted, &on);
        places += rounds.places;
        felt += rounds.felt;
    }
    assert_true(places > 40 * test_stacks_count / 2 && felt > places / 8);
}

/* --- the sources --- */

static void every_stack_survives_failing_host_memory_on_the_cpu(void **state)
{
    (void)state;
    sweep(&test_host_faults, "cpu", false);
}

static void every_stack_survives_failing_host_memory_on_sim(void **state)
{
    (void)state;
    sweep(&test_host_faults, "sim:256MiB,granule=64KiB,backed", true);
    assert_int_equal(test_heap_wrong(), 0);
}

static void every_stack_survives_failing_calls_of_a_driver_from_outside(void **state)
{
    (void)state;
    sweep(&test_driver_faults, "faulty:cpu", false);
    sweep(&test_driver_faults, "faulty:sim:256MiB,granule=64KiB,backed", false);
    assert_int_equal(test_faulty_open(), 0);
}

static void every_stack_survives_failing_calls_of_named_devices(void **state)
{
    (void)state;
    char list[1024], name[LOCH_DEVICE_NAME_MAX], *rest = NULL;
    const char *wanted = getenv("LOCH_TEST_DEVICES");
    snprintf(list, sizeof list, "%s", wanted ? wanted : "");
    for (char *one = strtok_r(list, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
        loch_device *device = NULL; /* held open meanwhile: starting a GPU takes long */
        snprintf(name, sizeof name, "faulty:%.200s", one);
        const loch_status status = loch_device_open(one, &device);
        if (status != LOCH_OK) print_message("%s: skipped: %s\n", one, loch_error_get()->sentence);
        if (status == LOCH_OK) sweep(&test_driver_faults, name, false);
        loch_device_release(device);
    }
}

static void every_stack_survives_failing_calls_of_sim(void **state)
{
    (void)state;
    sweep(&test_sim_faults, "sim:256MiB,granule=64KiB,backed", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stack_survives_failing_host_memory_on_the_cpu),
        cmocka_unit_test(every_stack_survives_failing_host_memory_on_sim),
        cmocka_unit_test(every_stack_survives_failing_calls_of_a_driver_from_outside),
        cmocka_unit_test(every_stack_survives_failing_calls_of_sim),
        cmocka_unit_test(every_stack_survives_failing_calls_of_named_devices),
    };
    return cmocka_run_group_tests_name("allocators while things fail", tests, test_faults_prepare, NULL);
}
