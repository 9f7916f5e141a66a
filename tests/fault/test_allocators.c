/* SPDX-License-Identifier: MIT */
/* Every host allocation and every driver call fails in turn, once and for good, while a small program uses an
 * allocator: all of them, wrapped in all ways. Each failure has to be reported with a sentence; what could not be
 * freed while things failed is still there and can be freed afterwards; nothing is left in the end; and the program
 * runs as if nothing had been. */
#include "allocators.h"
#include "faulty_driver.h"
#include "sweep.h"

#define BLOCKS 8

/* Where faults come from. */
typedef struct source {
    const char *name, *device;
    bool hold; /* the device stays open around the runs: faults are set on it */
    void (*set)(test_failing mode, uint64_t after, loch_device *device);
    uint64_t (*count)(loch_device *device); /* things that could have failed since `set` */
} source;

/* One run of the program. */
typedef struct program {
    const source *source;
    const char *stack;
    loch_device *held;
    loch_status status; /* of the first call that failed */
    const char *call;   /* its text */
    loch_error error;   /* the record right after it */
    const char *wrong;  /* a promise that was broken */
    loch_device *device;
    loch_stream *stream;
    loch_allocator *allocator;
    void *blocks[BLOCKS];
    loch_profile *profile;
    loch_census *census;
    bool has_pressure;
} program;

#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        if (!program_note(p, (call), #call)) return;                                                                   \
    } while (0)

static bool program_note(program *p, loch_status status, const char *call)
{
    if (status == LOCH_OK) return true;
    p->status = status;
    p->call = call;
    p->error = *loch_error_get();
    if (p->error.status != status || !p->error.sentence[0]) p->wrong = "a failure without a sentence";
    return false;
}

static size_t program_press(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator;
    (void)bytes;
    (void)user;
    return 0;
}

static loch_status program_count(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes != 0; /* an id may be missing for want of host memory */
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
    if (loch_alloc(p->allocator, (size_t)1 << 40, &none) == LOCH_OK || none) p->wrong = "too much was handed out";
}

static void program_ask(program *p)
{
    loch_stats stats = {.size = sizeof stats};
    loch_block block = {.size = sizeof block};
    size_t seen = 0;
    STEP(loch_allocator_find(p->allocator, p->blocks[1], &block));
    if (block.requested_bytes != 5000) p->wrong = "another size";
    STEP(loch_allocator_walk(p->allocator, program_count, &seen));
    STEP(loch_allocator_get_stats(p->allocator, &stats));
    if (stats.blocks != 7 || seen != 7) p->wrong = "another number of blocks";
    STEP(loch_census_create(p->allocator, &p->census));
    if (test_census_count(p->census) != 7) p->wrong = "another census";
    STEP(loch_allocator_measure(p->allocator, LOCH_MEASURE_ON));
    STEP(loch_allocator_reset_stats(p->allocator));
}

/* Changes the size of a block. After a failure the old one is still there. */
static void program_resize(program *p, void **block, size_t bytes, loch_stream *stream)
{
    void *resized = TEST_UNTOUCHED;
    if (p->status != LOCH_OK) return;
    if (stream) STEP(loch_device_sync(p->device)); /* the block was another stream's */
    const loch_status status = loch_allocator_realloc(p->allocator, *block, bytes, stream, &resized);
    if ((status == LOCH_OK) != (resized != NULL)) p->wrong = "a block beside a failure";
    if (status == LOCH_OK) *block = resized;
    STEP(status /* of loch_allocator_realloc */);
}

static void program_use(program *p)
{
    STEP(loch_fill_on(p->blocks[3], 300, "f", 1, p->stream));
    STEP(loch_stream_sync(p->stream));
    STEP(loch_fill_on(p->blocks[3], 300, "g", 1, NULL));
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
    if (p->status != LOCH_OK) return;
    STEP(loch_allocator_trim(p->allocator, 0, NULL));
}

