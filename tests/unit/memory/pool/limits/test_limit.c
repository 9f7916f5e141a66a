/* SPDX-License-Identifier: MIT */
/* When memory is short: the three reasons are told apart, the sentence has the figures, and the pool is whole after
 * each; siblings and pressure functions help; a device of any capacity is never overdrawn. */
#include "kit/text.h"
#include "pool_fixture.h"

#define MIB TEST_MIB

static void expect_number(size_t number)
{
    const lochi_size size = lochi_size_of(number);
    const char *text = size.text;
    if (!strstr(loch_error_get()->sentence, text)) fail_msg("no %s in: %s", text, loch_error_get()->sentence);
}

/* After a failure the pool is whole and serves what fits. */
static void expect_usable(loch_allocator *pool, size_t bytes)
{
    pool_expect_whole(pool);
    void *block = pool_alloc(pool, bytes);
    CHECK_OK(loch_free(pool, block));
    pool_expect_whole(pool);
}

static void a_pool_takes_its_memory_at_creation_if_told_to(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed", "sim:256MiB,virtual=off,backed"};
    for (size_t d = 0; d < 3; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = NULL, *child = NULL, *none = TEST_UNTOUCHED;
        CHECK_OK(loch_pool_create(device, "all", LOCH_OPTIONS(pool, .limit_bytes = 32 * MIB, .initial_bytes = 32 * MIB),
                                  &pool));
        loch_pool_info info = LOCH_SIZED(loch_pool_info);
        CHECK_OK(loch_pool_get_info(pool, &info));
        assert_int_equal(info.reserved_bytes, 32 * MIB);
        assert_int_equal(info.used_bytes, 0);
        assert_int_equal(loch_stats_of(pool).allocs + loch_stats_of(pool).peak_blocks, 0);
        expect_usable(pool, 32 * MIB);
        CHECK_FAILS(
            loch_pool_create(device, NULL, LOCH_OPTIONS(pool, .limit_bytes = MIB, .initial_bytes = 32 * MIB), &none),
            LIMIT);
        assert_null(none);
        CHECK_FAILS(
            loch_pool_create(device, NULL, LOCH_OPTIONS(pool, .idle_bytes = MIB, .initial_bytes = 32 * MIB), &none),
            INVALID);
        if (d) { /* a limit that the device does not have is refused at creation */
            const size_t most = 512 * MIB;
            CHECK_FAILS(
                loch_pool_create(device, NULL, LOCH_OPTIONS(pool, .limit_bytes = most, .initial_bytes = most), &none),
                DEVICE_MEMORY);
            assert_null(none);
        }
        loch_allocator_release(pool);
        CHECK_OK(loch_pool_create(device, NULL, NULL, &pool));
        const loch_pool_options own = LOCH_SIZED(loch_pool_options, .initial_bytes = 4 * MIB);
        CHECK_OK(loch_pool_create_child(pool, NULL, LOCH_OPTIONS(child, .pool = &own), &child));
        CHECK_OK(loch_pool_get_info(child, &info));
        assert_true(info.reserved_bytes >= 4 * MIB);
        loch_allocator_release(child);
        loch_allocator_release(pool);
        loch_device_release(device);
    }
}

static void a_limit_is_exact_and_named_in_the_sentence(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed", "sim:256MiB,virtual=off,backed",
                                          "sim:256MiB,id=1"};
    for (size_t d = 0; d < 4; d++) {
        loch_device *device = sim_open(devices[d]);
        const loch_pool_options options = {
            .size = sizeof options, .limit_bytes = 32 * MIB, .kind = d == 3 ? LOCH_MEMORY_PINNED : LOCH_MEMORY_DEVICE};
        loch_allocator *pool = pool_make(device, &options);
        void *first = pool_alloc(pool, 20 * MIB), *second = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc(pool, 20 * MIB, &second), LIMIT);
        assert_null(second);
        expect_number(20 * MIB);
        expect_number(32 * MIB);
        CHECK_FAILS(loch_alloc(pool, 64 * MIB, &second), LIMIT);
        expect_number(64 * MIB);
        assert_true(pool_info(pool).reserved_bytes <= 32 * MIB);
        assert_int_equal(pool_stats(pool).limit_bytes, 32 * MIB);
        expect_usable(pool, 8 * MIB);
        assert_int_equal(pool_stats(pool).failures, 2);
        CHECK_OK(loch_free(pool, first));
        second = pool_alloc(pool, 30 * MIB); /* another size than was there before */
        CHECK_OK(loch_free(pool, second));
        assert_true(pool_info(pool).peak_reserved_bytes <= 32 * MIB);
        pool_end(pool, device);
    }
}

