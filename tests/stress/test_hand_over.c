/* SPDX-License-Identifier: MIT */
/* Threads that free each other's blocks, of several streams and tags, while another thread flushes, walks, measures and
 * asks for more than fits. Contents stay, the order of streams holds, and nothing is lost. Seeded. */
#include "pool_fixture.h"
#include "worker.h"

#include <loch/tag.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MIB TEST_MIB
#define KIB TEST_KIB
#define WORKERS 4
#define STREAMS 3
#define PLACES 256
#define STEPS 8000

typedef struct block {
    unsigned char *address;
    size_t bytes;
    loch_stream *stream;
    unsigned char mark;
} block;

typedef struct scene {
    loch_allocator *pool;
    loch_stream *streams[STREAMS];
    loch_tag tag;
    bool is_host; /* contents are checked; elsewhere the device checks the order of its work */
    _Atomic(block *) places[PLACES];
    atomic_uint running;
    atomic_bool has_failed;
} scene;

typedef struct worker {
    pthread_t thread;
    scene *scene;
    test_random random;
    bool is_making;
    int step;
    char failure[400];
} worker;

/* Chooses among a few sizes, others after a while: so caches fill with sizes that are used no more. */
static size_t choose_bytes(worker *w)
{
    static const size_t sizes[] = {48, 1000, 65536, 4096, 20000, 8192, 200000};
    if (test_random_below(&w->random, 20) == 0) return 1 + test_random_below(&w->random, 300000);
    return sizes[(w->step / 800 + test_random_below(&w->random, 2)) % (sizeof sizes / sizeof *sizes)];
}

static void make_block(worker *w, block *b)
{
    scene *s = w->scene;
    const loch_request request = {.size = sizeof request,
                                  .bytes = choose_bytes(w),
                                  .stream = s->streams[test_random_below(&w->random, STREAMS)],
                                  .tag = test_random_below(&w->random, 20) ? 0 : s->tag};
    void *address;
    TRY(loch_allocator_alloc(s->pool, &request, &address));
    *b = (block){address, request.bytes, request.stream, (unsigned char)test_random_below(&w->random, 256)};
    if (s->is_host) {
        b->address[0] = b->address[b->bytes - 1] = b->mark;
    } else {
        TRY(loch_fill_on(address, b->bytes < 64 ? b->bytes : 64, "x", 1, b->stream));
    }
}

static void end_block(worker *w, block *b)
{
    scene *s = w->scene;
    if (s->is_host) {
        EXPECT(b->address[0] == b->mark && b->address[b->bytes - 1] == b->mark);
    } else {
        TRY(loch_fill_on(b->address, b->bytes < 64 ? b->bytes : 64, "y", 1, b->stream));
    }
    if (test_random_below(&w->random, 50) == 0)
        TRY(loch_allocator_record_use(s->pool, b->address, s->streams[test_random_below(&w->random, STREAMS)]));
    TRY(loch_free(s->pool, b->address));
}

/* Threads with an even number make blocks, the others end them. */
static void *work(void *user)
{
    worker *w = user;
    for (int i = 0; i < STEPS && !w->failure[0] && !atomic_load(&w->scene->has_failed); i++) {
        w->step = i;
        block *b = NULL;
        if (w->is_making) {
            b = calloc(1, sizeof *b);
            if (b) make_block(w, b);
            if (!b || !b->address) {
                free(b);
                break;
            }
        }
        bool is_done = false; /* a maker needs an empty place, the others a full one */
        while (!is_done && !atomic_load(&w->scene->has_failed)) {
            _Atomic(block *) *place = &w->scene->places[test_random_below(&w->random, PLACES)];
            block *none = NULL;
            if (w->is_making) {
                is_done = atomic_compare_exchange_strong(place, &none, b);
            } else {
                free(b); /* NULL: only makers have a block here */
                b = atomic_exchange(place, NULL);
                is_done = b != NULL;
            }
            if (!is_done) sched_yield();
        }
        if (is_done && w->is_making) continue;
        if (b) end_block(w, b);
        free(b);
    }
    if (w->failure[0]) atomic_store(&w->scene->has_failed, true);
    atomic_fetch_sub(&w->scene->running, 1);
    return NULL;
}

