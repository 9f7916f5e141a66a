/* SPDX-License-Identifier: MIT */
/* The direct allocator. The tests named after the original are the bugs of the direct mode that it replaces. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"

/* --- blocks --- */

static void one_driver_call_a_block(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed);
    assert_string_equal(loch_allocator_get_name(direct), "direct");
    assert_string_equal(direct->ops.kind, "direct");
    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
    void *a = wrap_alloc(direct, 1000), *b = wrap_alloc(direct, 1000);
    assert_int_equal(test_call_count(bed->device, "raw_alloc"), 2);
    CHECK_OK(loch_free(direct, a));
    assert_int_equal(test_call_count(bed->device, "raw_free"), 1);
    CHECK_OK(loch_free(direct, b));
    assert_int_equal(test_call_count(bed->device, "raw_free"), 2);
    void *none = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc(direct, 0, &none));
    assert_null(none);
    CHECK_OK(loch_free(direct, NULL));
    loch_allocator_release(direct);
}

static void wrong_frees_are_told_apart(void **state)
{
    const test_bed *bed = wrap_bed(state);
    for (size_t zone = 0; zone <= 100; zone += 100) {
        loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.red_zone_bytes = zone});
        char *block = wrap_alloc(direct, 1000);
        const loch_stats before = wrap_stats(direct);
        loch_block found = {.size = sizeof found};
        CHECK_FAILS(loch_free(direct, block + 1), INTERIOR);
        CHECK_FAILS(loch_free(direct, block + 999), INTERIOR);
        CHECK_FAILS(loch_free(direct, block + (64 << 20)), FOREIGN);
        CHECK_FAILS(loch_free(direct, &found), FOREIGN);
        CHECK_FAILS(loch_allocator_free_sized(direct, block, 999), INVALID);
        CHECK_FAILS(loch_allocator_find(direct, block + 5, &found), INTERIOR);
        CHECK_FAILS(loch_allocator_record_use(direct, block + 5, NULL), INTERIOR);
        if (zone) {
            CHECK_FAILS(loch_free(direct, block - 1), INTERIOR); /* the zones belong to the block */
            CHECK_FAILS(loch_free(direct, block + 1099), INTERIOR);
            CHECK_FAILS(loch_free(direct, block + 1100), FOREIGN);
        }
        const loch_stats after = wrap_stats(direct);
        assert_memory_equal(&before, &after, sizeof before);
        CHECK_OK(loch_allocator_free_sized(direct, block, 1000));
        CHECK_FAILS(loch_free(direct, block), DOUBLE_FREE);
        CHECK_FAILS(loch_allocator_find(direct, block, &found), DOUBLE_FREE);
        loch_allocator_release(direct);
    }
}

static void arguments_are_checked(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = TEST_UNTOUCHED;
    CHECK_FAILS(loch_direct_create(NULL, NULL, NULL, &direct), INVALID);
    assert_null(direct);
    CHECK_FAILS(loch_direct_create(bed->device, NULL, NULL, NULL), INVALID);
    loch_direct_options options = {.size = 1};
    CHECK_FAILS(loch_direct_create(bed->device, NULL, &options, &direct), INVALID);
    options = (loch_direct_options){.size = sizeof options, .kind = LOCH_MEMORY_HOST};
    CHECK_FAILS(loch_direct_create(bed->device, NULL, &options, &direct), INVALID);
    options = (loch_direct_options){.size = sizeof options, .when = (loch_direct_free)7};
    CHECK_FAILS(loch_direct_create(bed->device, NULL, &options, &direct), INVALID);
    options = (loch_direct_options){.size = sizeof options, .red_zone_bytes = SIZE_MAX};
    CHECK_FAILS(loch_direct_create(bed->device, NULL, &options, &direct), INVALID);

    direct = wrap_direct_with(bed, (loch_direct_options){.red_zone_bytes = 64});
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(direct, SIZE_MAX, &block), OVERFLOW);
    CHECK_FAILS(loch_alloc(direct, ((size_t)1 << 47) - 1, &block), OVERFLOW); /* with its zones */
    assert_null(block);
    CHECK_FAILS(loch_direct_free_deferred(NULL, NULL), INVALID);
    loch_allocator *limit;
    CHECK_OK(loch_limit_create(direct, NULL, NULL, &limit));
    CHECK_FAILS(loch_direct_free_deferred(limit, NULL), INVALID);
    loch_allocator_release(limit);
    loch_allocator_release(direct);
}

