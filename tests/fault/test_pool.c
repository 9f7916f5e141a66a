/* SPDX-License-Identifier: MIT */
/* A program that uses a pool fully, run while every host allocation and every driver call fails in turn, once and for
 * good, and while the device is lost before each of its steps.
 *
 * After each fault the pool is whole (lochi_pool_check), what could not be freed is still there, later requests
 * succeed, and nothing is left in the end: neither on the host nor on the device. */
#include "faulty_driver.h"
#include "memory/pool/report/check.h"
#include "sweep.h"
#include "test.h"

#define SLOTS 96
#define LIMIT (4 * TEST_MIB)

/* What the program runs on. */
typedef struct ground {
    const char *device;
    loch_pool_options options;
} ground;

typedef struct program {
    test_notes notes; /* with the device, which is open around the runs */
    const ground *ground;
    loch_stream *one, *two;
    loch_allocator *pool;
    void *blocks[SLOTS];
    loch_sim_graph *graph;
    bool is_capturing;
    loch_pool_info info;
} program;

/* --- steps --- */

static void program_expect_whole(program *p)
{
    lochi_pool *pool = lochi_pool_of(p->pool);
    const char *wrong = pool ? lochi_pool_check(pool) : NULL;
    if (wrong && !p->notes.wrong) p->notes.wrong = wrong;
}

static bool program_note(program *p, loch_status status, const char *call)
{
    if (test_notes_take(&p->notes, status, call)) return true;
    program_expect_whole(p);
    return false;
}

#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        test_notes_step(&p->notes);                                                                                    \
        if (!program_note(p, (call), #call)) return;                                                                   \
    } while (0)

static loch_status take(program *p, size_t slot, size_t bytes, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream, .tag = slot % 3 ? 0 : 1};
    void *block = TEST_UNTOUCHED;
    const loch_status status = loch_allocator_alloc(p->pool, &request, &block);
    if ((status == LOCH_OK) != (block != NULL)) p->notes.wrong = "a block beside a failure";
    p->blocks[slot] = status == LOCH_OK ? block : NULL;
    return status;
}

static loch_status give(program *p, size_t slot)
{
    const loch_status status = loch_free(p->pool, p->blocks[slot]);
    if (status == LOCH_OK) p->blocks[slot] = NULL;
    return status;
}

/* Work on a stream that writes the block. */
static loch_status use(const program *p, size_t slot, size_t bytes, loch_stream *stream)
{
    return loch_fill_on(p->blocks[slot], bytes, "x", 1, stream);
}

static void program_sizes(program *p)
{
    for (size_t i = 0; i < 24; i++)
        STEP(take(p, i, 40 + 97 * i, i % 2 ? p->one : NULL));
    for (size_t i = 24; i < 32; i++)
        STEP(take(p, i, 12 * TEST_KIB + 999 * i, i % 2 ? p->one : NULL));
    for (size_t i = 32; i < 36; i++)
        STEP(take(p, i, 300 * TEST_KIB, p->one));
    for (size_t i = 0; i < 36; i += 3)
        STEP(give(p, i));
    for (size_t i = 0; i < 36; i += 3)
        STEP(take(p, i, 100 + 50 * i, p->two));
    for (size_t i = 0; i < 36; i++)
        STEP(give(p, i));
}

static loch_status put(program *p, size_t slot, size_t bytes, loch_stream *stream, void *address)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream, .address = address};
    void *block = TEST_UNTOUCHED;
    const loch_status status = loch_allocator_alloc(p->pool, &request, &block);
    if (status == LOCH_OK ? block != address : block != NULL) p->notes.wrong = "a block is at another address";
    p->blocks[slot] = status == LOCH_OK ? block : NULL;
    return status;
}

