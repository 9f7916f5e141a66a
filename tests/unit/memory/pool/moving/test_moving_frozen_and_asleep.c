/* SPDX-License-Identifier: MIT */
/* Memory that moves beside frozen memory, sleep and sessions. */
#include "memory/pool/heap/find.h"
#include "moving_rig.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- frozen --- */

static bool can_be_written(void *address)
{
    const pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)address = 1;
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

/* Where memory sleeps there is nothing, whether what was frozen there is freed, unfrozen, or neither. */
static void frozen_memory_that_sleeps_is_not_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
        pool_bench b = pool_bench_open("cpu", &options);
        loch_buffer *buffer = make(&b, 8 * MIB, 5, NULL);
        void *address;
        CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
        CHECK_OK(loch_buffer_unpin(buffer, NULL));
        freeze_all(b.pool);
        const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST};
        CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
        assert_false(can_be_written((char *)address + 4 * MIB));
        if (i == 1) CHECK_OK(loch_pool_unfreeze(b.pool, 0, NULL));
        if (i == 2) loch_buffer_clear(&buffer);
        assert_false(can_be_written((char *)address + 4 * MIB));
        CHECK_OK(loch_pool_wake(b.pool, NULL));
        if (i < 2) {
            assert_int_equal(can_be_written((char *)address + 4 * MIB), i == 1);
            assert_int_equal(loch_buffer_get_access(buffer), i == 1 ? LOCH_READ_WRITE : LOCH_READ_ONLY);
            expect(buffer, 5, NULL);
        }
        loch_buffer_release(buffer);
        bench_close(&b);
    }
}

static void a_frozen_block_that_cannot_grow_stays_frozen(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * MIB};
    pool_bench b = pool_bench_open("cpu", &options);
    loch_buffer *buffer = make(&b, MIB, 5, NULL);
    freeze_all(b.pool);
    const loch_status status = loch_buffer_resize(buffer, 20 * MIB, LOCH_CONTENTS_KEEP, NULL);
    assert_true(POOL_SHORT & 1u << status);
    assert_int_equal(loch_buffer_get_access(buffer), LOCH_READ_ONLY);
    expect(buffer, 5, NULL);
    loch_buffer_release(buffer);
    bench_close(&b);
}

/* Its block stays, with a message; the buffer must not be looked up afterwards. */
static void a_block_that_could_not_be_freed_forgets_its_buffer(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("cpu", &options);
    loch_buffer *buffer = make(&b, MIB, 5, NULL);
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
    lochi_pool_keep_range(lochi_pool_of(b.pool), address, lochi_pool_of(b.pool)); /* any reason to refuse a free */
    loch_buffer_release(buffer);
    assert_int_equal(tensor_live_blocks(b.pool), 1);
    lochi_pool_keep_range(lochi_pool_of(b.pool), address, NULL);
    CHECK_OK(loch_pool_compact(b.pool, NULL, NULL)); /* looks at every block's owner */
    CHECK_OK(loch_free(b.pool, address));
    bench_close(&b);
}

/* A guard's blocks begin behind its red zone: wherever that ends, they are known as what they are. */
static void frozen_blocks_of_a_guard_are_not_written(void **state)
{
    (void)state;
    static const size_t zones[] = {64, 4096, 20000};
    for (size_t i = 0; i < 3; i++) {
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
        const loch_redzone_options guarded = {.size = sizeof guarded, .red_zone_bytes = zones[i]};
        pool_bench b = pool_bench_open("cpu", &options);
        loch_allocator *guard;
        CHECK_OK(loch_redzone_create(b.pool, "redzone", &guarded, &guard));
        loch_buffer *buffers[6];
        for (size_t j = 0; j < 6; j++)
            CHECK_OK(loch_buffer_create(guard, 100000 + 512 * j, NULL, &buffers[j]));
        freeze_all(b.pool);
        for (size_t j = 0; j < 6; j++) {
            CHECK_FAILS(loch_buffer_fill(buffers[j], "", 1, NULL), INVALID);
            loch_buffer_release(buffers[j]);
        }
        loch_allocator_release(guard);
        bench_close(&b);
    }
}