static void every_kind_of_memory_is_handed_out_or_refused(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const uint32_t needed[] = {0, LOCH_CAN_PINNED, LOCH_CAN_MANAGED};
    for (loch_memory_kind kind = LOCH_MEMORY_DEVICE; kind <= LOCH_MEMORY_MANAGED; kind++) {
        const loch_direct_options options = {
            .size = sizeof options, .kind = kind, .red_zone_bytes = 32, .poison = 0x77};
        loch_allocator *direct;
        if (!test_bed_can(bed, needed[kind])) {
            CHECK_FAILS(loch_direct_create(bed->device, NULL, &options, &direct), UNSUPPORTED);
            continue;
        }
        CHECK_OK(loch_direct_create(bed->device, NULL, &options, &direct));
        void *block = wrap_alloc(direct, 5000);
        loch_address_info info = {.size = sizeof info};
        CHECK_OK(loch_address_query(block, &info));
        assert_int_equal(info.kind, kind);
        const uint32_t bits = loch_allocator_get_attributes(direct).bits;
        const bool is_host = kind == LOCH_MEMORY_PINNED || test_bed_can(bed, LOCH_CAN_HOST_ACCESS);
        assert_int_equal((bits & LOCH_ATTRIBUTE_ON_HOST) != 0, is_host);
        assert_int_equal((bits & LOCH_ATTRIBUTE_GPU_COMPATIBLE) != 0, !test_bed_can(bed, LOCH_CAN_HOST_ACCESS));
        assert_true(bits & LOCH_ATTRIBUTE_TRACK_SIZES);
        CHECK_OK(loch_free(direct, block));
        loch_allocator_release(direct);
    }
}

static void alignments_up_to_two_mebibytes(void **state)
{
    const test_bed *bed = wrap_bed(state);
    for (size_t zone = 0; zone <= 48; zone += 48) {
        loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.red_zone_bytes = zone});
        for (size_t alignment = 1; alignment <= 2 * TEST_MIB; alignment *= 2) {
            const loch_request request = {.size = sizeof request, .bytes = 100, .alignment = alignment};
            void *block;
            CHECK_OK(loch_allocator_alloc(direct, &request, &block));
            assert_int_equal((uintptr_t)block & (alignment - 1), 0);
            CHECK_OK(loch_free(direct, block));
        }
        loch_allocator_release(direct);
    }
}

/* --- a driver that aligns to no more than 64 bytes, as some do --- */

static loch_status stiff_open(const char *arguments, void **self)
{
    (void)arguments;
    *self = NULL;
    return LOCH_OK;
}

static void stiff_close(void *self)
{
    (void)self;
}

static loch_status stiff_get_properties(void *self, loch_device_properties *out)
{
    (void)self;
    out->capabilities = LOCH_CAN_HOST_ACCESS;
    out->total_bytes = TEST_GIB;
    out->alignment_bytes = 64;
    return LOCH_OK;
}

static loch_status stiff_memory_info(void *self, loch_memory_info *out)
{
    (void)self;
    *out = (loch_memory_info){.total_bytes = TEST_GIB, .free_bytes = TEST_GIB};
    return LOCH_OK;
}

static loch_status stiff_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    (void)self;
    if (alignment > 64) return loch_error_set(LOCH_E_UNSUPPORTED, "stiff", 0, "it aligns to 64 bytes");
    if (posix_memalign(out, 64, bytes) == 0) return LOCH_OK;
    return loch_error_set(LOCH_E_DEVICE_MEMORY, "stiff", 0, "no memory for %zu bytes", bytes);
}

static loch_status stiff_raw_free(void *self, void *address, size_t bytes)
{
    (void)self, (void)bytes;
    free(address);
    return LOCH_OK;
}

static loch_status stiff_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes,
                              void *peer, void *stream)
{
    (void)self, (void)direction, (void)peer, (void)stream;
    memmove(to, from, bytes);
    return LOCH_OK;
}

static loch_status stiff_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    (void)self, (void)pattern_bytes, (void)stream;
    memset(to, (int)(pattern & 0xff), bytes);
    return LOCH_OK;
}