static void program_streams(program *p)
{
    STEP(take(p, 0, 200 * TEST_KIB, p->one));
    STEP(take(p, 1, 700, p->one));
    STEP(use(p, 0, 200 * TEST_KIB, p->one));
    STEP(use(p, 1, 700, p->one));
    STEP(loch_stream_sync(p->one));
    STEP(use(p, 0, 200 * TEST_KIB, p->two));
    STEP(use(p, 1, 700, p->two));
    STEP(loch_allocator_record_use(p->pool, p->blocks[0], p->two));
    STEP(loch_allocator_record_use(p->pool, p->blocks[1], p->two));
    STEP(loch_allocator_record_use(p->pool, p->blocks[1], NULL));
    STEP(give(p, 0));
    STEP(give(p, 1));
    STEP(take(p, 0, 200 * TEST_KIB, p->one));
    STEP(use(p, 0, 200 * TEST_KIB, p->one));
    STEP(loch_stream_sync(p->one));
    STEP(use(p, 0, 200 * TEST_KIB, p->two));
    STEP(loch_allocator_free_on(p->pool, p->blocks[0], p->two));
    p->blocks[0] = NULL;
}

/* Memory is free in many pieces, and wanted in one: on both streams, up to the limit. */
static void program_pieces(program *p)
{
    for (size_t i = 0; i < 12; i++)
        STEP(take(p, i, 256 * TEST_KIB, p->one));
    for (size_t i = 0; i < 12; i++)
        STEP(use(p, i, 256 * TEST_KIB, p->one));
    for (size_t i = 0; i < 12; i += 2)
        STEP(give(p, i));
    if (p->ground->options.kind == LOCH_MEMORY_PINNED || strstr(p->ground->device, "virtual=off")) return;
    STEP(take(p, 0, 1300 * TEST_KIB, p->one));
    STEP(use(p, 0, 1300 * TEST_KIB, p->one));
    STEP(give(p, 0));
    STEP(take(p, 2, 1400 * TEST_KIB, p->two));
    STEP(use(p, 2, 1400 * TEST_KIB, p->two));
    STEP(give(p, 1));
    void *none = TEST_UNTOUCHED;
    test_notes_step(&p->notes);
    if (loch_alloc(p->pool, p->ground->options.limit_bytes, &none) == LOCH_OK || none)
        p->notes.wrong = "more than the limit";
    program_expect_whole(p);
}

static void program_resize(program *p, size_t slot, size_t bytes)
{
    void *resized = TEST_UNTOUCHED;
    const loch_status status = loch_allocator_realloc(p->pool, p->blocks[slot], bytes, NULL, &resized);
    if ((status == LOCH_OK) != (resized != NULL)) p->notes.wrong = "a block beside a failure";
    if (status == LOCH_OK) p->blocks[slot] = resized;
    STEP(status /* of loch_allocator_realloc */);
}

static void program_grow(program *p, size_t max_bytes)
{
    const loch_request request = {.size = sizeof request, .bytes = 100 * TEST_KIB, .stream = p->one, .tag = 1};
    test_notes_step(&p->notes);
    const loch_status status = loch_pool_alloc_growable(p->pool, max_bytes, &request, &p->blocks[40]);
    if (status == LOCH_E_UNSUPPORTED) return;
    if (!program_note(p, status, "loch_pool_alloc_growable")) return;
    STEP(use(p, 40, 100 * TEST_KIB, p->one));
    STEP(loch_pool_resize_growable(p->pool, p->blocks[40], 700 * TEST_KIB));
    STEP(use(p, 40, 700 * TEST_KIB, p->one));
    STEP(loch_pool_resize_growable(p->pool, p->blocks[40], 50 * TEST_KIB));
    STEP(loch_pool_resize_growable(p->pool, p->blocks[40], 300 * TEST_KIB));
    STEP(loch_allocator_record_use(p->pool, p->blocks[40], p->two));
    STEP(give(p, 40));
    STEP(loch_pool_alloc_growable(p->pool, 64 * TEST_KIB, NULL, &p->blocks[40]));
    program_resize(p, 40, 150 * TEST_KIB); /* beyond what is reserved */
    if (p->notes.status != LOCH_OK) return;
    STEP(give(p, 40));
}

/* In the range of the pool, and in an annex. */
static void program_growable(program *p)
{
    program_grow(p, TEST_MIB);
    if (p->notes.status != LOCH_OK) return;
    program_grow(p, (size_t)1 << 30);
    if (p->notes.status != LOCH_OK) return;
    STEP(loch_allocator_trim(p->pool, 0, NULL));
}