static loch_status count_block(const loch_block *found, void *user)
{
    ++*(size_t *)user;
    return found->requested_bytes <= found->allocated_bytes ? LOCH_OK : LOCH_E_CORRUPT;
}

static void disturb(scene *s, test_random *random, loch_device *device)
{
    size_t count = 0;
    switch (test_random_below(random, 7)) {
    case 0: (void)pool_trim(s->pool, test_random_below(random, 2) ? 0 : 8 * MIB); break;
    case 1: CHECK_OK(loch_allocator_walk(s->pool, count_block, &count)); break;
    case 2: {
        const loch_stats stats = pool_stats(s->pool);
        assert_true(stats.peak_requested_bytes >= stats.requested_bytes);
        assert_true(stats.peak_allocated_bytes <= stats.peak_reserved_bytes);
        break;
    }
    case 3: pool_expect_whole(s->pool); break;
    case 4: CHECK_OK(loch_allocator_reset_stats(s->pool)); break;
    case 5: { /* needs what threads keep, or fails */
        void *much;
        const loch_status status = pool_try_alloc(s->pool, 110 * MIB, 0, NULL, &much);
        if (status == LOCH_OK)
            CHECK_OK(loch_free(s->pool, much));
        else
            assert_true((POOL_SHORT & 1u << status) != 0);
        break;
    }
    default: { /* a stream that ends, with its lane */
        loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        for (int i = 0; i < 40; i++)
            CHECK_OK(loch_free(s->pool, pool_alloc_on(s->pool, i % 2 ? 1000 : 30000, stream)));
        loch_stream_release(stream);
    }
    }
}

static void hand_over_on(const char *name)
{
    static scene s;
    loch_device *device = sim_open(name);
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 160 * MIB};
    memset(&s, 0, sizeof s);
    s.pool = pool_make(device, &options);
    s.is_host = !strcmp(name, "cpu");
    CHECK_OK(loch_tag_create("handed over", &s.tag));
    for (size_t i = 0; i < STREAMS; i++)
        s.streams[i] = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    worker workers[WORKERS];
    test_random random = {test_seed(3)};
    atomic_store(&s.running, WORKERS);
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.scene = &s, .is_making = i % 2 == 0, .random.state = random.state + 1 + i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    while (atomic_load(&s.running)) {
        disturb(&s, &random, device);
        usleep((useconds_t)test_random_below(&random, 2000)); /* lets the threads fill their caches */
    }
    for (size_t i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
    }
    worker last = {.scene = &s, .random = random};
    for (size_t i = 0; i < PLACES; i++) {
        block *b = atomic_exchange(&s.places[i], NULL);
        if (b) end_block(&last, b);
        free(b);
    }
    if (last.failure[0]) fail_msg("%s", last.failure);
    assert_true(atomic_load(&lochi_pool_of(s.pool)->has_transfer));
    loch_stats tagged = {.size = sizeof tagged};
    CHECK_OK(loch_allocator_get_tag_stats(s.pool, s.tag, &tagged));
    assert_int_equal(tagged.blocks, 0);
    assert_int_equal(tagged.requested_bytes, 0);
    CHECK_OK(loch_allocator_reset_stats(s.pool)); /* some blocks were allocated before the last one */
    for (size_t i = 0; i < STREAMS; i++)
        loch_stream_release(s.streams[i]);
    if (s.is_host)
        pool_end(s.pool, device);
    else
        pool_end_sim(s.pool, device);
}

static void on_the_host(void **state)
{
    (void)state;
    hand_over_on("cpu");
}

static void on_a_device_that_checks_the_order_of_work(void **state)
{
    (void)state;
    hand_over_on("sim:256MiB,backed");
    hand_over_on("sim:256MiB,backed,granule=64KiB,alias=off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {POOL_TEST(on_the_host), POOL_TEST(on_a_device_that_checks_the_order_of_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
