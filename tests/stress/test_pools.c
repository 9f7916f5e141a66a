/* SPDX-License-Identifier: MIT */
/* A pool under everything at once: threads take, use, hand over and free blocks on shared and own streams, near the
 * limit, while others read, walk, trim, change settings, grow blocks and put memory to sleep, and streams come and go.
 * Kernels write every block, so the simulator's checker sees memory that two have at a time; TSan sees the rest. */
#include "test.h"
#include "worker.h"

#include <loch/sleep.h>
#include <loch/tag.h>
#include <pthread.h>
#include <stdatomic.h>

#define WORKERS 4
#define STEPS 5000
#define BOXES 16
#define LIVE 12
#define SHARED 2

typedef struct scene {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *shared[SHARED];
    _Atomic(void *) boxes[BOXES]; /* blocks of the shared streams, to be freed by another thread */
    atomic_bool is_over;
} scene;

typedef struct worker {
    scene *scene;
    test_random random;
    char failure[400];
} worker;

static loch_status write_block(loch_stream *stream, void *block, size_t bytes)
{
    const loch_sim_range range = {block, bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .name = "writer", .duration_ns = 2000, .writes = &range, .writes_count = 1};
    return loch_sim_launch(stream, &kernel);
}

static size_t choose_bytes(worker *w)
{
    static const size_t limits[] = {2000, 8 << 10, 200 << 10, 3 << 20, 9 << 20};
    return 1 + test_random_below(&w->random, limits[test_random_below(&w->random, 5)]);
}

/* Takes a block and writes it; none when memory is short, which it is from time to time. */
static void take(worker *w, loch_stream *stream, void **out)
{
    const loch_request request = {.size = sizeof request, .bytes = choose_bytes(w), .stream = stream};
    const loch_status status = loch_allocator_alloc(w->scene->pool, &request, out);
    if (status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED || status == LOCH_E_DEVICE_MEMORY) return;
    TRY(status);
    TRY(write_block(stream, *out, request.bytes));
}

static void give(worker *w, void *block)
{
    if (block) TRY(loch_free(w->scene->pool, block));
}

/* Some steps on a stream of its own, which goes with blocks still out. */
static void work_alone(worker *w)
{
    loch_stream *stream;
    void *blocks[LIVE] = {NULL};
    TRY(loch_stream_create(w->scene->device, NULL, &stream));
    for (size_t i = 0; i < LIVE && !*w->failure; i++) {
        take(w, stream, &blocks[i]);
        if (i % 3 == 0) {
            give(w, blocks[i]);
            blocks[i] = NULL;
        }
    }
    loch_stream_close(stream);
    for (size_t i = 0; i < LIVE; i++)
        give(w, blocks[i]);
}

/* A block of a shared stream, sometimes used on the other stream, goes through a box to the thread that frees it. */
static void hand_over(worker *w)
{
    scene *s = w->scene;
    const size_t index = test_random_below(&w->random, SHARED);
    void *block = NULL;
    take(w, s->shared[index], &block);
    if (block && test_random_below(&w->random, 3) == 0)
        TRY(loch_allocator_record_use(s->pool, block, s->shared[1 - index]));
    give(w, atomic_exchange(&s->boxes[test_random_below(&w->random, BOXES)], block));
}

static void *work(void *user)
{
    worker *w = user;
    for (size_t step = 0; step < STEPS && !*w->failure; step++) {
        if (test_random_below(&w->random, 20) == 0)
            work_alone(w);
        else
            hand_over(w);
    }
    return NULL;
}

static loch_status look(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes;
    return LOCH_OK;
}

static void meddle(worker *w, size_t turn)
{
    scene *s = w->scene;
    loch_pool_info info = {.size = sizeof info};
    loch_stats stats = {.size = sizeof stats};
    size_t bytes = 0;
    TRY(loch_pool_get_info(s->pool, &info));
    EXPECT(info.reserved_bytes <= info.limit_bytes || !info.limit_bytes);
    TRY(loch_allocator_get_stats(s->pool, &stats));
    TRY(loch_allocator_walk(s->pool, look, &bytes));
    if (turn % 32 == 0) TRY(loch_allocator_measure(s->pool, turn % 64 ? LOCH_MEASURE_OFF : LOCH_MEASURE_ON));
    if (turn % 4 == 0) TRY(loch_allocator_trim(s->pool, 8 * TEST_MIB, &bytes));
    if (turn % 8 == 0) TRY(loch_pool_set_idle(s->pool, turn % 16 ? 0 : 16 * TEST_MIB));
    if (turn % 16 == 0) TRY(loch_allocator_reset_stats(s->pool));
}

static void *disturb(void *user)
{
    worker *w = user;
    for (size_t turn = 0; !atomic_load(&w->scene->is_over) && !*w->failure; turn++)
        meddle(w, turn);
    return NULL;
}