/* Blocks that are one handle each: made, freed, made again of the same memory and of other, moved. */
static void program_one_handle(program *p)
{
    static const size_t sizes[] = {100 * TEST_KIB, 100 * TEST_KIB, 200 * TEST_KIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const loch_request request = {.size = sizeof request,
                                      .bytes = sizes[i],
                                      .stream = p->one,
                                      .tag = 1,
                                      .flags = LOCH_ALLOC_ONE_HANDLE | LOCH_ALLOC_ZEROED};
        test_notes_step(&p->notes);
        const loch_status status = loch_allocator_alloc(p->pool, &request, &p->blocks[40]);
        if (status == LOCH_E_UNSUPPORTED) return;
        if (!program_note(p, status, "loch_allocator_alloc")) return;
        STEP(use(p, 40, sizes[i], p->one));
        STEP(loch_allocator_record_use(p->pool, p->blocks[40], p->two));
        program_resize(p, 40, sizes[i] + 100 * TEST_KIB);
        if (p->notes.status != LOCH_OK) return;
        STEP(give(p, 40));
    }
    STEP(loch_allocator_trim(p->pool, 0, NULL));
}

static void program_changes(program *p)
{
    static const size_t sizes[] = {100, 5000, 20 * TEST_KIB, 21 * TEST_KIB, 300 * TEST_KIB, 10 * TEST_KIB, 200};
    STEP(take(p, 50, 60, p->one));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && p->notes.status == LOCH_OK; i++)
        program_resize(p, 50, sizes[i]);
    if (p->notes.status != LOCH_OK) return;
    loch_block block = {.size = sizeof block};
    STEP(loch_allocator_find(p->pool, p->blocks[50], &block));
    if (block.requested_bytes != 200) p->notes.wrong = "another size";
    STEP(loch_allocator_trim(p->pool, TEST_MIB, NULL));
    STEP(loch_pool_set_idle(p->pool, 128 * TEST_KIB));
    STEP(take(p, 51, 400 * TEST_KIB, p->two));
    STEP(give(p, 51));
    STEP(loch_pool_set_idle(p->pool, 0));
    STEP(loch_pool_set_limit(p->pool, p->ground->options.limit_bytes / 2));
    STEP(loch_pool_set_limit(p->pool, p->ground->options.limit_bytes));
    STEP(loch_allocator_trim(p->pool, 0, NULL));
}

/* Blocks that come and go inside a capture. Work on pinned memory is the host's, and not captured. */
static void program_capture(program *p)
{
    loch_capture_info info = {.size = sizeof info};
    test_notes_step(&p->notes);
    loch_status status = loch_sim_capture_begin(p->two);
    if (status == LOCH_E_UNSUPPORTED || status == LOCH_E_INVALID) return;
    if (!program_note(p, status, "loch_sim_capture_begin")) return;
    p->is_capturing = true;
    STEP(loch_stream_query_capture(p->two, &info));
    STEP(take(p, 60, 100 * TEST_KIB, p->two));
    STEP(take(p, 61, 500, p->two));
    if (p->ground->options.kind == LOCH_MEMORY_DEVICE) STEP(use(p, 60, 100 * TEST_KIB, p->two));
    STEP(give(p, 60));
    STEP(take(p, 62, 100 * TEST_KIB, p->two));
    if (p->ground->options.kind == LOCH_MEMORY_DEVICE) STEP(use(p, 62, 100 * TEST_KIB, p->two));
    STEP(give(p, 62));
    p->is_capturing = false;
    STEP(loch_sim_capture_end(p->two, &p->graph));
    STEP(loch_sim_graph_launch(p->graph, p->two));
    STEP(give(p, 61));
    STEP(loch_stream_sync(p->two));
    loch_sim_graph_destroy(p->graph);
    p->graph = NULL;
    if (p->ground->options.captures != LOCH_POOL_CAPTURES_SHARED) STEP(loch_pool_release_capture(p->pool, info.id));
    STEP(take(p, 63, 100 * TEST_KIB, p->one));
}

/* A stream goes before what it used; its memory serves the other. */
static void program_end_of_a_stream(program *p)
{
    STEP(take(p, 70, 250 * TEST_KIB, p->two));
    STEP(take(p, 71, 3000, p->two));
    STEP(use(p, 70, 250 * TEST_KIB, p->two));
    STEP(give(p, 70));
    loch_stream_close(p->two);
    p->two = NULL;
    STEP(give(p, 71));
    STEP(take(p, 72, 250 * TEST_KIB, p->one));
    STEP(use(p, 72, 250 * TEST_KIB, p->one));
}