/* Memory comes in whole granules, so a limit below one leaves nothing: that is the limit's doing. */
static void a_limit_below_a_granule_leaves_nothing(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB,backed", "sim:256MiB,virtual=off,backed"};
    for (size_t d = 0; d < 3; d++) {
        loch_device *device = sim_open(devices[d]);
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = MIB};
        loch_allocator *pool = pool_make(device, &options);
        void *block = TEST_UNTOUCHED;
        static const size_t sizes[] = {1, 100 * TEST_KIB, MIB, 3 * MIB};
        for (size_t i = 0; i < 4; i++) {
            CHECK_FAILS(loch_alloc(pool, sizes[i], &block), LIMIT);
            assert_null(block);
            assert_non_null(strstr(loch_error_get()->sentence, "can never fit: the limit of pool \"pool\" is 1 MiB"));
            assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
        }
        CHECK_OK(loch_pool_set_limit(pool, 5 * MIB)); /* two granules and a half */
        void *most = pool_alloc(pool, 4 * MIB);
        CHECK_FAILS(loch_alloc(pool, 600 * TEST_KIB, &block), LIMIT);
        assert_non_null(strstr(loch_error_get()->sentence, "limit of 5 MiB (4 MiB in use)"));
        CHECK_OK(loch_free(pool, most));
        pool_end(pool, device);
    }
}

/* The sentence names the pool whose limit it is, which may be a parent. */
static void the_sentence_names_the_pool_whose_limit_it_is(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,backed");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    loch_allocator *parent, *child, *tenant;
    CHECK_OK(loch_pool_create(device, "server", &options, &parent));
    const loch_child_options free = {.size = sizeof free}, capped = {.size = sizeof capped, .limit_bytes = 16 * MIB};
    CHECK_OK(loch_pool_create_child(parent, "model", &free, &child));
    CHECK_OK(loch_pool_create_child(parent, "tenant-a", &capped, &tenant));
    void *held = pool_alloc(tenant, 16 * MIB), *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(tenant, 8 * MIB, &block), LIMIT);
    assert_non_null(strstr(loch_error_get()->sentence, "pool \"tenant-a\" is at its limit of 16 MiB (16 MiB in use"));
    CHECK_FAILS(loch_alloc(child, 60 * MIB, &block), LIMIT);
    assert_non_null(strstr(loch_error_get()->sentence, "\"server\" is at its limit of 64 MiB (16 MiB in use"));
    assert_non_null(strstr(loch_error_get()->sentence, "for pool \"model\""));
    CHECK_OK(loch_free(tenant, held));
    loch_allocator_release(tenant);
    loch_allocator_release(child);
    pool_end(parent, device);
}

/* A request that other pools made room for has not failed: it was tried again. */
static void a_request_that_was_served_at_last_is_a_retry_and_no_failure(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *pool = pool_make(device, NULL), *other = pool_make(device, NULL);
    void *block = pool_alloc(other, 40 * MIB), *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(pool, 60 * MIB, &none), DEVICE_MEMORY);
    assert_int_equal(pool_stats(pool).failures, 1);
    assert_int_equal(pool_stats(pool).retries, 0); /* no other pool had free memory */
    CHECK_OK(loch_free(other, block));
    block = pool_alloc(pool, 60 * MIB);
    assert_int_equal(pool_stats(pool).failures, 1);
    assert_int_equal(pool_stats(pool).retries, 1);
    assert_int_equal(pool_stats(other).failures, 0);
    CHECK_OK(loch_free(pool, block));
    CHECK_OK(loch_allocator_reset_stats(pool));
    assert_int_equal(pool_stats(pool).failures, 0);
    assert_int_equal(pool_stats(pool).retries, 0);
    pool_expect_empty(other);
    loch_allocator_release(other);
    pool_end(pool, device);
}