/* A growable block grows, shrinks and goes; none when memory is short. */
static void grow(worker *w)
{
    void *block = NULL;
    const loch_request request = {.size = sizeof request, .bytes = 1 + test_random_below(&w->random, TEST_MIB)};
    const size_t max = (test_random_below(&w->random, 2) ? 16 : 1024) * TEST_MIB; /* in the pool's range, or not */
    loch_status status = loch_pool_alloc_growable(w->scene->pool, max, &request, &block);
    for (size_t i = 0; i < 4 && status == LOCH_OK; i++)
        status = loch_pool_resize_growable(w->scene->pool, block, test_random_below(&w->random, 8 * TEST_MIB));
    EXPECT(status == LOCH_OK || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED ||
           status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_UNSUPPORTED);
    give(w, block);
}

/* A block of a tag of its own sleeps and wakes, while the rest of the pool works. A sleep may find the pool busy. */
static void doze(worker *w)
{
    loch_tag tag;
    void *block = NULL;
    TRY(loch_tag_create("dozing", &tag));
    const loch_request request = {.size = sizeof request, .bytes = 4 * TEST_MIB, .tag = tag};
    if (loch_allocator_alloc(w->scene->pool, &request, &block) != LOCH_OK) return;
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_DROP, .tag = tag};
    const loch_status status = loch_pool_sleep(w->scene->pool, &options, NULL);
    EXPECT(status == LOCH_OK || status == LOCH_E_BUSY || status == LOCH_E_UNSUPPORTED);
    const bool is_freed_asleep = test_random_below(&w->random, 2) == 0;
    if (is_freed_asleep) give(w, block);
    loch_status woken;
    do
        woken = loch_pool_wake(w->scene->pool, NULL);
    while (woken == LOCH_E_LIMIT || woken == LOCH_E_FRAGMENTED || woken == LOCH_E_DEVICE_MEMORY);
    TRY(woken);
    if (!is_freed_asleep) give(w, block);
}

static void *supply(void *user)
{
    worker *w = user;
    for (size_t turn = 0; !atomic_load(&w->scene->is_over) && !*w->failure; turn++) {
        grow(w);
        if (turn % 4 == 0) doze(w);
        if (turn % 8 == 0) LOCH_IGNORE(loch_pool_compact(w->scene->pool, NULL, NULL));
    }
    return NULL;
}

static void run(const char *device, const loch_pool_options *options)
{
    scene s = {.is_over = false};
    const uint64_t seed = test_seed(26);
    CHECK_OK(loch_device_open(device, &s.device));
    CHECK_OK(loch_pool_create(s.device, "pool", options, &s.pool));
    for (size_t i = 0; i < SHARED; i++)
        CHECK_OK(loch_stream_create(s.device, NULL, &s.shared[i]));
    worker workers[WORKERS + 2];
    pthread_t threads[WORKERS + 2];
    for (size_t i = 0; i < WORKERS + 2; i++) {
        workers[i] = (worker){.scene = &s, .random = {seed + i}};
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < WORKERS    ? work
                                        : i == WORKERS ? disturb
                                                       : supply,
                                        &workers[i]),
                         0);
    }
    for (size_t i = 0; i < WORKERS + 2; i++) {
        if (i == WORKERS) atomic_store(&s.is_over, true);
        pthread_join(threads[i], NULL);
        if (*workers[i].failure) fail_msg("%s", workers[i].failure);
    }
    for (size_t i = 0; i < BOXES; i++)
        CHECK_OK(loch_free(s.pool, s.boxes[i]));
    size_t released, violations;
    CHECK_OK(loch_allocator_trim(s.pool, 0, &released));
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(s.pool, &info));
    assert_int_equal(info.used_bytes, 0);
    assert_int_equal(info.reserved_bytes, 0);
    CHECK_OK(loch_device_sync(s.device));
    loch_sim_violation first;
    CHECK_OK(test_sim_violations(s.device, &first, 1, &violations));
    if (violations) fail_msg("%zu violations: %s", violations, first.text);
    loch_allocator_release(s.pool);
    for (size_t i = 0; i < SHARED; i++)
        loch_stream_close(s.shared[i]);
    loch_device_release(s.device);
}

static void pools_stay_whole_under_threads_streams_and_captures(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 128 * TEST_MIB};
    run("sim:1GiB", &options);
}

static void pools_stay_whole_under_threads_without_captures(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .limit_bytes = 96 * TEST_MIB, .captures = LOCH_POOL_CAPTURES_NONE};
    run("sim:1GiB", &options);
}

static void pools_of_whole_blocks_stay_whole_under_threads(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS};
    run("sim:2GiB", &options);
}

static void pools_without_aliases_stay_whole_under_threads(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 128 * TEST_MIB};
    run("sim:1GiB,alias=off", &options);
}

static void pinned_pools_stay_whole_under_threads(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .kind = LOCH_MEMORY_PINNED, .limit_bytes = 160 * TEST_MIB};
    run("sim:1GiB", &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_stay_whole_under_threads_streams_and_captures),
        cmocka_unit_test(pools_stay_whole_under_threads_without_captures),
        cmocka_unit_test(pools_of_whole_blocks_stay_whole_under_threads),
        cmocka_unit_test(pools_without_aliases_stay_whole_under_threads),
        cmocka_unit_test(pinned_pools_stay_whole_under_threads),
    };
    return cmocka_run_group_tests_name("pools", tests, NULL, NULL);
}
