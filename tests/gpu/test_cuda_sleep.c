/* SPDX-License-Identifier: MIT */
/* Pools that sleep and wake on a real GPU: contents come back at their addresses, the device has the memory meanwhile,
 * and prints how fast that is beside copies (`bench/core sleep` measures it).
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("sim:1GiB,backed" tries the program itself); nothing is timed there. */
#include "memory/pool/report/check.h"
#include "double.h"

#define HANDLE (64 * TEST_MIB)
#define BYTES (8 * TEST_GIB)
#define BLOCKS_MAX (BYTES / HANDLE)
#define ROUNDS 5
#define SMALL 48

static const char *device_name = "cuda:0";
static loch_device *device;
static char *pattern, *host; /* HANDLE each */

static void expect_whole(loch_allocator *pool)
{
    const char *wrong = lochi_pool_check(lochi_pool_of(pool));
    if (wrong) fail_msg("%s", wrong);
}

static size_t free_bytes(void)
{
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_calculate_memory(device, &info));
    return info.free_bytes;
}

static loch_allocator *pool_create(loch_memory_kind kind)
{
    const loch_pool_options options = {.size = sizeof options, .kind = kind, .handle_bytes = HANDLE};
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(device, "sleeper", &options, &pool));
    return pool;
}

/* --- contents --- */

static void put(void *block, size_t bytes, uint64_t stamp)
{
    memcpy(host, pattern, bytes);
    memcpy(host, &stamp, bytes < sizeof stamp ? bytes : sizeof stamp);
    CHECK_OK(loch_copy(block, host, bytes));
}

static void expect(const void *block, size_t bytes, uint64_t stamp)
{
    CHECK_OK(loch_copy(host, block, bytes));
    const size_t stamped = bytes < sizeof stamp ? bytes : sizeof stamp;
    if (memcmp(host, &stamp, stamped) != 0 || memcmp(host + stamped, pattern + stamped, bytes - stamped) != 0)
        fail_msg("the block of %zu bytes at %p differs", bytes, block);
}

/* Small, nested, large and growable blocks on two streams, by every way of keeping them. */
static void contents_come_back_after_sleep(void **state)
{
    (void)state;
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_FILE; contents++) {
        loch_allocator *pool;
        CHECK_OK(loch_pool_create(device, "sleeper", NULL, &pool));
        void *blocks[SMALL];
        size_t sizes[SMALL];
        for (size_t i = 0; i < SMALL; i++) {
            sizes[i] = i % 3 == 0 ? 100 + i : i % 3 == 1 ? 50000 + 999 * i : TEST_MIB + 70001 * i;
            const loch_request request = {
                .size = sizeof request, .bytes = sizes[i], .stream = i % 2 ? stream : loch_stream_get_default(device)};
            CHECK_OK(i == SMALL - 1 ? loch_pool_alloc_growable(pool, 64 * TEST_MIB, &request, &blocks[i])
                                    : loch_allocator_alloc(pool, &request, &blocks[i]));
            put(blocks[i], sizes[i], i);
        }
        for (size_t i = 5; i < SMALL - 1; i += 7) {
            CHECK_OK(loch_free(pool, blocks[i]));
            blocks[i] = NULL;
        }
        const loch_sleep_options options = {.size = sizeof options, .contents = contents};
        for (int round = 0; round < 3; round++) {
            size_t released, restored;
            CHECK_OK(loch_pool_sleep(pool, &options, &released));
            expect_whole(pool);
            assert_true(released > 16 * TEST_MIB);
            CHECK_OK(loch_free(pool, blocks[round]));
            blocks[round] = NULL;
            CHECK_OK(loch_pool_wake(pool, &restored));
            expect_whole(pool);
            for (size_t i = 0; i < SMALL; i++)
                if (blocks[i]) expect(blocks[i], sizes[i], i);
        }
        for (size_t i = 0; i < SMALL; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        loch_allocator_release(pool);
    }
    loch_stream_close(stream);
}

/* --- the rate --- */

