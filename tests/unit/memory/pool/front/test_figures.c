/* SPDX-License-Identifier: MIT */
/* Peaks of a pool that several threads use: those of the program, not sums of what threads have not told each other. */
#include "partner.h"
#include "pool_fixture.h"
#include "worker.h"

#include <stdatomic.h>

#define MIB TEST_MIB
#define KIB TEST_KIB
#define PART 1000 /* a peak may be less than the true one by this part */

static const char *const devices[] = {"cpu", "sim:1GiB,backed", "sim:256MiB,backed,virtual=off"};
#define DEVICES (sizeof devices / sizeof *devices)

/* --- threads that take turns --- */

#define CREW 3
#define CROWD 7 /* with five threads or more, a peak may be less by this for each of them: */
#define CROWD_BYTES (64 * KIB)
#define CROWD_BLOCKS 256
#define LIVE 200

typedef struct piece {
    void *address;
    size_t bytes;
} piece;

/* Blocks of all threads. One thread at a time works, so what is in use is known exactly. */
typedef struct scene {
    loch_allocator *pool;
    piece live[LIVE];
    size_t most_bytes;
    int64_t blocks, bytes, peak_blocks, peak_bytes;
    size_t threads;
    test_random random;
} scene;

/* Allocates and frees at random; more of the one or of the other. */
static void take_turn(partner *w)
{
    scene *s = w->user;
    const size_t steps = test_random_below(&s->random, 60), grows = test_random_below(&s->random, 4);
    for (size_t i = 0; i < steps; i++) {
        piece *p = &s->live[test_random_below(&s->random, LIVE)];
        if (p->address && (grows != 3 || test_random_below(&s->random, 4) == 0)) {
            TRY(loch_free(s->pool, p->address));
            p->address = NULL;
            s->blocks--;
            s->bytes -= (int64_t)p->bytes;
        } else if (!p->address && (grows || test_random_below(&s->random, 4) == 0)) {
            const size_t kind = test_random_below(&s->random, 3);
            p->bytes = kind == 0 ? 100 : kind == 1 ? 30000 : 1 + test_random_below(&s->random, s->most_bytes);
            TRY(loch_alloc(s->pool, p->bytes, &p->address));
            if (++s->blocks > s->peak_blocks) s->peak_blocks = s->blocks;
            if ((s->bytes += (int64_t)p->bytes) > s->peak_bytes) s->peak_bytes = s->bytes;
        }
    }
}

static void expect_peaks(const scene *s)
{
    const loch_stats stats = pool_stats(s->pool);
    const size_t bytes = (size_t)s->peak_bytes, blocks = (size_t)s->peak_blocks;
    const size_t many = s->threads < 5 ? 0 : s->threads + 1; /* with the first one */
    assert_int_equal(stats.requested_bytes, s->bytes);
    assert_int_equal(stats.blocks, s->blocks);
    assert_true(stats.peak_requested_bytes <= bytes && stats.peak_blocks <= blocks);
    assert_true(stats.peak_requested_bytes + bytes / PART + many * CROWD_BYTES >= bytes);
    assert_true(stats.peak_blocks + blocks / PART + many * CROWD_BLOCKS >= blocks);
    assert_true(stats.peak_allocated_bytes <= stats.peak_reserved_bytes);
    assert_true(stats.peak_requested_bytes <= stats.peak_allocated_bytes);
}

static void take_turns(size_t threads)
{
    static scene s;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        partner crew[CROWD];
        memset(&s, 0, sizeof s);
        s.pool = pool_make(device, NULL);
        s.threads = threads;
        s.most_bytes = 600 * KIB;
        s.random.state = test_seed(7);
        for (size_t i = 0; i < threads; i++)
            partner_start(&crew[i], take_turn, &s);
        for (int round = 0; round < 1500; round++) {
            partner_turn(&crew[test_random_below(&s.random, threads)]);
            const size_t chance = test_random_below(&s.random, 100);
            if (chance < 5) expect_peaks(&s);
            if (chance == 5) {
                CHECK_OK(loch_allocator_reset_stats(s.pool));
                s.peak_blocks = s.blocks;
                s.peak_bytes = s.bytes;
            }
            if (chance == 6) (void)pool_trim(s.pool, 0);
        }
        expect_peaks(&s);
        for (size_t i = 0; i < threads; i++)
            partner_end(&crew[i]);
        expect_peaks(&s);
        for (size_t i = 0; i < LIVE; i++)
            if (s.live[i].address) CHECK_OK(loch_free(s.pool, s.live[i].address));
        CHECK_OK(loch_allocator_reset_stats(s.pool)); /* some blocks were allocated before the last one */
        pool_end(s.pool, device);
    }
}

static void peaks_are_the_programs_when_threads_take_turns(void **state)
{
    (void)state;
    take_turns(CREW);
}

static void peaks_of_many_threads_are_close_to_the_programs(void **state)
{
    (void)state;
    take_turns(CROWD);
}

/* One thread allocates all, another frees all, as a backward pass in a thread of its own does. */
typedef struct backward {
    loch_allocator *pool;
    void *blocks[64];
} backward;

