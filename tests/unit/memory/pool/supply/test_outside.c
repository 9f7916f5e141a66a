/* SPDX-License-Identifier: MIT */
/* Driver calls outside the pool's lock: while one thread is held up in the driver, whatever for, other threads allocate
 * from free memory, free and read figures. Nothing depends on time: a call is held up until the other threads are
 * done, or until a deadline that only a deadlock reaches. */
#include "faulty_driver.h"
#include "pool_fixture.h"
#include "worker.h"

#include <loch/observer.h>
#include <loch/registry.h>
#include <loch/sleep.h>
#include <loch/tag.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB TEST_MIB
#define HOLES 8
#define ROUNDS 200
#define LARGE (8 * MIB)
#define CAP (12 * MIB)
#define DEADLINE_MS 60000

#define SIM "faulty:sim:256MiB,granule=64KiB,backed"

static const char *const devices[] = {"faulty:cpu", SIM, SIM ",alias=off"};

/* A pool with eight holes of 1 MiB. A live block lies beside each of them in its handle, so no handle is idle. */
typedef struct rig {
    loch_device *device;
    loch_allocator *pool;
    void *stakes[HOLES];
    void *extra; /* freed by the worker, if there is one */
    loch_tag red, blue;
} rig;

static void *rig_alloc(const rig *r, size_t bytes, loch_tag tag)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .tag = tag};
    void *block;
    CHECK_OK(loch_allocator_alloc(r->pool, &request, &block));
    return block;
}

static rig rig_make(const char *device, size_t idle_bytes)
{
    rig r = {.device = sim_open(device)};
    void *holes[HOLES];
    CHECK_OK(loch_tag_create("red", &r.red));
    CHECK_OK(loch_tag_create("blue", &r.blue));
    r.pool = pool_make(r.device, &(loch_pool_options){.size = sizeof(loch_pool_options), .handle_bytes = 2 * MIB});
    CHECK_OK(loch_free(r.pool, rig_alloc(&r, 2 * HOLES * MIB, r.red))); /* in whole handles */
    for (size_t i = 0; i < HOLES; i++) {
        holes[i] = rig_alloc(&r, MIB, r.red);
        r.stakes[i] = rig_alloc(&r, MIB, r.red);
    }
    for (size_t i = 0; i < HOLES; i++)
        CHECK_OK(loch_free(r.pool, holes[i]));
    (void)pool_trim(r.pool, SIZE_MAX); /* flushes the thread's cache */
    if (idle_bytes) CHECK_OK(loch_pool_set_idle(r.pool, idle_bytes));
    assert_int_equal(pool_info(r.pool).reserved_bytes, 2 * HOLES * MIB);
    return r;
}

static void rig_end(rig *r)
{
    for (size_t i = 0; i < HOLES; i++)
        CHECK_OK(loch_free(r->pool, r->stakes[i]));
    pool_expect_empty(r->pool);
    loch_allocator_release(r->pool);
    loch_device_release(r->device);
    size_t leaks = 0;
    CHECK_OK(loch_registry_clear(NULL, NULL, &leaks)); /* the allocators of saved contents */
    assert_int_equal(leaks, 0);
}

/* --- two threads --- */

typedef struct worker {
    pthread_t thread;
    rig *rig;
    void *block; /* that a deed is about */
    void (*deed)(struct worker *w);
    atomic_bool is_done;
    char failure[400];
} worker;

static void *worker_run(void *user)
{
    worker *w = user;
    w->deed(w);
    atomic_store(&w->is_done, true);
    return NULL;
}

static void worker_start(worker *w, rig *r, void (*deed)(worker *w), void *block)
{
    *w = (worker){.rig = r, .deed = deed, .block = block};
    assert_int_equal(pthread_create(&w->thread, NULL, worker_run, w), 0);
}