static void alignments_hold_over_a_driver_that_aligns_little(void **state)
{
    (void)state;
    const loch_driver driver = {.size = sizeof driver,
                                .name = "stiff",
                                .open = stiff_open,
                                .close = stiff_close,
                                .get_properties = stiff_get_properties,
                                .memory_info = stiff_memory_info,
                                .raw_alloc = stiff_raw_alloc,
                                .raw_free = stiff_raw_free,
                                .copy = stiff_copy,
                                .fill = stiff_fill};
    test_bed bed = {.name = "stiff", .has_data = true};
    const loch_status status = loch_driver_register(&driver); /* once, for all devices of the list */
    assert_true(status == LOCH_OK || status == LOCH_E_EXISTS);
    CHECK_OK(loch_device_open("stiff", &bed.device));
    for (size_t zone = 0; zone <= 48; zone += 48) {
        loch_allocator *direct = wrap_direct_with(&bed, (loch_direct_options){.red_zone_bytes = zone, .poison = 0x55});
        for (size_t alignment = 1; alignment <= 2 * TEST_MIB; alignment *= 2) {
            const loch_request request = {.size = sizeof request, .bytes = 1000, .alignment = alignment};
            void *block;
            CHECK_OK(loch_allocator_alloc(direct, &request, &block));
            assert_int_equal((uintptr_t)block & (alignment - 1), 0);
            memset(block, 1, 1000);
            assert_int_equal(wrap_stats(direct).requested_bytes, 1000);
            CHECK_OK(loch_free(direct, block));
        }
        const loch_request absurd = {.size = sizeof absurd, .bytes = 1, .alignment = (size_t)1 << 40};
        CHECK_FAILS(loch_allocator_alloc(direct, &absurd, &(void *){NULL}), UNSUPPORTED);
        loch_allocator_release(direct);
    }
    loch_device_release(bed.device);
}

/* --- what is known of blocks --- */

static loch_status count_blocks(const loch_block *block, void *user)
{
    size_t *sums = user;
    sums[0]++;
    sums[1] += block->requested_bytes;
    return LOCH_OK;
}

static loch_status stop_at_once(const loch_block *block, void *user)
{
    (void)block, (void)user;
    return LOCH_E_CANCELLED;
}

static void blocks_are_known(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.limit_bytes = 1 << 20, .red_zone_bytes = 8});
    loch_stream *stream = wrap_stream(bed);
    loch_tag tag;
    CHECK_OK(loch_tag_create("direct test", &tag));
    const uint64_t before = loch_host_now_ns();
    const loch_request request = {.size = sizeof request, .bytes = 300, .stream = stream, .tag = tag};
    void *a, *b = wrap_alloc(direct, 700);
    CHECK_OK(loch_allocator_alloc(direct, &request, &a));
    loch_block first = {.size = sizeof first}, second = {.size = sizeof second};
    CHECK_OK(loch_allocator_find(direct, a, &first));
    CHECK_OK(loch_allocator_find(direct, b, &second));
    assert_ptr_equal(first.address, a);
    assert_int_equal(first.requested_bytes, 300);
    assert_true(first.allocated_bytes >= 316);
    assert_true(first.id && second.id && first.id != second.id);
    assert_int_equal(first.tag, tag);
    assert_int_equal(first.stream_id, loch_stream_get_id(stream));
    assert_true(first.time_ns >= before && first.time_ns <= loch_host_now_ns());
    size_t sums[2] = {0, 0};
    CHECK_OK(loch_allocator_walk(direct, count_blocks, sums));
    assert_int_equal(sums[0], 2);
    assert_int_equal(sums[1], 1000);
    CHECK_STATUS(loch_allocator_walk(direct, stop_at_once, NULL), LOCH_E_CANCELLED);

    const loch_stats stats = wrap_stats(direct);
    assert_int_equal(stats.blocks, 2);
    assert_int_equal(stats.requested_bytes, 1000);
    assert_int_equal(stats.limit_bytes, 1 << 20);
    assert_int_equal(stats.reserved_bytes, stats.allocated_bytes);
    assert_int_equal(stats.allocated_bytes, first.allocated_bytes + second.allocated_bytes);
    assert_int_equal(stats.largest_bytes, 700);
    loch_stats of_tag = {.size = sizeof of_tag};
    CHECK_OK(loch_allocator_get_tag_stats(direct, tag, &of_tag));
    assert_int_equal(of_tag.requested_bytes, 300);
    CHECK_OK(loch_free(direct, b));
    CHECK_OK(loch_allocator_reset_stats(direct));
    const loch_stats reset = wrap_stats(direct);
    assert_int_equal(reset.peak_requested_bytes, 300);
    assert_int_equal(reset.peak_reserved_bytes, first.allocated_bytes);
    assert_int_equal(reset.allocs, 0);
    CHECK_OK(loch_free(direct, a));
    loch_stream_close(stream);
    loch_allocator_release(direct);
}