/* Blocks come back to their addresses: in free memory, and where the memory has gone back to the device. */
static void program_addresses(program *p)
{
    static const size_t bytes[] = {700, 30 * TEST_KIB, 600 * TEST_KIB};
    const bool is_raw = p->ground->options.kind == LOCH_MEMORY_PINNED || strstr(p->ground->device, "virtual=off");
    void *addresses[3];
    for (size_t i = 0; i < 3; i++)
        STEP(take(p, 80 + i, bytes[i], p->one));
    for (size_t i = 0; i < 3; i++)
        addresses[i] = p->blocks[80 + i];
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < 3; i++)
            STEP(give(p, 80 + i));
        if (round && is_raw) return;
        if (round) STEP(loch_allocator_trim(p->pool, 0, NULL));
        for (size_t i = 3; i--;)
            STEP(put(p, 80 + i, bytes[i], p->one, addresses[i]));
    }
    for (size_t i = 0; i < 3; i++)
        STEP(give(p, 80 + i));
}

/* One size after the other: free segments of pinned memory make way for larger ones. */
static void program_in_turn(program *p)
{
    if (p->ground->options.kind != LOCH_MEMORY_PINNED) return;
    STEP(loch_allocator_trim(p->pool, 0, NULL));
    for (size_t bytes = TEST_MIB + 1; bytes < 2 * TEST_MIB; bytes += 300 * TEST_KIB) {
        STEP(take(p, 60, bytes, NULL));
        STEP(give(p, 60));
    }
}

static void program_work(program *p)
{
    static void (*const parts[])(program *) = {
        program_sizes,   program_streams, program_pieces,          program_growable,  program_one_handle,
        program_changes, program_capture, program_end_of_a_stream, program_addresses, program_in_turn};
    STEP(loch_stream_create(p->notes.device, NULL, &p->one));
    STEP(loch_stream_create(p->notes.device, NULL, &p->two));
    STEP(loch_pool_create(p->notes.device, "pool", &p->ground->options, &p->pool));
    for (size_t i = 0; i < sizeof parts / sizeof *parts && p->notes.status == LOCH_OK; i++) {
        parts[i](p);
        program_expect_whole(p);
    }
    p->info.size = sizeof p->info;
    if (p->notes.status == LOCH_OK) STEP(loch_pool_get_info(p->pool, &p->info));
}

/* --- the end of a run --- */

static void program_try_to_free(program *p)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (!p->blocks[i]) continue;
        const loch_status status = give(p, i);
        if (status == LOCH_E_DOUBLE_FREE || status == LOCH_E_FOREIGN || status == LOCH_E_INTERIOR)
            p->notes.wrong = "a block is not known any more";
    }
    if (p->pool && loch_allocator_trim(p->pool, 0, NULL) != LOCH_OK) p->notes.wrong = "trim failed";
    program_expect_whole(p);
}

static void program_stop_capture(program *p)
{
    if (p->is_capturing) LOCH_IGNORE(loch_sim_capture_end(p->two, &p->graph));
    loch_sim_graph_destroy(p->graph);
    p->graph = NULL;
    p->is_capturing = false;
}

/* Nothing fails any more. A lost device takes back, and gives nothing. */
static void program_end(program *p)
{
    const bool is_lost = p->notes.lose_before != 0;
    program_stop_capture(p);
    for (size_t i = 0; i < SLOTS; i++)
        if (p->blocks[i] && give(p, i) != LOCH_OK) p->notes.wrong = loch_error_get()->sentence;
    if (p->pool && !is_lost) {
        if (take(p, 0, 900 * TEST_KIB, p->one) != LOCH_OK || take(p, 1, 300, p->one) != LOCH_OK ||
            take(p, 2, 30 * TEST_KIB, NULL) != LOCH_OK)
            p->notes.wrong = loch_error_get()->sentence;
        program_expect_whole(p);
        for (size_t i = 0; i < 3; i++)
            if (p->blocks[i] && give(p, i) != LOCH_OK) p->notes.wrong = loch_error_get()->sentence;
    }
    if (p->pool) {
        loch_stats stats = {.size = sizeof stats};
        if (loch_allocator_get_stats(p->pool, &stats) != LOCH_OK || stats.blocks || stats.requested_bytes)
            p->notes.wrong = "the figures are wrong";
        program_expect_whole(p);
    }
    loch_allocator_release(p->pool);
    loch_stream_close(p->one);
    loch_stream_close(p->two);
    if (!is_lost && loch_device_sync(p->notes.device) != LOCH_OK) p->notes.wrong = "the device does not recover";
}