static bool worker_await(worker *w)
{
    const struct timespec nap = {0, 1000000};
    for (int i = 0; i < DEADLINE_MS && !atomic_load(&w->is_done); i++)
        nanosleep(&nap, NULL);
    return atomic_load(&w->is_done);
}

static void worker_join(worker *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    if (w->failure[0]) fail_msg("%s", w->failure);
}

/* Allocates and frees in the holes, and reads figures. Tags keep the requests off the caches: each takes the lock. */
static void work_in_holes(worker *w)
{
    void *blocks[4] = {NULL};
    loch_pool_info info = {.size = sizeof info};
    for (size_t i = 0; i < ROUNDS; i++) {
        void **block = &blocks[i % 4];
        const loch_request request = {.size = sizeof request, .bytes = MIB - i * 512, .tag = w->rig->red};
        if (*block) TRY(loch_free(w->rig->pool, *block));
        TRY(loch_allocator_alloc(w->rig->pool, &request, block));
        if (i % 16 == 0) TRY(loch_pool_get_info(w->rig->pool, &info));
    }
    for (size_t i = 0; i < 4; i++)
        TRY(loch_free(w->rig->pool, blocks[i]));
    if (w->rig->extra) TRY(loch_free(w->rig->pool, w->rig->extra));
    w->rig->extra = NULL;
}

/* Holds up a deed in driver calls of some kinds while another thread works in the holes. Returns the deed's block. */
static void *work_beside(rig *r, unsigned kinds, void (*deed)(worker *w), void *block)
{
    worker doer, other;
    test_faulty_hold(kinds);
    worker_start(&doer, r, deed, block);
    const bool is_held = test_faulty_await_held();
    worker_start(&other, r, work_in_holes, NULL);
    const bool is_done = worker_await(&other), was_held = !atomic_load(&doer.is_done);
    test_faulty_let_go();
    worker_join(&other);
    worker_join(&doer);
    assert_true(is_held);
    assert_true(was_held);
    if (!is_done) fail_msg("a thread waited for the driver call of another one");
    pool_expect_whole(r->pool);
    return doer.block;
}

/* --- deeds --- */

static void deed_alloc(worker *w)
{
    TRY(loch_alloc(w->rig->pool, LARGE, &w->block));
}

static void deed_free(worker *w)
{
    TRY(loch_free(w->rig->pool, w->block));
}

static void deed_trim(worker *w)
{
    TRY(loch_allocator_trim(w->rig->pool, 0, NULL));
}

static void deed_sleep(worker *w)
{
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_HOST, .tag = w->rig->blue};
    TRY(loch_pool_sleep(w->rig->pool, &options, NULL));
}

static void deed_wake(worker *w)
{
    TRY(loch_pool_wake(w->rig->pool, NULL));
}

static void deed_grow(worker *w)
{
    TRY(loch_pool_resize_growable(w->rig->pool, w->block, LARGE));
}

/* --- tests --- */

static void test_new_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        void *first = work_beside(&r, TEST_HELD_CREATE, deed_alloc, NULL);
        void *second = work_beside(&r, TEST_HELD_MAP, deed_alloc, NULL);
        CHECK_OK(loch_free(r.pool, first));
        CHECK_OK(loch_free(r.pool, second));
        rig_end(&r);
    }
}

/* The limit is reached: idle handles move. */
static void test_remapped_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        void *idle[4], *live[4];
        for (size_t k = 0; k < 4; k++) {
            idle[k] = rig_alloc(&r, 2 * MIB, r.red);
            live[k] = rig_alloc(&r, 2 * MIB, r.red);
        }
        for (size_t k = 0; k < 4; k++)
            CHECK_OK(loch_free(r.pool, idle[k]));
        CHECK_OK(loch_pool_set_limit(r.pool, pool_info(r.pool).reserved_bytes));
        const uint64_t moved = pool_info(r.pool).handles_moved;
        void *block = work_beside(&r, TEST_HELD_MAP | TEST_HELD_UNMAP, deed_alloc, NULL);
        assert_true(pool_info(r.pool).handles_moved >= moved + 4);
        CHECK_OK(loch_free(r.pool, block));
        for (size_t k = 0; k < 4; k++)
            CHECK_OK(loch_free(r.pool, live[k]));
        rig_end(&r);
    }
}