/* Enough bytes, in pieces: raw memory cannot be mapped elsewhere. */
static void fragmented_raw_memory_is_told_as_such(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,virtual=off,backed");
    loch_allocator *pool = pool_make(device, NULL);
    enum { COUNT = 64 };
    void *blocks[COUNT];
    size_t count = 0;
    while (count < COUNT && loch_alloc(pool, MIB, &blocks[count]) == LOCH_OK)
        count++;
    assert_true(count >= 32);
    for (size_t i = 0; i < count; i += 2)
        CHECK_OK(loch_free(pool, blocks[i]));
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(pool, 8 * MIB, &block), FRAGMENTED);
    assert_null(block);
    expect_number(8 * MIB);
    expect_number(pool_info(pool).largest_free_bytes);
    assert_true(pool_info(pool).largest_free_bytes < 8 * MIB);
    assert_true(pool_info(pool).free_bytes >= 8 * MIB);
    expect_usable(pool, MIB);
    for (size_t i = 1; i < count; i += 2)
        CHECK_OK(loch_free(pool, blocks[i]));
    expect_usable(pool, 8 * MIB);
    pool_end_sim(pool, device);
}

/* Memory in pieces, with addresses to map it at. */
static void fragmented_virtual_memory_is_moved(void **state)
{
    (void)state;
    static const char *const devices[] = {"sim:64MiB,granule=64KiB,backed",
                                          "sim:64MiB,id=1,granule=64KiB,backed,alias=off"};
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        enum { COUNT = 64 };
        char *blocks[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = pool_alloc(pool, MIB);
            memset(blocks[i], (int)i, MIB);
        }
        assert_int_equal(pool_info(pool).reserved_bytes, 64 * MIB);
        for (size_t i = 0; i < COUNT; i += 2)
            CHECK_OK(loch_free(pool, blocks[i]));
        char *block = pool_alloc(pool, 32 * MIB);
        memset(block, 0xff, 32 * MIB);
        pool_expect_whole(pool);
        assert_true(pool_info(pool).handles_moved > 0);
        assert_int_equal(sim_stats(device).physical_bytes, 64 * MIB);
        for (size_t i = 1; i < COUNT; i += 2) { /* none of theirs was moved under it */
            for (size_t at = 0; at < MIB; at += 4096)
                assert_int_equal((unsigned char)blocks[i][at], i);
            CHECK_OK(loch_free(pool, blocks[i]));
        }
        CHECK_OK(loch_free(pool, block));
        pool_end_sim(pool, device);
    }
}

static void a_full_device_is_told_as_such(void **state)
{
    (void)state;
    for (size_t limit = 0; limit < 2; limit++) { /* a limit that leaves room is not the reason */
        loch_device *device = sim_open("sim:64MiB,granule=2MiB,backed");
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit * TEST_GIB};
        loch_allocator *pool = pool_make(device, &options);
        void *first = pool_alloc(pool, 40 * MIB), *second = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc(pool, 30 * MIB, &second), DEVICE_MEMORY);
        assert_null(second);
        expect_number(30 * MIB);
        expect_number(40 * MIB);
        expect_usable(pool, 20 * MIB);
        CHECK_OK(loch_free(pool, first));
        expect_usable(pool, 62 * MIB);
        pool_end_sim(pool, device);
    }
}