/* --- sweeps --- */

static bool is_sim(const ground *on)
{
    return strncmp(on->device, "sim:", 4) == 0;
}

static void check_run(const program *p, test_round *round)
{
    test_notes_check(&p->notes, round);
    /* memory may have been given back under work that could not be waited for, but not when all went well */
    test_sim_expect_empty(p->notes.device, !round->is_felt && !p->notes.lose_before, round->when, p->notes.call);
}

static void run_plain(const ground *on, loch_device *device, const test_round *after)
{
    test_round round = *after;
    program p = {.ground = on, .notes.device = device};
    program_work(&p);
    program_end(&p);
    check_run(&p, &round);
    if (round.is_felt) fail_msg("after %s: %s gave %s", round.when, round.call, loch_status_name(p.notes.status));
}

static void run_faulted(test_round *round, const void *user)
{
    const ground *on = user;
    program p = {.ground = on};
    CHECK_OK(loch_device_open(on->device, &p.notes.device));
    test_round_begin(round, p.notes.device);
    program_work(&p);
    program_stop_capture(&p);
    program_try_to_free(&p);
    test_round_end(round);
    program_end(&p);
    check_run(&p, round);
    if (round->after % 16 == 0) run_plain(on, p.notes.device, round);
    loch_device_release(p.notes.device);
}

static const ground grounds[] = {
    {"sim:64MiB,granule=64KiB", {.size = sizeof(loch_pool_options), .limit_bytes = LIMIT}},
    {"sim:64MiB,granule=64KiB,alias=off", {.size = sizeof(loch_pool_options), .limit_bytes = LIMIT}},
    {"sim:64MiB,granule=64KiB,async=off", {.size = sizeof(loch_pool_options), .limit_bytes = LIMIT}},
    {"sim:64MiB,virtual=off", {.size = sizeof(loch_pool_options), .limit_bytes = 4 * LIMIT}},
    {"sim:64MiB,granule=64KiB",
     {.size = sizeof(loch_pool_options), .limit_bytes = 4 * LIMIT, .kind = LOCH_MEMORY_PINNED}},
    {"sim:64MiB,granule=64KiB,backed",
     {.size = sizeof(loch_pool_options),
      .limit_bytes = 4 * LIMIT,
      .kind = LOCH_MEMORY_PINNED,
      .waits = LOCH_POOL_WAITS_NONE}},
    {"sim:64MiB,granule=64KiB",
     {.size = sizeof(loch_pool_options), .limit_bytes = 2 * LIMIT, .preset = LOCH_POOL_WHOLE_BLOCKS}},
    {"cpu", {.size = sizeof(loch_pool_options), .limit_bytes = 8 * LIMIT}},
    {"sim:64MiB,granule=64KiB,backed",
     {.size = sizeof(loch_pool_options), .limit_bytes = LIMIT, .wipe = LOCH_POOL_WIPE_FREED}},
    {"sim:64MiB,granule=64KiB",
     {.size = sizeof(loch_pool_options), .limit_bytes = 8 * LIMIT, .captures = LOCH_POOL_CAPTURES_SHARED}},
};

static void sweep(const test_faults *from, const ground *on)
{
    const test_rounds rounds = test_rounds_run(from, on->device, run_faulted, on);
    assert_true(rounds.places > 60 && rounds.felt > 20);
}

/* --- the sources --- */