static void test_trims(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        CHECK_OK(loch_free(r.pool, rig_alloc(&r, LARGE, r.red)));
        (void)work_beside(&r, TEST_HELD_UNMAP, deed_trim, NULL);
        if (i) { /* the CPU has nothing to wait for; elsewhere the free has not passed yet */
            CHECK_OK(loch_free(r.pool, rig_alloc(&r, LARGE, r.red)));
            (void)work_beside(&r, TEST_HELD_WAIT, deed_trim, NULL);
        }
        assert_int_equal(pool_info(r.pool).reserved_bytes, 2 * HOLES * MIB);
        rig_end(&r);
    }
}

/* A thread that frees above the cap meanwhile does not wait either. The memory goes back nevertheless. */
static void test_caps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], CAP);
        void *block = rig_alloc(&r, LARGE, r.red);
        r.extra = rig_alloc(&r, LARGE, r.red);
        (void)work_beside(&r, TEST_HELD_UNMAP, deed_free, block);
        lochi_pool *pool = lochi_pool_of(r.pool);
        lochi_lock_take(&pool->lock);
        const size_t free = lochi_pool_free_bytes(pool); /* without a call that looks at the cap */
        lochi_lock_drop(&pool->lock);
        assert_true(free <= CAP);
        rig_end(&r);
    }
}

static void test_sleeps(void **state)
{
    (void)state;
    static const unsigned to_sleep[] = {TEST_HELD_UNMAP, TEST_HELD_COPY},
                          to_wake[] = {TEST_HELD_CREATE, TEST_HELD_COPY};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        for (size_t k = 0; k < (i ? 2 : 1); k++) { /* the CPU's contents are copied without its driver */
            rig r = rig_make(devices[i], 0);
            char *block = rig_alloc(&r, LARGE, r.blue), back[64], pattern[64];
            test_pattern_write(pattern, sizeof pattern, 7);
            CHECK_OK(loch_copy(block + MIB, pattern, sizeof pattern));
            (void)work_beside(&r, to_sleep[k], deed_sleep, NULL);
            assert_int_equal(pool_info(r.pool).asleep_bytes, LARGE);
            (void)work_beside(&r, to_wake[k], deed_wake, NULL);
            CHECK_OK(loch_copy(back, block + MIB, sizeof back));
            assert_memory_equal(back, pattern, sizeof back);
            CHECK_OK(loch_free(r.pool, block));
            rig_end(&r);
        }
}

/* A block of the sleeping tag is freed while its contents are saved, and one while they are restored. */
static void test_frees_during_sleeps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        void *blocks[3];
        for (size_t k = 0; k < 3; k++)
            blocks[k] = rig_alloc(&r, LARGE, r.blue);
        r.extra = blocks[0];
        (void)work_beside(&r, i ? TEST_HELD_COPY : TEST_HELD_UNMAP, deed_sleep, NULL);
        r.extra = blocks[1];
        (void)work_beside(&r, i ? TEST_HELD_COPY : TEST_HELD_MAP, deed_wake, NULL);
        CHECK_OK(loch_free(r.pool, blocks[2]));
        rig_end(&r);
    }
}

static void test_growable_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        void *block;
        const loch_request request = {.size = sizeof request, .bytes = MIB};
        CHECK_OK(loch_pool_alloc_growable(r.pool, 2 * LARGE, &request, &block));
        (void)work_beside(&r, TEST_HELD_MAP, deed_grow, block);
        CHECK_OK(loch_free(r.pool, block));
        rig_end(&r);
    }
}

