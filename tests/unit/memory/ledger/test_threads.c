/* SPDX-License-Identifier: MIT */
/* The ledger under threads: snapshots are consistent, and threads without a slot share one. */
#include "ledger_fixture.h"
#include <pthread.h>
#include <stdatomic.h>

/* --- threads --- */

enum { THREADS = 8, EXCHANGE = 64, BLOCK_BYTES = 48 };

typedef struct crowd {
    lochi_ledger *ledger;
    _Atomic uintptr_t exchange[EXCHANGE]; /* blocks that another thread takes out */
    atomic_uint running;
    size_t rounds;
    atomic_size_t failures; /* cmocka's checks are for the main thread */
} crowd;

typedef struct member {
    crowd *crowd;
    uint64_t seed;
    size_t number;
} member;

static void member_take(crowd *c, uintptr_t address)
{
    lochi_entry entry;
    if (address && lochi_ledger_take(c->ledger, at(address), BLOCK_BYTES, &entry) != LOCH_OK) c->failures++;
}

static void *member_run(void *argument)
{
    const member *self = argument;
    crowd *c = self->crowd;
    test_random random = {self->seed};
    for (size_t i = 0; i < c->rounds; i++) {
        /* neighbours in a chunk belong to different threads */
        const uintptr_t address = BASE + (i * THREADS + self->number) * 64;
        if (lochi_ledger_add_simple(c->ledger, at(address), BLOCK_BYTES, 0) != LOCH_OK) c->failures++;
        member_take(c, atomic_exchange(&c->exchange[test_random_below(&random, EXCHANGE)], address));
    }
    atomic_fetch_sub(&c->running, 1);
    return NULL;
}

static void snapshots_are_consistent(void **state)
{
    (void)state;
    static crowd c;
    pthread_t threads[THREADS];
    member members[THREADS];
    const uint64_t seed = test_seed(9);
    c = (crowd){.ledger = make_ledger(), .rounds = 20000};
    atomic_store(&c.running, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        members[i] = (member){&c, seed + i, i};
        assert_int_equal(pthread_create(&threads[i], NULL, member_run, &members[i]), 0);
    }
    size_t snapshots = 0;
    uint64_t allocs = 0;
    do {
        const loch_stats stats = read_stats(c.ledger, 0);
        assert_int_equal(stats.requested_bytes, stats.blocks * BLOCK_BYTES);
        assert_int_equal(stats.allocated_bytes, stats.requested_bytes);
        assert_int_equal(stats.allocs - stats.frees, stats.blocks);
        assert_true(stats.blocks <= EXCHANGE + THREADS && stats.allocs >= allocs);
        assert_true(stats.peak_blocks >= stats.blocks);
        if (snapshots % 16 == 0) lochi_ledger_new_segment(c.ledger);
        allocs = stats.allocs;
        snapshots++;
    } while (atomic_load(&c.running));
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&c.failures), 0);
    for (size_t i = 0; i < EXCHANGE; i++)
        member_take(&c, atomic_load(&c.exchange[i]));
    const loch_stats stats = read_stats(c.ledger, 0);
    assert_int_equal(atomic_load(&c.failures), 0);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.allocs, THREADS * c.rounds);
    assert_int_equal(stats.frees, THREADS * c.rounds);
    assert_true(stats.peak_blocks <= (uint64_t)(EXCHANGE + THREADS + THREADS * LOCHI_LEDGER_BATCH_BLOCKS));
    print_message("%zu snapshots\n", snapshots);
    lochi_ledger_destroy(c.ledger);
}

/* More threads than there are slots: the rest share one. */
enum { MANY = 270 };

typedef struct many {
    lochi_ledger *ledger;
    pthread_barrier_t barrier;
    atomic_size_t failures;
} many;

typedef struct many_member {
    many *all;
    uintptr_t address;
} many_member;

static void *many_run(void *argument)
{
    const many_member *self = argument;
    lochi_entry entry;
    for (size_t i = 0; i < 20; i++) {
        if (lochi_ledger_add_simple(self->all->ledger, at(self->address), 10, 0) != LOCH_OK) self->all->failures++;
        if (i == 0) {
            pthread_barrier_wait(&self->all->barrier); /* all have a slot, or share one */
            pthread_barrier_wait(&self->all->barrier); /* the figures have been looked at */
        }
        if (lochi_ledger_take(self->all->ledger, at(self->address), 0, &entry) != LOCH_OK) self->all->failures++;
    }
    return NULL;
}

static void threads_without_a_slot_share_one(void **state)
{
    (void)state;
    static pthread_t threads[MANY];
    static many_member members[MANY];
    many all = {.ledger = make_ledger()};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * TEST_KIB);
    pthread_barrier_init(&all.barrier, NULL, MANY + 1);
    for (size_t i = 0; i < MANY; i++) {
        members[i] = (many_member){&all, BASE + i * 4096};
        assert_int_equal(pthread_create(&threads[i], &attributes, many_run, &members[i]), 0);
    }
    pthread_barrier_wait(&all.barrier);
    loch_stats stats = read_stats(all.ledger, 0);
    pthread_barrier_wait(&all.barrier);
    assert_int_equal(stats.blocks, MANY);
    assert_int_equal(stats.requested_bytes, MANY * 10);
    for (size_t i = 0; i < MANY; i++)
        pthread_join(threads[i], NULL);
    stats = read_stats(all.ledger, 0);
    assert_int_equal(atomic_load(&all.failures), 0);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.frees, MANY * 20);
    assert_true(stats.peak_blocks >= MANY && stats.peak_blocks <= MANY + MANY * LOCHI_LEDGER_BATCH_BLOCKS);
    pthread_barrier_destroy(&all.barrier);
    pthread_attr_destroy(&attributes);
    lochi_ledger_destroy(all.ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_are_consistent),
        cmocka_unit_test(threads_without_a_slot_share_one),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