static void free_all(partner *w)
{
    const backward *b = w->user;
    for (size_t i = 0; i < 64; i++)
        TRY(loch_free(b->pool, b->blocks[63 - i]));
}

static void a_thread_that_only_frees_adds_nothing_to_the_peak(void **state)
{
    (void)state;
    static const size_t sizes[] = {64, 5000, 40 * KIB, 3 * MIB};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        loch_device *device = sim_open("sim:1GiB");
        loch_allocator *pool = pool_make(device, NULL);
        backward b = {.pool = pool};
        partner w;
        partner_start(&w, free_all, &b);
        for (int round = 0; round < 50; round++) {
            for (size_t i = 0; i < 64; i++)
                b.blocks[i] = pool_alloc(pool, sizes[s]);
            partner_turn(&w);
        }
        const loch_stats stats = pool_stats(pool);
        assert_int_equal(stats.peak_requested_bytes, 64 * sizes[s]);
        assert_int_equal(stats.peak_blocks, 64);
        assert_true(stats.peak_allocated_bytes <= stats.peak_reserved_bytes);
        partner_end(&w);
        pool_end(pool, device);
    }
}

/* --- threads that run at once --- */

#define RUNNERS 4
#define HELD 32
#define MOST (200 * KIB)

/* Bytes in use by all threads: counted before an allocation and after a free, and the other way round. */
static _Atomic int64_t outer, inner, peak_outer, peak_inner;

static void count(_Atomic int64_t *sum, _Atomic int64_t *peak, int64_t more)
{
    const int64_t now = atomic_fetch_add(sum, more) + more;
    int64_t seen = atomic_load(peak);
    while (now > seen && !atomic_compare_exchange_weak(peak, &seen, now))
        ;
}

typedef struct runner {
    pthread_t thread;
    loch_allocator *pool;
    test_random random;
    char failure[400];
} runner;

static _Atomic(piece *) passed[RUNNERS * HELD]; /* blocks that any thread may free */

static void run_all(runner *w)
{
    for (int i = 0; i < 30000; i++) {
        piece *p = atomic_exchange(&passed[test_random_below(&w->random, RUNNERS * HELD)], NULL);
        if (p) {
            const size_t bytes = p->bytes;
            count(&inner, &peak_inner, -(int64_t)bytes);
            TRY(loch_free(w->pool, p->address));
            count(&outer, &peak_outer, -(int64_t)bytes);
        } else {
            p = malloc(sizeof *p);
            EXPECT(p);
            p->bytes = test_random_below(&w->random, 2) ? 1 + test_random_below(&w->random, 3000)
                                                        : 1 + test_random_below(&w->random, MOST);
            const size_t bytes = p->bytes;
            count(&outer, &peak_outer, (int64_t)bytes);
            TRY(loch_alloc(w->pool, bytes, &p->address));
            count(&inner, &peak_inner, (int64_t)bytes);
            p = atomic_exchange(&passed[test_random_below(&w->random, RUNNERS * HELD)], p);
            if (!p) continue;
            const size_t other = p->bytes;
            count(&inner, &peak_inner, -(int64_t)other);
            TRY(loch_free(w->pool, p->address));
            count(&outer, &peak_outer, -(int64_t)other);
        }
        free(p);
    }
}

static void *runner_run(void *user)
{
    run_all(user);
    return NULL;
}

static void peaks_are_within_bounds_while_threads_run(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        runner runners[RUNNERS];
        outer = inner = peak_outer = peak_inner = 0;
        for (size_t i = 0; i < RUNNERS; i++) {
            runners[i] = (runner){.pool = pool, .random.state = test_seed(11) + i};
            assert_int_equal(pthread_create(&runners[i].thread, NULL, runner_run, &runners[i]), 0);
        }
        for (size_t i = 0; i < RUNNERS; i++) {
            assert_int_equal(pthread_join(runners[i].thread, NULL), 0);
            if (runners[i].failure[0]) fail_msg("%s", runners[i].failure);
        }
        const loch_stats stats = pool_stats(pool);
        const int64_t peak = (int64_t)stats.peak_requested_bytes;
        assert_true(peak <= peak_outer);
        /* What the other threads did while one added up the sums may be missing. */
        assert_true(peak >= peak_inner - peak_inner / PART - (RUNNERS - 1) * (int64_t)MOST);
        assert_true(stats.peak_allocated_bytes <= stats.peak_reserved_bytes);
        assert_int_equal(stats.requested_bytes, inner);
        for (size_t i = 0; i < RUNNERS * HELD; i++) {
            piece *p = atomic_exchange(&passed[i], NULL);
            if (p) CHECK_OK(loch_free(pool, p->address));
            free(p);
        }
        pool_end(pool, device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(peaks_are_the_programs_when_threads_take_turns),
        POOL_TEST(peaks_of_many_threads_are_close_to_the_programs),
        POOL_TEST(a_thread_that_only_frees_adds_nothing_to_the_peak),
        POOL_TEST(peaks_are_within_bounds_while_threads_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