static void test_raw_segments(void **state)
{
    (void)state;
    rig r = rig_make(SIM ",virtual=off", 0);
    void *block = work_beside(&r, TEST_HELD_RAW, deed_alloc, NULL);
    CHECK_OK(loch_free(r.pool, block));
    (void)work_beside(&r, TEST_HELD_RAW, deed_trim, NULL);
    rig_end(&r);
}

/* Threads that all need the driver wait for each other, and all get their memory. One of them frees a growable block,
 * which needs the supply lock too. */
static void test_climbs_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        worker workers[4];
        void *growable;
        const loch_request request = {.size = sizeof request, .bytes = MIB};
        CHECK_OK(loch_pool_alloc_growable(r.pool, LARGE, &request, &growable));
        test_faulty_hold(TEST_HELD_CREATE | TEST_HELD_MAP);
        for (size_t k = 0; k < 3; k++)
            worker_start(&workers[k], &r, deed_alloc, NULL);
        worker_start(&workers[3], &r, deed_free, growable);
        const bool is_held = test_faulty_await_held();
        test_faulty_let_go();
        for (size_t k = 0; k < 4; k++)
            worker_join(&workers[k]);
        assert_true(is_held);
        pool_expect_whole(r.pool);
        for (size_t k = 0; k < 3; k++) {
            for (size_t m = 0; m < k; m++)
                assert_true((char *)workers[k].block >= (char *)workers[m].block + LARGE ||
                            (char *)workers[m].block >= (char *)workers[k].block + LARGE);
            CHECK_OK(loch_free(r.pool, workers[k].block));
        }
        rig_end(&r);
    }
}

/* What an observer got that used the pool during its driver calls. */
typedef struct onlooker {
    rig *rig;
    loch_status fitting, large;
    size_t calls;
} onlooker;

static void look_on(loch_range_event event, const loch_range *range, void *user)
{
    onlooker *o = user;
    void *block;
    (void)range;
    if (event != LOCH_RANGE_TAKEN || !o->rig) return;
    o->calls++;
    o->fitting = loch_alloc(o->rig->pool, MIB, &block);
    if (o->fitting == LOCH_OK) o->fitting = loch_free(o->rig->pool, block);
    o->large = loch_alloc(o->rig->pool, 4 * LARGE, &block);
}

/* An observer, which runs inside a driver call, gets free memory and no other. */
static void test_observers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], CAP);
        onlooker o = {.rig = NULL};
        CHECK_OK(loch_observer_add(r.device, look_on, &o));
        o.rig = &r;
        void *block = rig_alloc(&r, LARGE, r.red);
        o.rig = NULL;
        CHECK_OK(loch_observer_remove(r.device, look_on, &o));
        assert_true(o.calls > 0);
        assert_int_equal(o.fitting, LOCH_OK);
        assert_int_equal(o.large, LOCH_E_BUSY);
        pool_expect_whole(r.pool);
        CHECK_OK(loch_free(r.pool, block));
        rig_end(&r);
    }
}

/* --- failures --- */

static atomic_bool is_over;

/* Allocates and frees in the holes until the other thread is done. Calls may fail: the fault strikes any thread. */
static void work_until_over(worker *w)
{
    for (size_t i = 0; !atomic_load(&is_over); i++) {
        void *block;
        const loch_request request = {.size = sizeof request, .bytes = MIB - i % 1000 * 512, .tag = w->rig->red};
        if (loch_allocator_alloc(w->rig->pool, &request, &block) == LOCH_OK) TRY(loch_free(w->rig->pool, block));
    }
}

