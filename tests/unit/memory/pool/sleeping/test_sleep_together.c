/* SPDX-License-Identifier: MIT */
/* Sleep beside the other things that pools do: children, movable buffers, compaction, sessions. */
#include "unit/memory/pool/child_fixture.h"
#include "tensor_fixture.h"

#define MIB TEST_MIB
#define SIM "sim:256MiB,granule=64KiB,backed"

static const char *const devices[] = {"cpu", SIM, SIM ",alias=off"};
#define DEVICES (sizeof devices / sizeof *devices)

static const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST};

static loch_allocator *make_pool(loch_device *device, size_t limit_bytes)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit_bytes};
    return pool_make(device, &options);
}

static loch_buffer *make_buffer(loch_allocator *pool, size_t bytes, uint64_t seed, loch_tag tag)
{
    const loch_request request = {.size = sizeof request, .tag = tag, .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    char *host = malloc(bytes);
    test_pattern_write(host, bytes, seed);
    CHECK_OK(loch_buffer_create(pool, bytes, &request, &buffer));
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
    CHECK_OK(loch_copy(address, host, bytes));
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
    free(host);
    return buffer;
}

static void expect_buffer(loch_buffer *buffer, uint64_t seed)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    char *host = malloc(bytes);
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
    CHECK_OK(loch_copy(host, address, bytes));
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
    assert_int_equal(test_pattern_differs(host, bytes, seed), bytes);
    free(host);
}

/* A child that sleeps leaves its part to the others, down to its minimum, and has to find room when it wakes. */
static void a_sleeping_child_lends_its_quota_down_to_its_minimum(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *parent = make_pool(device, 32 * MIB);
        loch_allocator *child = child_quota(parent, 4 * MIB, 24 * MIB), *pools[] = {parent, child};
        loch_buffer *mine = make_buffer(child, 20 * MIB, 7, 0);
        void *other;
        const loch_request large = {.size = sizeof large, .bytes = 24 * MIB};
        CHECK_FAILS(loch_allocator_alloc(parent, &large, &other), LIMIT);
        CHECK_OK(loch_pool_sleep(child, &keep, NULL));
        family_expect_whole(pools, 2);
        other = pool_alloc(parent, 24 * MIB);
        family_expect_whole(pools, 2);
        CHECK_FAILS(loch_pool_wake(child, NULL), LIMIT); /* sleeps on */
        CHECK_FAILS(loch_pool_sleep(child, &keep, NULL), BUSY);
        CHECK_OK(loch_free(parent, other)); /* idle in the parent: is taken back from there */
        CHECK_OK(loch_pool_wake(child, NULL));
        family_expect_whole(pools, 2);
        expect_buffer(mine, 7);
        loch_buffer_release(mine);
        loch_allocator_release(child);
        loch_allocator_release(parent);
        loch_device_release(device);
    }
}

/* A range has its memory from its parent, which therefore stays awake; a child may be made while tags sleep. */
static void a_parent_of_a_range_stays_awake(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_tag weights;
        CHECK_OK(loch_tag_create("sleep together", &weights));
        loch_allocator *parent = make_pool(device, 64 * MIB), *child = child_range(parent, 8 * MIB), *second;
        loch_buffer *mine = make_buffer(parent, 8 * MIB, 3, weights);
        CHECK_FAILS(loch_pool_sleep(parent, &keep, NULL), BUSY);
        CHECK_FAILS(loch_pool_sleep(child, &keep, NULL), UNSUPPORTED);
        expect_buffer(mine, 3);
        loch_sleep_options tagged = keep;
        tagged.tag = weights;
        CHECK_OK(loch_pool_sleep(parent, &tagged, NULL)); /* what the child has is not under the tag */
        void *block = pool_alloc(child, MIB);
        second = child_range(parent, 4 * MIB);
        pool_expect_whole(parent);
        CHECK_OK(loch_free(child, block));
        loch_allocator_release(second);
        CHECK_OK(loch_pool_wake(parent, NULL));
        expect_buffer(mine, 3);
        loch_buffer_release(mine);
        loch_allocator_release(child);
        CHECK_OK(loch_pool_sleep(parent, &keep, NULL));
        CHECK_FAILS(child_try(parent, LOCH_CHILD_RANGE, 0, MIB, NULL, &second), BUSY);
        CHECK_OK(loch_pool_wake(parent, NULL));
        loch_allocator_release(parent);
        loch_device_release(device);
    }
}