/* A block that fits is found, however many near it in size do not. */
static void the_one_that_fits_is_found(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,virtual=off");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 128 * MIB, .handle_bytes = 128 * MIB};
    loch_allocator *pool = pool_make(device, &options);
    enum { COUNT = 60 };
    void *blocks[COUNT], *walls[COUNT];
    for (size_t i = 0; i < COUNT; i++) { /* all but the first are a little too small, and of the same bin */
        blocks[i] = pool_alloc(pool, MIB + (i ? 512 : 4096));
        walls[i] = pool_alloc(pool, 300 * TEST_KIB);
    }
    void *rest[64];
    size_t count = 0;
    while (loch_alloc(pool, MIB, &rest[count]) == LOCH_OK)
        count++;
    for (size_t i = 0; i < COUNT; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    void *block;
    CHECK_OK(loch_alloc(pool, MIB + 4096, &block));
    assert_ptr_equal(block, blocks[0]);
    CHECK_OK(loch_free(pool, block));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_OK(loch_free(pool, walls[i]));
    while (count)
        CHECK_OK(loch_free(pool, rest[--count]));
    pool_end_sim(pool, device);
}

/* --- help from others --- */

static void a_sibling_gives_back(void **state)
{
    (void)state;
    for (size_t limit = 0; limit < 2; limit++) {
        loch_device *device = sim_open("sim:64MiB,granule=2MiB,backed");
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit * TEST_GIB};
        loch_allocator *pool = pool_make(device, &options), *sibling = pool_make(device, &options);
        void *kept = pool_alloc(sibling, 4 * MIB), *cached = pool_alloc(sibling, 40 * MIB);
        memset(kept, 7, 4 * MIB);
        CHECK_OK(loch_free(sibling, cached));
        assert_true(pool_info(sibling).reserved_bytes >= 44 * MIB);
        void *block = pool_alloc(pool, 56 * MIB);
        assert_true(pool_info(sibling).reserved_bytes <= 8 * MIB);
        pool_expect_whole(sibling);
        assert_int_equal(((char *)kept)[4 * MIB - 1], 7);
        CHECK_OK(loch_free(sibling, kept));
        CHECK_OK(loch_free(pool, block));
        pool_expect_empty(sibling);
        loch_allocator_release(sibling);
        pool_end_sim(pool, device);
    }
}

/* What this pool has is enough, but in pieces. */
static void a_sibling_gives_back_to_a_fragmented_one(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,virtual=off");
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = 32 * MIB};
    loch_allocator *pool = pool_make(device, &options), *sibling = pool_make(device, &options);
    void *front = pool_alloc(pool, 10 * MIB), *wall = pool_alloc(pool, 4 * MIB), *back = pool_alloc(pool, 10 * MIB);
    CHECK_OK(loch_free(sibling, pool_alloc(sibling, 20 * MIB)));
    CHECK_OK(loch_free(pool, front));
    CHECK_OK(loch_free(pool, back));
    void *block = pool_alloc(pool, 20 * MIB);
    assert_int_equal(pool_info(sibling).reserved_bytes, 0);
    CHECK_OK(loch_free(pool, block));
    CHECK_OK(loch_free(pool, wall));
    loch_allocator_release(sibling);
    pool_end_sim(pool, device);
}

typedef struct helper {
    loch_allocator *pool;
    void *block;
    size_t calls, bytes;
} helper;

static size_t help(loch_allocator *allocator, size_t bytes, void *user)
{
    helper *h = user;
    assert_ptr_equal(allocator, h->pool);
    h->calls++;
    h->bytes = bytes;
    if (!h->block) return 0;
    CHECK_OK(loch_free(h->pool, h->block));
    h->block = NULL;
    return 40 * MIB;
}

static void pressure_functions_are_asked(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=2MiB");
    loch_allocator *pool = pool_make(device, NULL);
    helper h = {.pool = pool, .block = pool_alloc(pool, 40 * MIB)};
    CHECK_OK(loch_allocator_add_pressure(pool, help, &h));
    void *block = TEST_UNTOUCHED;
    const loch_request request = {.size = sizeof request, .bytes = 50 * MIB, .flags = LOCH_ALLOC_NO_RETRY};
    CHECK_FAILS(loch_allocator_alloc(pool, &request, &block), DEVICE_MEMORY);
    assert_int_equal(h.calls, 0);
    block = pool_alloc(pool, 50 * MIB);
    assert_int_equal(h.calls, 1);
    assert_true(h.bytes >= 50 * MIB);
    assert_null(h.block);
    CHECK_FAILS(loch_alloc(pool, 50 * MIB, &h.block), DEVICE_MEMORY); /* it has nothing more */
    assert_true(h.calls > 1);
    CHECK_OK(loch_allocator_remove_pressure(pool, help, &h));
    CHECK_OK(loch_free(pool, block));
    pool_end_sim(pool, device);
}