/* Gets to each kind of driver call. Returns whether all calls succeeded. */
static bool do_all(const rig *r)
{
    const loch_request request = {.size = sizeof request, .bytes = 2 * MIB};
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_HOST, .tag = r->blue};
    void *block = NULL, *growable = NULL, *idle[4] = {NULL}, *live[4] = {NULL};
    bool is_good = true;
    for (size_t k = 0; k < 4; k++) {
        is_good = loch_alloc(r->pool, 2 * MIB, &idle[k]) == LOCH_OK && is_good;
        is_good = loch_alloc(r->pool, 2 * MIB, &live[k]) == LOCH_OK && is_good;
    }
    for (size_t k = 0; k < 4; k++)
        if (idle[k]) is_good = loch_free(r->pool, idle[k]) == LOCH_OK && is_good;
    const loch_request blue = {.size = sizeof blue, .bytes = 2 * MIB, .tag = r->blue};
    is_good = loch_allocator_alloc(r->pool, &blue, &block) == LOCH_OK && is_good;
    is_good = loch_pool_alloc_growable(r->pool, LARGE, &request, &growable) == LOCH_OK && is_good;
    is_good = loch_pool_sleep(r->pool, &options, NULL) == LOCH_OK && is_good;
    for (int i = 0; i < 100 && loch_pool_wake(r->pool, NULL) != LOCH_OK; i++)
        is_good = false;
    if (growable) is_good = loch_free(r->pool, growable) == LOCH_OK && is_good;
    if (block) is_good = loch_free(r->pool, block) == LOCH_OK && is_good;
    for (size_t k = 0; k < 4; k++)
        if (live[k]) is_good = loch_free(r->pool, live[k]) == LOCH_OK && is_good;
    is_good = loch_allocator_trim(r->pool, 0, NULL) == LOCH_OK && is_good;
    return is_good;
}

/* One driver call after the other fails while another thread allocates. */
static void test_failures(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        size_t failures = 0;
        for (uint64_t after = 0; after < 120; after += 1 + after / 24) {
            worker other;
            atomic_store(&is_over, false);
            worker_start(&other, &r, work_until_over, NULL);
            test_faulty_set(TEST_FAILING_ONCE, after);
            failures += !do_all(&r);
            atomic_store(&is_over, true);
            worker_join(&other);
            test_faulty_set(TEST_FAILING_NEVER, 0);
            pool_expect_whole(r.pool);
        }
        assert_true(failures > 0);
        rig_end(&r);
    }
}

/* --- forks --- */

static void deed_let_go(worker *w)
{
    const struct timespec nap = {0, 50000000};
    (void)w;
    nanosleep(&nap, NULL); /* the fork has probably begun; both orders are right */
    test_faulty_let_go();
}

/* A fork waits for driver calls that are under way: the child has a whole pool. */
static void test_forks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r = rig_make(devices[i], 0);
        worker doer, releaser;
        test_faulty_hold(TEST_HELD_MAP);
        worker_start(&doer, &r, deed_alloc, NULL);
        const bool is_held = test_faulty_await_held();
        worker_start(&releaser, &r, deed_let_go, NULL);
        const pid_t child = fork();
        if (!child) {
            const lochi_pool *pool = lochi_pool_of(r.pool);
            const bool is_whole = !pool->detached.filled && !pool->detached.held && !pool->detached.vacated &&
                                  !lochi_pool_check(lochi_pool_of(r.pool));
            _exit(is_whole ? 0 : 1);
        }
        assert_true(child > 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        worker_join(&releaser);
        worker_join(&doer);
        assert_true(is_held);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK_OK(loch_free(r.pool, doer.block));
        rig_end(&r);
    }
}

static int prepare(void **state)
{
    (void)state;
    return test_faulty_register() == LOCH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(test_new_memory),      POOL_TEST(test_remapped_memory),
        POOL_TEST(test_trims),           POOL_TEST(test_caps),
        POOL_TEST(test_sleeps),          POOL_TEST(test_frees_during_sleeps),
        POOL_TEST(test_growable_blocks), POOL_TEST(test_raw_segments),
        POOL_TEST(test_climbs_together), POOL_TEST(test_observers),
        POOL_TEST(test_failures),        POOL_TEST(test_forks),
    };
    return cmocka_run_group_tests_name("driver calls outside a pool's lock", tests, prepare, NULL);
}