static void blocks_outlive_the_last_reference(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED});
    void *a = wrap_alloc(direct, 100), *b = wrap_alloc(direct, 100);
    loch_allocator_release(direct);
    CHECK_OK(loch_free(direct, a));
    CHECK_FAILS(loch_free(direct, a), DOUBLE_FREE);
    CHECK_OK(loch_free(direct, b)); /* the end: the bed sees what is left */
}

/* --- the limit --- */

static void the_limit_is_exact(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.limit_bytes = 1000, .red_zone_bytes = 64});
    void *a = wrap_alloc(direct, 999), *b = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(direct, 2, &b), LIMIT);
    assert_null(b);
    CHECK_OK(loch_alloc(direct, 1, &b));
    CHECK_FAILS(loch_alloc(direct, 1, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_free(direct, a));
    CHECK_FAILS(loch_alloc(direct, 1000, &a), LIMIT);
    CHECK_OK(loch_alloc(direct, 999, &a));
    assert_int_equal(wrap_stats(direct).failures, 3);
    CHECK_OK(loch_free(direct, a));
    CHECK_OK(loch_free(direct, b));
    loch_allocator_release(direct);
}

static void a_driver_that_fails_leaves_the_limit_alone(void **state)
{
    const test_bed *bed = wrap_bed(state);
    if (!bed->is_sim) return;
    loch_allocator *direct =
        wrap_direct_with(bed, (loch_direct_options){.limit_bytes = 1000, .red_zone_bytes = 16, .poison = 1});
    const char *calls[] = {"raw_alloc", "fill"};
    void *block = TEST_UNTOUCHED;
    for (size_t i = 0; i < 2; i++) {
        for (uint64_t after = 0; after <= 2 * i; after++) {
            const loch_sim_fault fault = {.size = sizeof fault, .call = calls[i], .after = after};
            CHECK_OK(loch_sim_set_fault(bed->device, &fault));
            CHECK_FAILS_SET(loch_alloc(direct, 1000, &block), TEST_SET(DEVICE_MEMORY) | TEST_SET(DRIVER));
            assert_null(block);
            CHECK_OK(loch_sim_set_fault(bed->device, NULL));
            assert_int_equal(wrap_stats(direct).reserved_bytes, 0);
        }
    }
    CHECK_OK(loch_alloc(direct, 1000, &block));
    CHECK_OK(loch_free(direct, block));
    loch_allocator_release(direct);
}

/* --- threads --- */

#define THREADS 8

typedef struct worker {
    loch_allocator *direct;
    loch_stream *stream, *other;
    uint64_t seed;
    _Atomic size_t *in_use;
    _Atomic size_t *highest;
    bool is_deferred;
    const char *failed;
} worker;

static void *work(void *user)
{
    worker *it = user;
    test_random random = {it->seed};
    void *blocks[16] = {NULL};
    size_t sizes[16] = {0};
    for (int round = 0; round < 400; round++) {
        const size_t at = test_random_below(&random, 16);
        if (blocks[at]) {
            atomic_fetch_sub(it->in_use, sizes[at]);
            if (loch_free(it->direct, blocks[at]) != LOCH_OK) it->failed = "free";
            blocks[at] = NULL;
        } else {
            sizes[at] = 1 + test_random_below(&random, 4000);
            const loch_request request = {.size = sizeof request, .bytes = sizes[at], .stream = it->stream};
            const loch_status status = loch_allocator_alloc(it->direct, &request, &blocks[at]);
            if (status != LOCH_OK && status != LOCH_E_LIMIT) it->failed = "alloc";
            if (status != LOCH_OK) continue;
            const size_t now = atomic_fetch_add(it->in_use, sizes[at]) + sizes[at];
            size_t seen = atomic_load(it->highest);
            while (now > seen && !atomic_compare_exchange_weak(it->highest, &seen, now))
                continue;
            if (round % 3 == 0 && loch_allocator_record_use(it->direct, blocks[at], it->other) != LOCH_OK)
                it->failed = "record_use";
        }
        if (it->is_deferred && round % 50 == 0 && loch_direct_free_deferred(it->direct, NULL) != LOCH_OK)
            it->failed = "end_session";
    }
    for (size_t i = 0; i < 16; i++) {
        if (blocks[i]) atomic_fetch_sub(it->in_use, sizes[i]);
        if (loch_free(it->direct, blocks[i]) != LOCH_OK) it->failed = "free";
    }
    return NULL;
}