static void run_initial(test_round *round, const void *user)
{
    const ground *on = user;
    loch_device *device;
    loch_allocator *pool = NULL;
    CHECK_OK(loch_device_open(on->device, &device));
    test_round_begin(round, device);
    const loch_status status = loch_pool_create(device, "initial", &on->options, &pool);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    round->call = "loch_pool_create";
    assert_int_equal(pool == NULL, round->is_felt);
    if (round->is_felt) assert_int_equal(loch_error_get()->status, status);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void a_pool_that_does_not_get_its_initial_memory_leaves_nothing(void **state)
{
    (void)state;
    static const ground on = {"sim:64MiB,granule=64KiB",
                              {.size = sizeof(loch_pool_options), .initial_bytes = LIMIT / 2}};
    const test_rounds calls = test_rounds_run(&test_sim_faults, on.device, run_initial, &on);
    const test_rounds memory = test_rounds_run(&test_host_faults, on.device, run_initial, &on);
    assert_true(calls.felt > 2 && memory.felt > 5);
}

static void a_pool_survives_failing_host_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++)
        sweep(&test_host_faults, &grounds[i]);
    assert_int_equal(test_heap_wrong(), 0);
}

static void a_pool_survives_failing_calls_of_sim(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++)
        if (is_sim(&grounds[i])) sweep(&test_sim_faults, &grounds[i]);
}

/* Any call, not one name alone, fails for good. */
static void a_pool_survives_failing_calls_of_a_driver_from_outside(void **state)
{
    (void)state;
    sweep(&test_driver_faults, &(ground){"faulty:sim:64MiB,granule=64KiB", grounds[0].options});
    sweep(&test_driver_faults, &(ground){"faulty:cpu", {.size = sizeof(loch_pool_options), .limit_bytes = 8 * LIMIT}});
    assert_int_equal(test_faulty_open(), 0);
}

/* Without a fault the program gets to every part of the pool. */
static void the_program_reaches_every_part_of_a_pool(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++) {
        test_round round = {.when = "without a fault"};
        program p = {.ground = &grounds[i]};
        CHECK_OK(loch_device_open(grounds[i].device, &p.notes.device));
        program_work(&p);
        program_end(&p);
        check_run(&p, &round);
        if (round.is_felt) fail_msg("%s: %s gave %s", grounds[i].device, round.call, loch_status_name(p.notes.status));
        if (i == 0) assert_true(p.info.handles_moved > 0 && p.info.waits_on_device > 0 && p.info.handles_released > 0);
        assert_true(p.info.handles_created > 0 && p.notes.steps > 150);
        loch_device_release(p.notes.device);
    }
}

/* Before each step in turn the device is lost: nothing crashes, and everything can be given back. */
static void a_pool_survives_a_device_lost_before_any_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++) {
        if (!is_sim(&grounds[i])) continue;
        uint64_t step = 0, felt = 0;
        for (bool is_reached = true; is_reached; step++) {
            test_round round = {.after = step};
            loch_host_usage before = {.size = sizeof before}, usage = {.size = sizeof usage};
            CHECK_OK(loch_host_get_usage(&before));
            program p = {.ground = &grounds[i], .notes.lose_before = step + 1};
            CHECK_OK(loch_device_open(grounds[i].device, &p.notes.device));
            snprintf(round.when, sizeof round.when, "%.80s, lost before step %llu", grounds[i].device,
                     (unsigned long long)step);
            program_work(&p);
            program_end(&p);
            is_reached = p.notes.steps > step;
            felt += p.notes.status == LOCH_E_DEVICE_LOST;
            check_run(&p, &round);
            loch_device_release(p.notes.device);
            CHECK_OK(loch_host_get_usage(&usage));
            if (usage.blocks != before.blocks) fail_msg("%s: bookkeeping is left", round.when);
        }
        assert_true(step > 150 && felt > step / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_reaches_every_part_of_a_pool),
        cmocka_unit_test(a_pool_that_does_not_get_its_initial_memory_leaves_nothing),
        cmocka_unit_test(a_pool_survives_failing_host_memory),
        cmocka_unit_test(a_pool_survives_failing_calls_of_sim),
        cmocka_unit_test(a_pool_survives_failing_calls_of_a_driver_from_outside),
        cmocka_unit_test(a_pool_survives_a_device_lost_before_any_step),
    };
    return cmocka_run_group_tests_name("a pool while things fail", tests, test_faults_prepare, NULL);
}
