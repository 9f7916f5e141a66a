/* SPDX-License-Identifier: MIT */
/* Threads and streams on one pool, with little memory, so that it has to move, wait and give back all the time.
 *
 * On simulated devices the checker of stream order watches kernels that use every block between its allocation and its
 * free: on its own stream, on further ones that were recorded, and on others that free it behind an event. On the CPU
 * every block holds a pattern of its owner's, looked at before the free. Meanwhile others read figures, trim, change
 * the limit, make and end streams, threads and pools. In the end nothing was used without order, no two blocks
 * overlapped, and the pool is whole and empty. What each thread does follows from the seed; how the threads mix does
 * not. */
#include "memory/pool/report/check.h"
#include "test.h"
#include "worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS 4
#define STREAMS 3 /* of each thread */
#define PIECES 24
#define STEPS 1200
#define ROUNDS 3
#define LIMIT (10 * TEST_MIB) /* less than the threads would have */
#define BYTES_MAX (900 * TEST_KIB)

typedef struct piece {
    char *address;
    size_t bytes;
    size_t stream; /* of the allocation */
    uint64_t seed;
} piece;

typedef struct arena {
    loch_device *device;
    loch_allocator *pool;
    bool is_host;   /* contents are looked at; else kernels are queued */
    bool has_limit; /* requests may fail because memory is short */
    atomic_bool is_over;
} arena;

typedef struct worker {
    arena *arena;
    test_random random;
    uint64_t stamp;
    loch_stream *streams[STREAMS];
    loch_event *event;
    piece pieces[PIECES];
    uint64_t allocs, refusals;
    char failure[400]; /* empty when all is well */
} worker;

static uint64_t seed;

/* --- what uses a block --- */

static loch_status launch(loch_stream *stream, const piece *p)
{
    const loch_sim_range range = {p->address, p->bytes};
    const loch_sim_kernel kernel = {.size = sizeof kernel, .name = "use", .writes = &range, .writes_count = 1};
    return loch_sim_launch(stream, &kernel);
}

/* The second stream's work comes behind what the first has now. */
static void order(worker *w, size_t first, size_t second)
{
    TRY(loch_event_record(w->event, w->streams[first]));
    TRY(loch_stream_wait(w->streams[second], w->event));
}

static void use(worker *w, const piece *p)
{
    if (w->arena->is_host)
        test_pattern_write(p->address, p->bytes, p->seed);
    else
        TRY(launch(w->streams[p->stream], p));
}

/* --- steps --- */

static size_t choose_bytes(worker *w)
{
    switch (test_random_below(&w->random, 8)) {
    case 0: return 1 + test_random_below(&w->random, BYTES_MAX);
    case 1:
    case 2: return 1 + test_random_below(&w->random, 100 * TEST_KIB);
    case 3: return (1 + test_random_below(&w->random, 4)) * 128 * TEST_KIB;
    default: return 1 + test_random_below(&w->random, 6000);
    }
}

static void step_alloc(worker *w, piece *p)
{
    static const size_t alignments[] = {0, 0, 0, 0, 256, 4096, 65536};
    const size_t stream = test_random_below(&w->random, STREAMS);
    const loch_request request = {
        .size = sizeof request,
        .bytes = choose_bytes(w),
        .alignment = alignments[test_random_below(&w->random, sizeof alignments / sizeof *alignments)],
        .stream = w->streams[stream],
        .tag = test_random_below(&w->random, 6) ? 0 : 1,
    };
    void *address = NULL;
    const loch_status status = loch_allocator_alloc(w->arena->pool, &request, &address);
    if (w->arena->has_limit && (status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED)) {
        w->refusals++;
        return;
    }
    TRY(status /* of loch_allocator_alloc */);
    EXPECT(address && (!request.alignment || (uintptr_t)address % request.alignment == 0));
    w->allocs++;
    *p = (piece){address, request.bytes, stream, ++w->stamp};
    use(w, p);
}

static void step_check(worker *w, const piece *p)
{
    if (w->arena->is_host) EXPECT(test_pattern_differs(p->address, p->bytes, p->seed) == p->bytes);
}