static void program_work(program *p)
{
    STEP(loch_device_open(p->source->device, &p->device));
    STEP(loch_stream_create(p->device, NULL, &p->stream));
    STEP(test_stack_create(p->device, p->stack, &p->allocator));
    STEP(loch_allocator_add_pressure(p->allocator, program_press, p));
    p->has_pressure = true;
    STEP(loch_profile_begin(p->allocator, "all", &p->profile));
    program_allocate(p);
    if (p->status == LOCH_OK) program_ask(p);
    if (p->status == LOCH_OK) program_use(p);
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
            p->wrong = "a block is not known any more";
    }
}

/* Nothing fails any more: everything has to go. */
static void program_end(program *p)
{
    loch_profile_report report = {.size = sizeof report};
    /* what a failing allocation could not give back is tried again by trim */
    if (p->allocator && loch_allocator_trim(p->allocator, 0, NULL) != LOCH_OK) p->wrong = "trim failed";
    for (size_t i = 0; i < BLOCKS; i++)
        if (loch_free(p->allocator, p->blocks[i]) != LOCH_OK && p->blocks[i]) p->wrong = loch_error_get()->sentence;
    if (p->allocator) {
        loch_stats stats = {.size = sizeof stats};
        if (loch_allocator_get_stats(p->allocator, &stats) != LOCH_OK || stats.blocks || stats.requested_bytes)
            p->wrong = "the figures are wrong";
    }
    if (p->has_pressure && loch_allocator_remove_pressure(p->allocator, program_press, p) != LOCH_OK)
        p->wrong = "the pressure function has gone";
    loch_profile_end(p->profile, &report);
    loch_census_destroy(p->census);
    loch_allocator_release(p->allocator);
    if (p->device && loch_device_sync(p->device) != LOCH_OK) p->wrong = "the device does not recover";
    loch_stream_close(p->stream);
    loch_device_release(p->device);
}

static bool program_run(program *p, test_failing mode, uint64_t after)
{
    p->source->set(mode, after, p->held);
    program_work(p);
    if (mode != TEST_FAILING_NEVER) program_try_to_free(p);
    const bool is_reached = p->source->count(p->held) > after;
    p->source->set(TEST_FAILING_NEVER, 0, p->held);
    program_end(p);
    return is_reached;
}

static void check_device(const program *p, const char *when)
{
    if (!p->held || strncmp(p->source->device, "sim:", 4) != 0) return;
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(p->held, &stats));
    CHECK_OK(loch_sim_clear_violations(p->held)); /* memory given back under work that could not be waited for */
    if (stats.physical_bytes || stats.pinned_bytes || stats.events || stats.streams || stats.pending)
        fail_msg("%s, %s (%s): left on the device: %zu bytes, %zu pinned, %zu events, %zu streams", p->stack, when,
                 p->call ? p->call : "coped", stats.physical_bytes, stats.pinned_bytes, stats.events, stats.streams);
}

/* One faulted run and one without. Returns whether there was anything at place `after`. */
static bool sweep_at(const source *from, const char *stack, test_failing mode, uint64_t after, uint64_t *felt)
{
    char when[80];
    loch_host_usage before = {.size = sizeof before}, usage = {.size = sizeof usage};
    const uint64_t alive = test_user_alive(), wrong = test_user_wrong();
    program faulted = {.source = from, .stack = stack}, plain = {.source = from, .stack = stack};
    snprintf(when, sizeof when, "%s, %s failing %s at %llu", from->device, from->name,
             mode == TEST_FAILING_ONCE ? "once" : "for good", (unsigned long long)after);
    CHECK_OK(loch_host_get_usage(&before));
    if (from->hold) CHECK_OK(loch_device_open(from->device, &faulted.held));
    plain.held = faulted.held;
    const bool is_reached = program_run(&faulted, mode, after);
    *felt += faulted.status != LOCH_OK;
    if (faulted.wrong) fail_msg("%s, %s (%s): %s", stack, when, faulted.call ? faulted.call : "coped", faulted.wrong);
    if (faulted.status != LOCH_OK && !is_reached)
        fail_msg("%s, %s: %s failed without a fault: %s", stack, when, faulted.call, faulted.error.sentence);
    check_device(&faulted, when);
    program_run(&plain, TEST_FAILING_NEVER, 0);
    if (plain.status != LOCH_OK || plain.wrong)
        fail_msg("%s, after %s: %s: %s", stack, when, plain.call ? plain.call : "",
                 plain.wrong ? plain.wrong : plain.error.sentence);
    check_device(&plain, when);
    loch_device_release(faulted.held);
    CHECK_OK(loch_host_get_usage(&usage));
    if (usage.blocks != before.blocks || usage.bytes != before.bytes)
        fail_msg("%s, %s (%s): the bookkeeping holds %zu bytes in %zu pieces, before it were %zu in %zu", stack, when,
                 faulted.call ? faulted.call : "coped", usage.bytes, usage.blocks, before.bytes, before.blocks);
    if (test_user_alive() != alive || test_user_wrong() != wrong)
        fail_msg("%s, %s: a user's allocator was not treated as promised", stack, when);
    return is_reached;
}