static void run_threads(const test_bed *bed, loch_direct_options options)
{
    const uint64_t seed = test_seed(31);
    const size_t limit = 100000;
    options.limit_bytes = limit;
    loch_allocator *direct = wrap_direct_with(bed, options);
    _Atomic size_t in_use = 0, highest = 0;
    worker workers[THREADS];
    loch_stream *streams[THREADS + 1];
    for (size_t i = 0; i <= THREADS; i++)
        streams[i] = wrap_stream(bed);
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.direct = direct,
                              .stream = streams[i],
                              .other = streams[i + 1],
                              .seed = seed + i,
                              .in_use = &in_use,
                              .highest = &highest,
                              .is_deferred = options.when == LOCH_DIRECT_FREE_DEFERRED};
    TEST_THREADS_RUN(work, workers);
    for (size_t i = 0; i < THREADS; i++)
        if (workers[i].failed) fail_msg("thread %zu: %s", i, workers[i].failed);
    assert_true(atomic_load(&highest) <= limit);
    CHECK_OK(loch_direct_free_deferred(direct, NULL));
    const loch_stats stats = wrap_stats(direct);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.reserved_bytes, 0);
    assert_int_equal(stats.allocs, stats.frees);
    void *all = wrap_alloc(direct, limit); /* every byte of the limit has come back */
    CHECK_OK(loch_free(direct, all));
    for (size_t i = 0; i <= THREADS; i++)
        loch_stream_close(streams[i]);
    loch_allocator_release(direct);
}

static void eight_threads_that_free_at_once_keep_blocks_apart(void **state)
{
    run_threads(wrap_bed(state), (loch_direct_options){.red_zone_bytes = 32, .poison = 0x11});
}

static void eight_threads_that_defer_frees_keep_blocks_apart(void **state)
{
    run_threads(wrap_bed(state), (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED, .red_zone_bytes = 32});
}

/* --- the bugs of the original --- */

/* 4096 bytes were handed out under a limit of 1000. */
static void original_did_not_check_its_limit(void **state)
{
    loch_allocator *direct = wrap_direct_with(wrap_bed(state), (loch_direct_options){.limit_bytes = 1000});
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(direct, 4096, &block), LIMIT);
    assert_null(block);
    loch_allocator_release(direct);
}

static void original_had_no_lock(void **state)
{
    run_threads(wrap_bed(state), (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED});
}

/* The destructor left the list of deferred frees; the bed sees what is left on a device. */
static void original_leaked_its_frees_at_the_end(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct_with(
        bed, (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED, .red_zone_bytes = 64, .poison = 0x33});
    loch_stream *stream = wrap_stream(bed);
    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
    for (size_t i = 0; i < 3; i++) {
        void *block = wrap_alloc_on(direct, 1000, stream);
        wrap_kernel(bed, stream, block, 1000);
        CHECK_OK(loch_free(direct, block));
    }
    assert_int_equal(test_call_count(bed->device, "raw_free"), 0);
    loch_allocator_release(direct);
    assert_int_equal(test_call_count(bed->device, "raw_free"), 3);
    loch_stream_close(stream);
}

/* Sessions were never ended, so device memory only grew. Here one call ends a session, and with the default options
 * nothing is deferred. */
static void original_never_ended_its_session(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed);
    for (size_t i = 0; i < 10; i++) {
        void *block = wrap_alloc(direct, TEST_MIB);
        CHECK_OK(loch_free(direct, block));
        assert_int_equal(wrap_stats(direct).reserved_bytes, 0);
    }
    assert_int_equal(wrap_stats(direct).peak_reserved_bytes, TEST_MIB);
    loch_allocator_release(direct);
}

static void original_wasted_a_move_buffer(void **state)
{
    const test_bed *bed = wrap_bed(state);
    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
    loch_allocator *direct = wrap_direct(bed);
    assert_int_equal(test_call_count(bed->device, "raw_alloc"), 0);
    void *block = wrap_alloc(direct, 4096);
    assert_int_equal(wrap_stats(direct).reserved_bytes, 4096);
    CHECK_OK(loch_free(direct, block));
    loch_allocator_release(direct);
}