/* Frees on the stream of the allocation, after uses on others that were recorded or on another behind an event. */
static void step_free(worker *w, piece *p)
{
    loch_allocator *pool = w->arena->pool;
    const size_t other = test_random_below(&w->random, STREAMS);
    const size_t way = test_random_below(&w->random, 6);
    step_check(w, p);
    if (w->failure[0]) return;
    if (way < 3 || w->arena->is_host) {
        if (way == 0)
            TRY(loch_allocator_free_sized(pool, p->address, p->bytes));
        else
            TRY(loch_free(pool, p->address));
        p->address = NULL;
        return;
    }
    order(w, p->stream, other);
    if (w->failure[0]) return;
    TRY(launch(w->streams[other], p));
    if (way == 3) {
        TRY(loch_allocator_free_on(pool, p->address, w->streams[other]));
    } else {
        TRY(loch_allocator_record_use(pool, p->address, w->streams[other]));
        TRY(loch_free(pool, p->address));
    }
    p->address = NULL;
}

static void step_resize(worker *w, piece *p)
{
    void *moved = NULL;
    const size_t bytes = choose_bytes(w);
    const loch_status status = loch_allocator_realloc(w->arena->pool, p->address, bytes, NULL, &moved);
    if (w->arena->has_limit && (status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED)) return;
    TRY(status /* of loch_allocator_realloc */);
    const size_t kept = bytes < p->bytes ? bytes : p->bytes;
    if (w->arena->is_host) EXPECT(test_pattern_differs(moved, kept, p->seed) == kept);
    p->address = moved;
    p->bytes = bytes;
    p->seed = ++w->stamp;
    use(w, p);
}

/* A stream ends while its blocks are out, and another comes in its place. */
static void step_stream(worker *w)
{
    const size_t old = test_random_below(&w->random, STREAMS);
    for (size_t i = 0; i < PIECES && !w->failure[0]; i++)
        if (w->pieces[i].address && w->pieces[i].stream == old && test_random_below(&w->random, 2))
            step_free(w, &w->pieces[i]);
    if (w->failure[0]) return;
    TRY(loch_stream_sync(w->streams[old])); /* what is left is used by the new one */
    loch_stream_close(w->streams[old]);
    w->streams[old] = NULL;
    TRY(loch_stream_create(w->arena->device, NULL, &w->streams[old]));
    for (size_t i = 0; i < PIECES; i++) {
        piece *p = &w->pieces[i];
        if (!p->address || p->stream != old) continue;
        step_check(w, p);
        if (w->failure[0]) return;
        TRY(loch_free(w->arena->pool, p->address));
        p->address = NULL;
    }
}

static void step(worker *w)
{
    piece *p = &w->pieces[test_random_below(&w->random, PIECES)];
    if (test_random_below(&w->random, 150) == 0)
        step_stream(w);
    else if (!p->address)
        step_alloc(w, p);
    else if (test_random_below(&w->random, 6) == 0)
        step_resize(w, p);
    else
        step_free(w, p);
}

static void worker_work(worker *w)
{
    for (size_t i = 0; i < STREAMS; i++)
        TRY(loch_stream_create(w->arena->device, NULL, &w->streams[i]));
    TRY(loch_event_create(w->arena->device, LOCH_EVENT_PLAIN, &w->event));
    for (size_t i = 0; i < STEPS && !w->failure[0]; i++)
        step(w);
    for (size_t i = 0; i < PIECES && !w->failure[0]; i++)
        if (w->pieces[i].address) step_free(w, &w->pieces[i]);
}

static void *worker_run(void *user)
{
    worker *w = user;
    worker_work(w);
    loch_event_destroy(w->event);
    w->event = NULL;
    for (size_t i = 0; i < STREAMS; i++) {
        loch_stream_close(w->streams[i]);
        w->streams[i] = NULL;
    }
    return NULL;
}

/* --- a thread that reads statistics and disturbs --- */

static loch_status observe_block(const loch_block *block, void *user)
{
    *(uint64_t *)user += block->requested_bytes;
    return LOCH_OK;
}

static void observe(worker *w)
{
    loch_allocator *pool = w->arena->pool;
    loch_stats stats = {.size = sizeof stats};
    loch_pool_info info = {.size = sizeof info};
    char text[400];
    uint64_t seen = 0;
    switch (test_random_below(&w->random, 8)) {
    case 0: TRY(loch_allocator_trim(pool, test_random_below(&w->random, LIMIT), NULL)); break;
    case 1: TRY(loch_pool_set_idle(pool, test_random_below(&w->random, 2) * 2 * TEST_MIB)); break;
    case 2: TRY(loch_allocator_walk(pool, observe_block, &seen)); break;
    case 3:
        if (w->arena->has_limit) TRY(loch_pool_set_limit(pool, LIMIT - test_random_below(&w->random, LIMIT / 4)));
        break;
    case 4: EXPECT(test_pool_print(pool, text, sizeof text) > 20); break;
    case 5:
        TRY(loch_pool_get_info(pool, &info));
        EXPECT(info.used_bytes <= info.reserved_bytes && info.reserved_bytes <= info.peak_reserved_bytes);
        EXPECT(!w->arena->has_limit || info.reserved_bytes <= LIMIT);
        break;
    default:
        TRY(loch_allocator_get_stats(pool, &stats));
        EXPECT(stats.requested_bytes <= stats.allocated_bytes && stats.blocks <= THREADS * PIECES);
        EXPECT(stats.allocs - stats.frees == stats.blocks && stats.peak_blocks >= stats.blocks);
    }
}