/* A request that is not retried still gets what a pool does by itself: it takes unused memory of another pool. */
static void one_attempt_includes_memory_of_other_pools(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=2MiB");
    loch_allocator *pool = pool_make(device, NULL), *other = pool_make(device, NULL);
    const loch_request request = {.size = sizeof request, .bytes = 50 * MIB, .flags = LOCH_ALLOC_NO_RETRY};
    void *block;
    CHECK_OK(loch_free(other, pool_alloc(other, 40 * MIB))); /* cached there */
    CHECK_OK(loch_allocator_alloc(pool, &request, &block));
    assert_int_equal(pool_info(other).reserved_bytes, 0);
    CHECK_OK(loch_free(pool, block));
    loch_allocator_release(other);
    pool_end_sim(pool, device);
}

/* --- any capacity --- */

/* Runs one sequence on a device of so many granules. */
static void run_with_capacity(size_t granules, const char *more, const loch_pool_options *options)
{
    char name[96];
    snprintf(name, sizeof name, "sim:%zuKiB,granule=64KiB%s", granules * 64, more);
    loch_device *device = sim_open(name);
    loch_stream *streams[] = {NULL, sim_stream(device, LOCH_STREAM_INDEPENDENT)};
    loch_allocator *pool = pool_make(device, options);
    test_random random = {17};
    void *blocks[24] = {NULL};
    for (int i = 0; i < 200; i++) {
        const size_t slot = test_random_below(&random, 24), bits = test_random_below(&random, 21);
        const size_t bytes = ((size_t)1 << bits) + test_random_below(&random, (size_t)1 << bits);
        loch_stream *stream = streams[test_random_below(&random, 2)];
        if (blocks[slot]) {
            CHECK_OK(loch_free(pool, blocks[slot]));
            blocks[slot] = NULL;
            continue;
        }
        const loch_status status = pool_try_alloc(pool, bytes, 0, stream, &blocks[slot]);
        if (status != LOCH_OK) {
            if (!(POOL_SHORT & 1u << status)) fail_msg("%s: %s", name, loch_error_get()->sentence);
            const char *wrong = pool_check(pool);
            if (wrong) fail_msg("%s: %s", name, wrong);
        } else {
            CHECK_OK(sim_writes(stream ? stream : loch_stream_get_default(device), blocks[slot], bytes));
        }
    }
    const loch_sim_stats stats = sim_stats(device);
    assert_true(stats.physical_peak_bytes <= granules * 64 * TEST_KIB);
    if (options) assert_true(stats.physical_peak_bytes <= options->limit_bytes);
    for (size_t i = 0; i < 24; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    loch_stream_close(streams[1]);
    pool_end_sim(pool, device);
}

static void a_device_of_any_capacity_is_never_overdrawn(void **state)
{
    (void)state;
    for (size_t granules = 1; granules < 160; granules += granules < 40 ? 1 : 7) {
        run_with_capacity(granules, "", NULL);
        run_with_capacity(granules, ",alias=off", NULL);
    }
    for (size_t granules = 32; granules < 320; granules += 16)
        run_with_capacity(granules, ",virtual=off", NULL);
}

static void a_limit_of_any_size_is_never_exceeded(void **state)
{
    (void)state;
    for (size_t granules = 1; granules < 160; granules += granules < 40 ? 1 : 7) {
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = granules * 64 * TEST_KIB + granules};
        run_with_capacity(400, "", &options);
        run_with_capacity(400, ",id=2,virtual=off", &options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_pool_takes_its_memory_at_creation_if_told_to),
        POOL_TEST(a_limit_is_exact_and_named_in_the_sentence),
        POOL_TEST(a_limit_below_a_granule_leaves_nothing),
        POOL_TEST(the_sentence_names_the_pool_whose_limit_it_is),
        POOL_TEST(a_request_that_was_served_at_last_is_a_retry_and_no_failure),
        POOL_TEST(fragmented_raw_memory_is_told_as_such),
        POOL_TEST(fragmented_virtual_memory_is_moved),
        POOL_TEST(a_full_device_is_told_as_such),
        POOL_TEST(the_one_that_fits_is_found),
        POOL_TEST(a_sibling_gives_back),
        POOL_TEST(a_sibling_gives_back_to_a_fragmented_one),
        POOL_TEST(pressure_functions_are_asked),
        POOL_TEST(one_attempt_includes_memory_of_other_pools),
        POOL_TEST(a_device_of_any_capacity_is_never_overdrawn),
        POOL_TEST(a_limit_of_any_size_is_never_exceeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