/* A part of a direct allocator with a limit of its own, that may end before or after it. */
static void original_could_not_have_child_pools(void **state)
{
    loch_allocator *direct = wrap_direct_with(wrap_bed(state), (loch_direct_options){.limit_bytes = 10000}), *child;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 4000};
    CHECK_OK(loch_limit_create(direct, "child", &options, &child));
    void *a = wrap_alloc(child, 4000), *b;
    CHECK_FAILS(loch_alloc(child, 1, &b), LIMIT);
    b = wrap_alloc(direct, 6000);
    CHECK_FAILS(loch_alloc(direct, 1, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_free(direct, b));
    loch_allocator_release(direct);
    CHECK_OK(loch_free(child, a));
    loch_allocator_release(child);
}

/* Rounding up was ignored for blocks of at most 4096 bytes. Here it holds at any size (test_round.c), and so does the
 * alignment. */
static void original_ignored_round_up_of_small_blocks(void **state)
{
    loch_allocator *direct = wrap_direct(wrap_bed(state));
    for (size_t bytes = 1; bytes <= 8192; bytes *= 2) {
        const loch_request request = {.size = sizeof request, .bytes = bytes, .alignment = 4096};
        void *block;
        CHECK_OK(loch_allocator_alloc(direct, &request, &block));
        assert_int_equal((uintptr_t)block % 4096, 0);
        CHECK_OK(loch_free(direct, block));
    }
    loch_allocator_release(direct);
}

/* --- failing host allocations --- */

static loch_status use_it(const test_bed *bed, loch_allocator *direct, loch_stream *stream)
{
    void *a = NULL, *b = NULL;
    const loch_request request = {.size = sizeof request, .bytes = 3000, .stream = stream};
    loch_status status = loch_allocator_alloc(direct, &request, &a);
    if (status == LOCH_OK) status = loch_allocator_record_use(direct, a, loch_stream_get_default(bed->device));
    if (status == LOCH_OK) status = loch_alloc(direct, 100, &b);
    TEST_BACK(loch_free(direct, a));
    TEST_BACK(loch_free(direct, b));
    TEST_BACK(loch_direct_free_deferred(direct, NULL));
    return status;
}

static loch_status scenario(const void *user)
{
    const test_bed *bed = user;
    loch_status status = LOCH_OK;
    for (int deferred = 0; status == LOCH_OK && deferred < 2; deferred++) {
        const loch_direct_options options = {.size = sizeof options,
                                             .when = deferred ? LOCH_DIRECT_FREE_DEFERRED : LOCH_DIRECT_FREE_NOW,
                                             .red_zone_bytes = 2000,
                                             .poison = 0x44};
        loch_allocator *direct = NULL;
        loch_stream *stream = NULL;
        status = loch_direct_create(bed->device, NULL, &options, &direct);
        if (status == LOCH_OK) status = loch_stream_create(bed->device, NULL, &stream);
        if (status == LOCH_OK) status = use_it(bed, direct, stream);
        loch_stream_close(stream);
        loch_allocator_release(direct);
    }
    return status;
}

static void the_direct_allocator_survives_failing_host_memory(void **state)
{
    test_host_sweep(scenario, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_driver_call_a_block),
        cmocka_unit_test(wrong_frees_are_told_apart),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(every_kind_of_memory_is_handed_out_or_refused),
        cmocka_unit_test(alignments_up_to_two_mebibytes),
        cmocka_unit_test(alignments_hold_over_a_driver_that_aligns_little),
        cmocka_unit_test(blocks_are_known),
        cmocka_unit_test(blocks_outlive_the_last_reference),
        cmocka_unit_test(the_limit_is_exact),
        cmocka_unit_test(a_driver_that_fails_leaves_the_limit_alone),
        cmocka_unit_test(eight_threads_that_free_at_once_keep_blocks_apart),
        cmocka_unit_test(eight_threads_that_defer_frees_keep_blocks_apart),
        cmocka_unit_test(original_did_not_check_its_limit),
        cmocka_unit_test(original_had_no_lock),
        cmocka_unit_test(original_leaked_its_frees_at_the_end),
        cmocka_unit_test(original_never_ended_its_session),
        cmocka_unit_test(original_wasted_a_move_buffer),
        cmocka_unit_test(original_could_not_have_child_pools),
        cmocka_unit_test(original_ignored_round_up_of_small_blocks),
        cmocka_unit_test(the_direct_allocator_survives_failing_host_memory),
    };
    return WRAP_RUN(tests);
}