static void *observer_run(void *user)
{
    worker *w = user;
    while (!atomic_load(&w->arena->is_over) && !w->failure[0]) {
        observe(w);
        sched_yield();
    }
    return NULL;
}

/* Pools of the same device come and go: they are asked for memory, and ask for it. */
static void neighbour(worker *w)
{
    loch_allocator *pool = NULL;
    void *blocks[4] = {NULL};
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    TRY(loch_pool_create(w->arena->device, "neighbour", &options, &pool));
    for (size_t i = 0; i < 4; i++)
        TRY(loch_alloc(pool, 1 + test_random_below(&w->random, BYTES_MAX), &blocks[i]));
    loch_allocator_release(pool);
    for (size_t i = 0; i < 4; i++)
        TRY(loch_free(pool, blocks[i]));
}

static void *neighbour_run(void *user)
{
    worker *w = user;
    while (!atomic_load(&w->arena->is_over) && !w->failure[0])
        neighbour(w);
    return NULL;
}

/* --- a run --- */

/* Threads come and go in every round; the pool stays. Returns how often memory was refused. */
static uint64_t run_round(arena *a, size_t round)
{
    static worker workers[THREADS + 2];
    void *(*const runs[2])(void *) = {observer_run, neighbour_run};
    pthread_t threads[THREADS + 2];
    uint64_t refusals = 0, allocs = 0;
    atomic_store(&a->is_over, false);
    for (size_t t = 0; t < THREADS + 2; t++) {
        workers[t] = (worker){.arena = a, .stamp = t << 40, .random.state = seed * 1000 + round * 100 + t};
        assert_int_equal(pthread_create(&threads[t], NULL, t < THREADS ? worker_run : runs[t - THREADS], &workers[t]),
                         0);
    }
    for (size_t t = 0; t < THREADS + 2; t++) {
        if (t == THREADS) atomic_store(&a->is_over, true);
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        if (workers[t].failure[0])
            print_error("seed %llu, round %zu, thread %zu: %s\n", (unsigned long long)seed, round, t,
                        workers[t].failure);
    }
    for (size_t t = 0; t < THREADS + 2; t++) {
        assert_int_equal(workers[t].failure[0], 0);
        refusals += workers[t].refusals;
        allocs += workers[t].allocs;
    }
    assert_true(allocs > THREADS * STEPS / 8);
    return refusals;
}

static void check_end(const arena *a)
{
    loch_stats stats = {.size = sizeof stats};
    const char *wrong = lochi_pool_check(lochi_pool_of(a->pool));
    if (wrong) fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
    CHECK_OK(loch_allocator_get_stats(a->pool, &stats));
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.allocated_bytes, 0);
    CHECK_OK(loch_allocator_trim(a->pool, 0, NULL));
    CHECK_OK(loch_allocator_get_stats(a->pool, &stats));
    assert_int_equal(stats.reserved_bytes, 0);
}

static void check_order(const arena *a)
{
    loch_sim_violation first = {0};
    loch_sim_stats stats = {.size = sizeof stats};
    size_t count = 0;
    if (a->is_host) return;
    CHECK_OK(test_sim_violations(a->device, &first, 1, &count));
    if (count)
        fail_msg("seed %llu: %zu uses without order, the first: %s", (unsigned long long)seed, count, first.text);
    CHECK_OK(loch_sim_get_stats(a->device, &stats));
    assert_int_equal(stats.physical_bytes, 0);
    assert_int_equal(stats.events, 0);
}