static bool has_pinned(const char *name)
{
    loch_device *device = NULL;
    CHECK_OK(loch_device_open(name, &device));
    const int can = loch_device_can(device, LOCH_CAN_PINNED);
    loch_device_release(device);
    return can;
}

static void sweep(const source *from)
{
    uint64_t places = 0, felt = 0;
    const bool can_pin = has_pinned(from->device);
    for (size_t i = 0; i < test_stacks_count; i++) {
        const char *stack = test_stacks[i];
        if (test_stack_is_pinned(stack) && !can_pin) continue;
        for (test_failing mode = TEST_FAILING_ONCE; mode <= TEST_FAILING_FOREVER; mode++) {
            uint64_t after = 0;
            while (sweep_at(from, stack, mode, after, &felt))
                after++;
            places += after;
        }
    }
    print_message("%s on %s: %llu faults, %llu of them felt\n", from->name, from->device, (unsigned long long)places,
                  (unsigned long long)felt);
    assert_true(places > 40 * test_stacks_count / 2 && felt > places / 8);
}

/* --- the sources --- */

static void host_memory_on_the_cpu(void **state)
{
    (void)state;
    sweep(&(source){.name = "host allocations", .device = "cpu", .set = test_host_set, .count = test_host_count});
}

static void host_memory_on_sim(void **state)
{
    (void)state;
    sweep(&(source){.name = "host allocations",
                    .device = "sim:256MiB,granule=64KiB,backed",
                    .hold = true,
                    .set = test_host_set,
                    .count = test_host_count});
    assert_int_equal(test_heap_wrong(), 0);
}

static void driver_calls(void **state)
{
    (void)state;
    sweep(&(source){
        .name = "driver calls", .device = "faulty:cpu", .set = test_faulty_set_on, .count = test_faulty_count_on});
    sweep(&(source){.name = "driver calls",
                    .device = "faulty:sim:256MiB,granule=64KiB,backed",
                    .set = test_faulty_set_on,
                    .count = test_faulty_count_on});
    assert_int_equal(test_faulty_open(), 0);
}

static void driver_calls_of_devices_that_are_named(void **state)
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
        if (status == LOCH_OK)
            sweep(&(source){
                .name = "driver calls", .device = name, .set = test_faulty_set_on, .count = test_faulty_count_on});
        loch_device_release(device);
    }
}

static void driver_calls_of_sim(void **state)
{
    (void)state;
    sweep(&(source){.name = "driver calls",
                    .device = "sim:256MiB,granule=64KiB,backed",
                    .hold = true,
                    .set = test_sim_set,
                    .count = test_sim_count});
}

static int prepare(void **state)
{
    (void)state;
    loch_tag tag;
    return test_heap_install() == LOCH_OK && test_faulty_register() == LOCH_OK &&
                   loch_tag_create("fault", &tag) == LOCH_OK
               ? 0
               : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_on_the_cpu),
        cmocka_unit_test(host_memory_on_sim),
        cmocka_unit_test(driver_calls),
        cmocka_unit_test(driver_calls_of_sim),
        cmocka_unit_test(driver_calls_of_devices_that_are_named),
    };
    test_heap_set(TEST_FAILING_NEVER, 0);
    test_faulty_set(TEST_FAILING_NEVER, 0);
    return cmocka_run_group_tests_name("allocators while things fail", tests, prepare, NULL);
}