/* --- asleep --- */

static void a_sleeping_block_is_not_resized_on_another_stream(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed,granule=64KiB", &options);
    loch_tag tag;
    CHECK_OK(loch_tag_create("corner asleep", &tag));
    const loch_request request = {.size = sizeof request, .bytes = MIB, .tag = tag, .stream = b.streams[0]};
    void *block, *out;
    CHECK_OK(loch_allocator_alloc(b.pool, &request, &block));
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST, .tag = tag};
    CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
    CHECK_FAILS(loch_allocator_realloc(b.pool, block, 2 * MIB, b.streams[0], &out), BUSY);
    CHECK_FAILS(loch_allocator_realloc(b.pool, block, 2 * MIB, b.streams[1], &out), BUSY);
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    CHECK_OK(loch_free(b.pool, block));
    bench_close(&b);
}

/* --- what the library itself allocates while the thread is in a session --- */

static void a_session_does_not_take_what_sleep_has_saved(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    loch_device *cpu = sim_open("cpu");
    loch_allocator *host = pool_make(cpu, &options);
    loch_session *session;
    size_t bytes;
    loch_buffer *buffer = make(&b, MIB, 5, b.streams[0]);
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST, .allocator = host};
    CHECK_OK(loch_session_begin(host, "asleep", &session));
    CHECK_OK(loch_session_enter(session));
    CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_session_end(session, NULL, &bytes));
    assert_int_equal(bytes, 0);
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    expect(buffer, 5, b.streams[0]);
    loch_buffer_release(buffer);
    bench_close(&b);
    assert_int_equal(tensor_live_blocks(host), 0);
    loch_allocator_release(host);
    loch_device_release(cpu);
}

static void a_session_ends_before_a_child_that_was_made_in_it(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    loch_session *session;
    size_t bytes;
    CHECK_OK(loch_session_begin(b.pool, "child", &session));
    CHECK_OK(loch_session_enter(session));
    loch_allocator *child = child_range(b.pool, MIB);
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_session_end(session, NULL, &bytes));
    assert_int_equal(bytes, 0);
    CHECK_OK(loch_free(child, pool_alloc(child, 100 * KIB)));
    loch_allocator_release(child);
    bench_close(&b);
}

/* The pool that keeps another's contents sleeps, too. */
static void contents_that_sleep_themselves_are_not_restored(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    loch_device *cpu = sim_open("cpu");
    loch_allocator *host = pool_make(cpu, &options);
    loch_buffer *buffer = make(&b, MIB, 5, b.streams[0]);
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST, .allocator = host};
    const loch_sleep_options file = {.size = sizeof file, .contents = LOCH_SLEEP_FILE};
    CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
    CHECK_OK(loch_pool_sleep(host, &file, NULL));
    CHECK_FAILS(loch_pool_wake(b.pool, NULL), BUSY);
    pool_expect_whole(b.pool);
    CHECK_OK(loch_pool_wake(host, NULL));
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    expect(buffer, 5, b.streams[0]);
    loch_buffer_release(buffer);
    bench_close(&b);
    loch_allocator_release(host);
    loch_device_release(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(frozen_memory_that_sleeps_is_not_there),
        TENSOR_TEST(a_frozen_block_that_cannot_grow_stays_frozen),
        TENSOR_TEST(a_block_that_could_not_be_freed_forgets_its_buffer),
        TENSOR_TEST(frozen_blocks_of_a_guard_are_not_written),
        TENSOR_TEST(a_sleeping_block_is_not_resized_on_another_stream),
        TENSOR_TEST(a_session_does_not_take_what_sleep_has_saved),
        TENSOR_TEST(a_session_ends_before_a_child_that_was_made_in_it),
        TENSOR_TEST(contents_that_sleep_themselves_are_not_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