/* Movable blocks of a sleeping tag stay; others move around them, and all have their contents afterwards. */
static void compaction_moves_around_what_sleeps(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_tag weights;
        CHECK_OK(loch_tag_create("sleep together", &weights));
        loch_allocator *pool = make_pool(device, 32 * MIB);
        loch_buffer *buffers[30] = {NULL};
        for (size_t i = 0; i < 30; i++)
            buffers[i] = make_buffer(pool, MIB - 4096, i, i % 3 ? 0 : weights);
        for (size_t i = 1; i < 30; i += 3)
            loch_buffer_clear(&buffers[i]);
        loch_sleep_options tagged = keep;
        tagged.tag = weights;
        size_t released;
        CHECK_OK(loch_pool_sleep(pool, &tagged, &released));
        assert_true(d == 0 || released > 0); /* granules of 2 MiB are shared with others */
        void *address;
        for (size_t i = 0; i < 30 && d; i += 3)
            CHECK_FAILS(loch_buffer_pin(buffers[i], NULL, &address), BUSY);
        loch_compact_report report = {.size = sizeof report};
        CHECK_OK(loch_pool_compact(pool, NULL, &report));
        pool_expect_whole(pool);
        for (size_t i = 0; i < 30; i += 3)
            if (d) assert_int_equal(loch_buffer_get_generation(buffers[i]), 0);
        for (size_t i = 2; i < 30; i += 3)
            expect_buffer(buffers[i], i);
        loch_buffer_clear(&buffers[3]);
        CHECK_OK(loch_pool_wake(pool, NULL));
        CHECK_OK(loch_pool_compact(pool, NULL, &report));
        pool_expect_whole(pool);
        for (size_t i = 0; i < 30; i++)
            if (buffers[i]) expect_buffer(buffers[i], i);
        CHECK_OK(loch_pool_sleep(pool, &keep, NULL));
        CHECK_FAILS(loch_pool_compact(pool, NULL, &report), BUSY);
        CHECK_OK(loch_pool_wake(pool, NULL));
        for (size_t i = 0; i < 30; i++)
            loch_buffer_release(buffers[i]);
        loch_allocator_release(pool);
        loch_device_release(device);
    }
}

/* A session ends while its blocks sleep. */
static void a_session_may_end_while_its_blocks_sleep(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = make_pool(device, 32 * MIB);
        loch_session *session;
        CHECK_OK(loch_session_begin(pool, "asleep", &session));
        loch_allocator *inside = loch_session_get_allocator(session);
        for (size_t i = 0; i < 8; i++)
            pool_alloc(inside, 100 << 2 * i);
        CHECK_OK(loch_pool_sleep(pool, &keep, NULL));
        const loch_request small = {.size = sizeof small, .bytes = 100};
        void *block;
        CHECK_FAILS(loch_allocator_alloc(inside, &small, &block), BUSY);
        CHECK_OK(loch_session_end(session, NULL, NULL));
        pool_expect_whole(pool);
        assert_int_equal(pool_stats(pool).blocks, 0);
        size_t restored = 1;
        CHECK_OK(loch_pool_wake(pool, &restored));
        assert_int_equal(restored, 0);
        pool_expect_whole(pool);
        loch_allocator_release(pool);
        loch_device_release(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_sleeping_child_lends_its_quota_down_to_its_minimum), TENSOR_TEST(a_parent_of_a_range_stays_awake),
        TENSOR_TEST(compaction_moves_around_what_sleeps), TENSOR_TEST(a_session_may_end_while_its_blocks_sleep)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