static void stress(const char *device, const loch_pool_options *options)
{
    loch_host_usage before = {.size = sizeof before}, usage = {.size = sizeof usage};
    arena a = {.is_host = strcmp(device, "cpu") == 0, .has_limit = options->limit_bytes != 0};
    loch_pool_info info = {.size = sizeof info};
    uint64_t refusals = 0;
    CHECK_OK(loch_host_get_usage(&before));
    CHECK_OK(loch_device_open(device, &a.device));
    CHECK_OK(loch_pool_create(a.device, "stress", options, &a.pool));
    for (size_t round = 0; round < ROUNDS; round++)
        refusals += run_round(&a, round);
    check_end(&a);
    CHECK_OK(loch_pool_get_info(a.pool, &info));
    print_message("%s: %llu handles created, %llu moved, %llu waits on the device, %llu on the host, %llu refusals\n",
                  device, (unsigned long long)info.handles_created, (unsigned long long)info.handles_moved,
                  (unsigned long long)info.waits_on_device, (unsigned long long)info.waits_on_host,
                  (unsigned long long)refusals);
    assert_true(!a.has_limit || refusals + info.waits_on_device + info.waits_on_host > 0);
    loch_allocator_release(a.pool);
    check_order(&a);
    loch_device_release(a.device);
    CHECK_OK(loch_host_get_usage(&usage));
    assert_int_equal(usage.blocks, before.blocks);
}

/* --- cases --- */

static void threads_keep_blocks_apart_on_sim(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    stress("sim:1GiB,granule=64KiB", &options);
}

static void threads_keep_blocks_apart_on_large_granules(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    stress("sim:1GiB,lag=50000", &options);
}

static void threads_keep_blocks_apart_without_aliases(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    stress("sim:1GiB,granule=64KiB,alias=off", &options);
}

static void threads_keep_blocks_apart_on_raw_memory(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    stress("sim:1GiB,virtual=off", &options);
}

static void threads_keep_blocks_apart_with_whole_blocks(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT, .preset = LOCH_POOL_WHOLE_BLOCKS};
    stress("sim:1GiB,granule=64KiB", &options);
}

static void threads_keep_blocks_apart_on_the_cpu(void **state)
{
    (void)state;
    const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = LIMIT}, free = {.size = sizeof free};
    stress("cpu", &limited);
    stress("cpu", &free);
}

/* The checker sees it when a block is used after its free on a stream that nothing orders: so the cases above can
 * fail. */
static void a_wrong_program_is_found(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *pool;
    loch_stream *one, *two;
    size_t count = 0;
    CHECK_OK(loch_device_open("sim:1GiB,granule=64KiB,clock=stepped,id=7", &device));
    CHECK_OK(loch_pool_create(device, "wrong", NULL, &pool));
    CHECK_OK(loch_stream_create(device, NULL, &one));
    CHECK_OK(loch_stream_create(device, NULL, &two));
    const loch_request request = {.size = sizeof request, .bytes = 300 * TEST_KIB, .stream = one};
    piece p = {.bytes = request.bytes}, again = {.bytes = request.bytes};
    CHECK_OK(loch_allocator_alloc(pool, &request, (void **)&p.address));
    CHECK_OK(loch_free(pool, p.address));
    CHECK_OK(loch_allocator_alloc(pool, &request, (void **)&again.address));
    assert_ptr_equal(p.address, again.address);
    CHECK_OK(launch(one, &again));
    CHECK_OK(test_sim_violations(device, NULL, 0, &count));
    assert_int_equal(count, 0);
    CHECK_OK(launch(two, &p)); /* it was freed, and is another's */
    CHECK_OK(test_sim_violations(device, NULL, 0, &count));
    assert_true(count > 0);
    CHECK_OK(loch_sim_clear_violations(device));
    CHECK_OK(loch_free(pool, again.address));
    CHECK_OK(loch_device_sync(device));
    loch_allocator_release(pool);
    loch_stream_close(one);
    loch_stream_close(two);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_program_is_found),
        cmocka_unit_test(threads_keep_blocks_apart_on_sim),
        cmocka_unit_test(threads_keep_blocks_apart_on_large_granules),
        cmocka_unit_test(threads_keep_blocks_apart_without_aliases),
        cmocka_unit_test(threads_keep_blocks_apart_on_raw_memory),
        cmocka_unit_test(threads_keep_blocks_apart_with_whole_blocks),
        cmocka_unit_test(threads_keep_blocks_apart_on_the_cpu),
    };
    loch_tag tag;
    seed = test_seed(20261115);
    if (loch_tag_create("stress", &tag) != LOCH_OK) return 1;
    return cmocka_run_group_tests_name("a pool under stress", tests, NULL, NULL);
}
