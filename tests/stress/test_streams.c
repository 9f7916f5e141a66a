/* SPDX-License-Identifier: MIT */
/* Streams that go while blocks remember them. Owners take blocks on streams of their own, queue work, hand the blocks
 * over and destroy the streams, or end and take their default stream along; at the same time others free the blocks,
 * which waits for, records on or fills behind the very streams that are going. ThreadSanitizer and AddressSanitizer see
 * a use of a queue that is gone. */
#include "allocators.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define OWNERS 3
#define FREERS 2
#define GENERATIONS 30 /* of owners: each is a thread of its own */
#define STREAMS 6      /* of one owner */
#define BOXES 8
#define BYTES 512

typedef struct river {
    loch_allocator *allocator;
    loch_device *device;
    _Atomic(void *) boxes[BOXES]; /* blocks to be freed by another thread */
    atomic_bool is_over;
} river;

typedef struct worker {
    river *river;
    test_random random;
    char failure[400];
} worker;

static void free_block(worker *w, void *block)
{
    if (block) TRY(loch_free(w->river->allocator, block));
}

/* Puts a block into a box; what was there is freed here. */
static void hand_over(worker *w, void *block)
{
    free_block(w, atomic_exchange(&w->river->boxes[test_random_below(&w->random, BOXES)], block));
}

static void use_stream(worker *w, loch_stream *stream, loch_stream *further)
{
    const loch_request request = {.size = sizeof request, .bytes = BYTES, .stream = stream};
    void *block = NULL;
    TRY(loch_allocator_alloc(w->river->allocator, &request, &block));
    TRY(loch_fill_on(block, BYTES, "x", 1, stream));
    if (further) TRY(loch_allocator_record_use(w->river->allocator, block, further));
    hand_over(w, block);
}

static void own_streams(worker *w)
{
    const loch_stream_options options = {.size = sizeof options, .order = LOCH_STREAM_INDEPENDENT};
    loch_stream *own;
    TRY(loch_stream_require_thread_default(w->river->device, &own));
    for (int i = 0; i < STREAMS && !w->failure[0]; i++) {
        loch_stream *stream;
        TRY(loch_stream_create(w->river->device, &options, &stream));
        use_stream(w, stream, i % 2 ? own : NULL);
        if (!w->failure[0]) use_stream(w, own, i % 3 ? stream : NULL);
        loch_stream_close(stream);
    }
}

static void *owner_run(void *argument)
{
    own_streams(argument);
    return NULL;
}

static void *freer_run(void *argument)
{
    worker *w = argument;
    while (!atomic_load(&w->river->is_over) && !w->failure[0])
        free_block(w, atomic_exchange(&w->river->boxes[test_random_below(&w->random, BOXES)], NULL));
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), worker *w, river *r, uint64_t seed)
{
    *w = (worker){.river = r, .random = {seed}};
    assert_int_equal(pthread_create(thread, NULL, run, w), 0);
}

static void join(pthread_t thread, const worker *w)
{
    pthread_join(thread, NULL);
    if (w->failure[0]) print_error("%s\n", w->failure);
    assert_string_equal(w->failure, "");
}

static void run_river(loch_device *device, loch_allocator *allocator)
{
    river r = {.allocator = allocator, .device = device};
    pthread_t freers[FREERS], owners[OWNERS];
    worker freeing[FREERS], owning[OWNERS];
    uint64_t seed = test_seed(5);
    for (size_t i = 0; i < FREERS; i++)
        start(&freers[i], freer_run, &freeing[i], &r, ++seed);
    for (int generation = 0; generation < GENERATIONS; generation++) {
        for (size_t i = 0; i < OWNERS; i++)
            start(&owners[i], owner_run, &owning[i], &r, ++seed);
        for (size_t i = 0; i < OWNERS; i++)
            join(owners[i], &owning[i]);
    }
    atomic_store(&r.is_over, true);
    for (size_t i = 0; i < FREERS; i++)
        join(freers[i], &freeing[i]);
    for (size_t i = 0; i < BOXES; i++)
        CHECK_OK(loch_free(allocator, atomic_load(&r.boxes[i])));
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    assert_int_equal(stats.blocks, 0);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

static loch_device *open_sim(void)
{
    loch_device *device;
    CHECK_OK(loch_device_open("sim:1GiB,backed,lag=500", &device));
    return device;
}

static loch_allocator *make_direct(loch_device *device, loch_direct_options options)
{
    loch_allocator *allocator;
    options.size = sizeof options;
    CHECK_OK(loch_direct_create(device, NULL, &options, &allocator));
    return allocator;
}

static void a_direct_free_waits_for_every_stream(void **state)
{
    (void)state;
    loch_device *device = open_sim();
    run_river(device, make_direct(device, (loch_direct_options){.red_zone_bytes = 64, .poison = 0xdd}));
}

static void a_deferred_free_waits_for_every_stream(void **state)
{
    (void)state;
    loch_device *device = open_sim();
    run_river(device,
              make_direct(device, (loch_direct_options){
                                      .when = LOCH_DIRECT_FREE_DEFERRED, .red_zone_bytes = 64, .poison = 0xdd}));
}

static void a_guarded_free_waits_for_every_stream(void **state)
{
    (void)state;
    loch_device *device = open_sim();
    loch_allocator *direct = make_direct(device, (loch_direct_options){.red_zone_bytes = 0}), *guard;
    CHECK_OK(loch_redzone_create(direct, NULL, NULL, &guard));
    loch_allocator_release(direct);
    run_river(device, guard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_direct_free_waits_for_every_stream),
        cmocka_unit_test(a_deferred_free_waits_for_every_stream),
        cmocka_unit_test(a_guarded_free_waits_for_every_stream),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
