/* SPDX-License-Identifier: MIT */
/* A pool and its process: it goes on in the parent after a fork, and a program may end with blocks and pools left
 * over. */
#include "pool_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child's function says is its exit code. */
static void check_child(void (*run)(void), int code)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        run();
        _exit(99); /* it should have ended itself */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void leave_at_once(void)
{
    _exit(7);
}

static void parents_go_on_after_a_fork(void **state)
{
    (void)state;
    loch_device *device;
    CHECK_OK(loch_device_open("cpu", &device));
    loch_allocator *pool = pool_make(device, NULL);
    enum { COUNT = 40 };
    unsigned char *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        const size_t bytes = (size_t)100 << (i % 16);
        void *block;
        CHECK_OK(loch_alloc(pool, bytes, &block));
        memset(block, (int)i, bytes);
        blocks[i] = block;
    }
    check_child(leave_at_once, 7);
    for (size_t i = 0; i < COUNT; i += 2)
        CHECK_OK(loch_free(pool, blocks[i]));
    for (size_t i = 0; i < COUNT; i += 2) {
        void *block;
        CHECK_OK(loch_alloc(pool, (size_t)300 << (i % 16), &block));
        memset(block, (int)i, 300);
        blocks[i] = block;
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(blocks[i][0], i);
        assert_int_equal(blocks[i][99], i);
        CHECK_OK(loch_free(pool, blocks[i]));
    }
    lochi_lock_take(&lochi_pool_of(pool)->lock);
    assert_null(lochi_pool_check(lochi_pool_of(pool)));
    lochi_lock_drop(&lochi_pool_of(pool)->lock);
    loch_allocator_release(pool);
    loch_device_release(device);
}

/* With blocks out, blocks kept by the thread, a stream, and nothing given back. */
static void leave_everything(void)
{
    static const char *const devices[] = {"cpu", "sim:1GiB"};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device;
        loch_stream *stream;
        loch_allocator *pool;
        void *block;
        if (loch_device_open(devices[i], &device) != LOCH_OK || loch_stream_create(device, NULL, &stream) != LOCH_OK ||
            loch_pool_create(device, "left", NULL, &pool) != LOCH_OK || loch_alloc(pool, 100, &block) != LOCH_OK ||
            loch_alloc(pool, 10 << 20, &block) != LOCH_OK || loch_free(pool, block) != LOCH_OK)
            _exit(1);
    }
#if LOCHI_ASAN
    _exit(5); /* leaks are what this is about */
#else
    exit(5);
#endif
}

static void programs_may_end_with_pools(void **state)
{
    (void)state;
    check_child(leave_everything, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parents_go_on_after_a_fork),
        cmocka_unit_test(programs_may_end_with_pools),
    };
    return cmocka_run_group_tests_name("pool_process", tests, NULL, NULL);
}