/* Nanoseconds of plain copies there and back. */
static uint64_t time_copies(loch_allocator *pinned, void **blocks, size_t count)
{
    void *room;
    loch_stream *stream = loch_stream_get_default(device);
    CHECK_OK(loch_alloc(pinned, count * HANDLE, &room));
    const uint64_t start_ns = loch_host_now_ns();
    for (size_t i = 0; i < count; i++)
        CHECK_OK(loch_copy_on((char *)room + i * HANDLE, blocks[i], HANDLE, stream));
    CHECK_OK(loch_stream_sync(stream));
    for (size_t i = 0; i < count; i++)
        CHECK_OK(loch_copy_on(blocks[i], (char *)room + i * HANDLE, HANDLE, stream));
    CHECK_OK(loch_stream_sync(stream));
    const uint64_t ns = loch_host_now_ns() - start_ns;
    CHECK_OK(loch_free(pinned, room));
    return ns;
}

static void sleep_gives_memory_back_and_its_rate_is_printed(void **state)
{
    (void)state;
    static void *blocks[BLOCKS_MAX];
    size_t count = free_bytes() / 2 / HANDLE;
    const size_t most = gpu_or_double(device, BLOCKS_MAX, 6);
    if (count > most) count = most;
    assert_true(count > 1);
    loch_allocator *pool = pool_create(LOCH_MEMORY_DEVICE), *pinned = pool_create(LOCH_MEMORY_PINNED);
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(loch_alloc(pool, HANDLE, &blocks[i]));
        put(blocks[i], HANDLE, i);
    }
    uint64_t plain_ns = UINT64_MAX, sleep_ns = UINT64_MAX, there_ns = 0;
    for (int round = 0; round < ROUNDS; round++) { /* the first takes the pinned memory */
        const uint64_t ns = time_copies(pinned, blocks, count);
        if (ns < plain_ns) plain_ns = ns;
        const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_PINNED, .allocator = pinned};
        const size_t before = free_bytes();
        size_t released, restored;
        const uint64_t start_ns = loch_host_now_ns();
        CHECK_OK(loch_pool_sleep(pool, &options, &released));
        const uint64_t asleep_ns = loch_host_now_ns();
        const size_t asleep = free_bytes();
        const uint64_t wake_ns = loch_host_now_ns();
        CHECK_OK(loch_pool_wake(pool, &restored));
        const uint64_t both_ns = loch_host_now_ns() - wake_ns + asleep_ns - start_ns;
        if (both_ns < sleep_ns) {
            sleep_ns = both_ns;
            there_ns = asleep_ns - start_ns;
        }
        assert_int_equal(released, count * HANDLE);
        assert_int_equal(restored, count * HANDLE);
        assert_true(asleep >= before + count * HANDLE / 10 * 9); /* the device has it */
        expect_whole(pool);
    }
    for (size_t i = 0; i < count; i++) {
        expect(blocks[i], HANDLE, i);
        CHECK_OK(loch_free(pool, blocks[i]));
    }
    const double bytes = 2.0 * (double)(count * HANDLE), ratio = (double)plain_ns / (double)sleep_ns;
    print_message("%zu MiB: sleep and wake %.2f GB/s (%.1f + %.1f ms), copies %.2f GB/s, ratio %.3f\n",
                  count * HANDLE / TEST_MIB, bytes / (double)sleep_ns, (double)there_ns / 1e6,
                  (double)(sleep_ns - there_ns) / 1e6, bytes / (double)plain_ns, ratio);
    loch_allocator_release(pool);
    loch_allocator_release(pinned);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contents_come_back_after_sleep),
                                       cmocka_unit_test(sleep_gives_memory_back_and_its_rate_is_printed)};
    if (count > 1) device_name = arguments[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    pattern = malloc(HANDLE);
    host = malloc(HANDLE);
    if (!pattern || !host) return 1;
    test_pattern_write(pattern, HANDLE, 0x10c5);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    free(pattern);
    free(host);
    loch_device_release(device);
    return failures ? 1 : 0;
}
