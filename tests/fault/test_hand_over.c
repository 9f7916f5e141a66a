/* SPDX-License-Identifier: MIT */
/* Two threads that hand blocks over while every host allocation fails in turn, once and for good: what is handed over
 * can be freed, the pool is whole, and nothing is left in the end. */
#include "memory/pool/report/check.h"
#include "memory/pool/front/gate.h"
#include "sweep.h"
#include "test.h"

#include <pthread.h>

#define BLOCKS 200
#define ROUNDS 3

typedef struct program {
    loch_allocator *pool;
    void *blocks[BLOCKS];
    size_t count;
    loch_status freed; /* of the second thread's first failure */
} program;

static void *free_all(void *user)
{
    program *p = user;
    for (size_t i = 0; i < p->count; i++) {
        const loch_status status = loch_free(p->pool, p->blocks[i]);
        if (p->freed == LOCH_OK) p->freed = status;
    }
    return NULL;
}

/* Allocates as much as it can, and has a second thread free it. */
static loch_status hand_over(program *p, size_t bytes)
{
    pthread_t thread;
    loch_status status = LOCH_OK;
    for (p->count = 0; p->count < BLOCKS; p->count++) {
        status = loch_alloc(p->pool, bytes, &p->blocks[p->count]);
        if (status != LOCH_OK) break;
    }
    assert_int_equal(pthread_create(&thread, NULL, free_all, p), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return status;
}

static void body(test_round *round, const void *user)
{
    (void)user;
    static program p;
    p = (program){.freed = LOCH_OK};
    loch_device *device;
    CHECK_OK(loch_device_open("cpu", &device));
    test_round_begin(round, device);
    loch_status status = loch_pool_create(device, "pool", NULL, &p.pool);
    bool has_transfer = false;
    for (int i = 0; status == LOCH_OK && i < ROUNDS; i++) {
        status = hand_over(&p, 100);
        if (status == LOCH_OK) status = hand_over(&p, 30000);
        lochi_pool *pool = lochi_pool_of(p.pool);
        has_transfer = atomic_load(&pool->has_transfer);
        lochi_lock_take(&pool->lock);
        lochi_pool_stop(pool);
        const char *wrong = lochi_pool_check(pool);
        lochi_pool_go(pool);
        lochi_lock_drop(&pool->lock);
        if (wrong) fail_msg("%s: %s", round->when, wrong);
    }
    round->is_felt = status != LOCH_OK;
    test_round_end(round);
    assert_int_equal(p.freed, LOCH_OK); /* a free needs no memory */
    if (status == LOCH_OK && round->mode == TEST_FAILING_NEVER) assert_true(has_transfer);
    loch_allocator_release(p.pool);
    loch_device_release(device);
}

static void threads_hand_over_while_host_memory_fails(void **state)
{
    (void)state;
    const test_rounds rounds = test_rounds_run(&test_host_faults, "two threads", body, NULL);
    assert_true(rounds.places > 10 && rounds.felt > 5 && rounds.felt < rounds.places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_hand_over_while_host_memory_fails)};
    return cmocka_run_group_tests_name("hand-overs while things fail", tests, test_faults_prepare, NULL);
}
