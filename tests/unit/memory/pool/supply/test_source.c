/* SPDX-License-Identifier: MIT */
/* Pools whose segments come from another allocator, and pools in which every block is a segment. */
#include "pool_fixture.h"
#include "worker.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIM "sim:256MiB,granule=64KiB,backed"
#define MIB TEST_MIB

/* --- an allocator of the user, which counts and can fail --- */

typedef struct supplier {
    loch_device *device;
    loch_allocator *allocator, *pool; /* the pool on it is looked at during each call */
    _Atomic size_t allocs, frees, bytes, peak_bytes, refused;
    _Atomic size_t fail_from; /* calls from this number on fail; 0: none */
    _Atomic size_t capacity;  /* in bytes; 0: none */
    size_t shift;             /* blocks start this far behind an aligned address */
    loch_status failure;      /* LOCH_E_DEVICE_MEMORY unless set */
    size_t sizes[64];         /* of the first allocations */
    _Atomic bool is_slow;     /* the first thread that gets memory keeps it until another was refused twice */
    _Atomic bool is_held;     /* and until this is cleared */
} supplier;

#define SUPPLIER_HEAD ((size_t)64 << 10)

/* The pool can be asked: no lock of it is held. */
static void supplier_look(const supplier *it)
{
    if (!it->pool) return;
    loch_pool_info info = {.size = sizeof info};
    LOCH_CHECK(loch_pool_get_info(it->pool, &info));
    LOCH_CHECK(loch_allocator_trim(it->pool, SIZE_MAX, NULL));
}

static loch_status supplier_alloc(void *self, const loch_request *request, void **out)
{
    supplier *it = self;
    supplier_look(it);
    const size_t call = atomic_fetch_add(&it->allocs, 1) + 1, bytes = request->bytes;
    const size_t from = atomic_load(&it->fail_from), capacity = atomic_load(&it->capacity);
    if ((from && call >= from) || (capacity && atomic_load(&it->bytes) + bytes > capacity)) {
        atomic_fetch_add(&it->refused, 1);
        return loch_error_set(it->failure ? it->failure : LOCH_E_DEVICE_MEMORY, NULL, 0,
                              "the supplier has no %zu bytes", bytes);
    }
    char *base;
    const size_t head = SUPPLIER_HEAD + it->shift;
    if (posix_memalign((void **)&base, SUPPLIER_HEAD, bytes + head) != 0)
        return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "libc has no %zu bytes", bytes);
    memcpy(base, &bytes, sizeof bytes);
    if (call <= 64) it->sizes[call - 1] = bytes;
    const size_t now = atomic_fetch_add(&it->bytes, bytes) + bytes;
    size_t peak = atomic_load(&it->peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&it->peak_bytes, &peak, now))
        ;
    if (atomic_exchange(&it->is_slow, false))
        for (int naps = 0; (atomic_load(&it->refused) < 2 || atomic_load(&it->is_held)) && naps < 20000; naps++)
            usleep(1000);
    *out = base + head;
    return LOCH_OK;
}

static loch_status supplier_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    supplier *it = self;
    (void)stream;
    supplier_look(it);
    char *base = (char *)address - SUPPLIER_HEAD - it->shift;
    size_t had;
    memcpy(&had, base, sizeof had);
    if (bytes && bytes != had) return loch_error_set(LOCH_E_INVALID, NULL, 0, "%zu bytes, not %zu", bytes, had);
    atomic_fetch_add(&it->frees, 1);
    atomic_fetch_sub(&it->bytes, had);
    free(base);
    return LOCH_OK;
}

static supplier *supplier_open(const char *device)
{
    static const loch_allocator_ops ops = {.size = sizeof ops,
                                           .kind = "supplier",
                                           .traits = LOCH_TRAIT_THREAD_SAFE,
                                           .alloc = supplier_alloc,
                                           .free = supplier_free};
    supplier *it = calloc(1, sizeof *it);
    assert_non_null(it);
    it->device = sim_open(device);
    CHECK_OK(loch_allocator_create(it->device, "supplier", &ops, it, &it->allocator));
    return it;
}

static loch_allocator *supplier_pool(supplier *it, loch_pool_options options)
{
    loch_allocator *pool;
    options.size = sizeof options;
    options.source = it->allocator;
    CHECK_OK(loch_pool_create(it->device, "on source", &options, &pool));
    it->pool = pool;
    return pool;
}

/* Everything has come back. */
static void supplier_close(supplier *it)
{
    if (it->pool) {
        loch_allocator *pool = it->pool;
        pool_expect_empty(pool);
        assert_int_equal(atomic_load(&it->bytes), 0);
        it->pool = NULL;
        loch_allocator_release(pool);
    }
    assert_int_equal(atomic_load(&it->allocs) - atomic_load(&it->refused), atomic_load(&it->frees));
    loch_allocator_release(it->allocator);
    loch_device_release(it->device);
    free(it);
}

/* --- segments --- */

static void segments_come_from_the_source(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){0});
    static const size_t sizes[] = {1, 100, 8000, 9000, 70000, 3 << 20, 30 << 20};
    char *blocks[7];
    for (size_t i = 0; i < 7; i++) {
        blocks[i] = pool_alloc(pool, sizes[i]);
        test_pattern_write(blocks[i], sizes[i], i);
    }
    assert_true(atomic_load(&it->allocs) >= 2);
    assert_int_equal(atomic_load(&it->bytes), pool_info(pool).reserved_bytes);
    assert_int_equal(atomic_load(&it->allocs), pool_info(pool).handles);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(test_pattern_differs(blocks[i], sizes[i], i), sizes[i]);
        CHECK_OK(loch_free(pool, blocks[i]));
    }
    const size_t held = atomic_load(&it->bytes);
    assert_int_equal(pool_trim(pool, 0), held);
    assert_int_equal(atomic_load(&it->bytes), 0);
    CHECK_FAILS(loch_pool_sleep(pool, NULL, NULL), UNSUPPORTED);
    void *none;
    CHECK_FAILS(loch_pool_alloc_growable(pool, MIB, NULL, &none), UNSUPPORTED);
    supplier_close(it);
}

static void the_size_of_segments_is_that_of_handles(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){.handle_bytes = 4 * MIB});
    void *small = pool_alloc(pool, 100), *large = pool_alloc(pool, 9 * MIB), *other = pool_alloc(pool, 2 * MIB);
    assert_int_equal(it->sizes[0], 4 * MIB);
    assert_int_equal(it->sizes[1], 9 * MIB); /* a segment of its own */
    CHECK_OK(loch_free(pool, small));
    CHECK_OK(loch_free(pool, large));
    CHECK_OK(loch_free(pool, other));
    supplier_close(it);
}

static void limits_and_caps_hold(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){.limit_bytes = 8 * MIB, .idle_bytes = 2 * MIB});
    void *a = pool_alloc(pool, 3 * MIB), *b = pool_alloc(pool, 3 * MIB), *none;
    CHECK_FAILS_SET(loch_alloc(pool, 3 * MIB, &none), POOL_SHORT);
    assert_true(atomic_load(&it->peak_bytes) <= 8 * MIB);
    CHECK_OK(loch_free(pool, a));
    CHECK_OK(loch_free(pool, b));
    assert_true(atomic_load(&it->bytes) <= 2 * MIB); /* the rest went back at once */
    CHECK_OK(loch_pool_set_limit(pool, 4 * MIB));
    a = pool_alloc(pool, 3 * MIB);
    CHECK_FAILS_SET(loch_alloc(pool, 3 * MIB, &none), POOL_SHORT);
    CHECK_OK(loch_free(pool, a));
    supplier_close(it);
}

/* Memory that lies idle in segments of the wrong size goes back before a request fails. */
static void idle_segments_go_back_before_a_request_fails(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){0});
    atomic_store(&it->capacity, 16 * MIB);
    void *blocks[4];
    for (size_t i = 0; i < 4; i++)
        blocks[i] = pool_alloc(pool, 4 * MIB - 100000);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    void *large = pool_alloc(pool, 15 * MIB);
    CHECK_OK(loch_free(pool, large));
    assert_true(atomic_load(&it->peak_bytes) <= 16 * MIB);
    supplier_close(it);
}

static size_t press(loch_allocator *allocator, size_t bytes, void *user)
{
    supplier *it = user;
    (void)allocator;
    if (!atomic_load(&it->fail_from)) return 0;
    atomic_store(&it->fail_from, 0);
    return bytes;
}

static void a_source_that_fails_is_asked_again(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){0});
    void *none = TEST_UNTOUCHED;
    atomic_store(&it->fail_from, 1);
    CHECK_FAILS(loch_alloc(pool, MIB, &none), DEVICE_MEMORY);
    assert_null(none);
    it->failure = LOCH_E_LIMIT;
    CHECK_FAILS_SET(loch_alloc(pool, 100, &none), POOL_SHORT);
    assert_non_null(strstr(loch_error_get()->sentence, "supplier"));
    it->failure = LOCH_E_DRIVER; /* not a shortage */
    CHECK_FAILS(loch_alloc(pool, 100, &none), DRIVER);
    pool_expect_whole(pool);
    it->failure = LOCH_OK;
    CHECK_OK(loch_allocator_add_pressure(it->allocator, press, it)); /* of the source */
    void *block = pool_alloc(pool, MIB);
    CHECK_OK(loch_free(pool, block));
    (void)pool_trim(pool, 0);
    CHECK_OK(loch_allocator_remove_pressure(it->allocator, press, it));
    atomic_store(&it->fail_from, 1);
    CHECK_OK(loch_allocator_add_pressure(pool, press, it)); /* of the pool */
    block = pool_alloc(pool, MIB);
    CHECK_OK(loch_free(pool, block));
    CHECK_OK(loch_allocator_remove_pressure(pool, press, it));
    atomic_store(&it->fail_from, atomic_load(&it->allocs) + 2); /* only the first, larger try succeeds */
    block = pool_alloc(pool, MIB);
    CHECK_OK(loch_free(pool, block));
    supplier_close(it);
}

static void a_source_may_align_less(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    it->shift = 256;
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){0});
    void *blocks[20];
    for (size_t i = 0; i < 20; i++)
        blocks[i] = pool_alloc(pool, (i + 1) * 200000);
    pool_expect_whole(pool);
    for (size_t i = 0; i < 20; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    supplier_close(it);
}

/* --- sources of the library --- */

typedef struct watcher {
    size_t added, removed;
} watcher;

static void pools_on_allocators_of_the_library(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", SIM, "sim:256MiB,backed,virtual=off"};
    for (size_t d = 0; d < 3; d++)
        for (size_t kind = 0; kind < 3; kind++) {
            pool_bench bench = pool_bench_open(devices[d], NULL);
            loch_allocator *source = NULL, *tracking = NULL, *pool;
            if (kind == 0) CHECK_OK(loch_direct_create(bench.device, "direct", NULL, &source));
            if (kind == 1) source = loch_allocator_retain(bench.pool);
            if (kind == 2) {
                CHECK_OK(loch_direct_create(bench.device, "direct", NULL, &tracking));
                CHECK_OK(loch_tracking_create(tracking, "tracking", NULL, &source));
            }
            const loch_pool_options options = {.size = sizeof options, .source = source};
            CHECK_OK(loch_pool_create(bench.device, "on source", &options, &pool));
            loch_allocator_release(source);
            loch_allocator_release(tracking);
            void *blocks[60];
            for (size_t round = 0; round < 3; round++) {
                for (size_t i = 0; i < 60; i++) {
                    loch_stream *stream = bench.streams[i % 3];
                    const size_t bytes = (i + 1) * (i + 1) * 700;
                    blocks[i] = pool_alloc_on(pool, bytes, stream);
                    CHECK_OK(loch_fill_on(blocks[i], bytes, "s", 1, stream));
                }
                pool_expect_whole(pool);
                for (size_t i = 0; i < 60; i++)
                    CHECK_OK(loch_free(pool, blocks[i]));
            }
            sim_expect_order(bench.device);
            pool_expect_empty(pool);
            loch_allocator_release(pool);
            pool_bench_close(&bench);
        }
}

/* The driver's memory is seen once: that of the source. */
static void count_range(loch_range_event event, const loch_range *range, void *user)
{
    watcher *w = user;
    (void)range;
    if (event == LOCH_RANGE_TAKEN)
        w->added++;
    else
        w->removed++;
}

static void observers_see_memory_once(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *direct;
    watcher w = {0};
    CHECK_OK(loch_observer_add(device, count_range, &w));
    CHECK_OK(loch_direct_create(device, "direct", NULL, &direct));
    const loch_pool_options options = {.size = sizeof options, .source = direct};
    loch_allocator *pool = pool_make(device, &options);
    void *a = pool_alloc(pool, 100), *b = pool_alloc(pool, 20 * MIB);
    assert_int_equal(w.added - w.removed, pool_info(pool).handles);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(direct, &stats));
    assert_int_equal(stats.blocks, pool_info(pool).handles);
    CHECK_OK(loch_free(pool, a));
    CHECK_OK(loch_free(pool, b));
    pool_expect_empty(pool);
    assert_int_equal(w.added, w.removed);
    loch_allocator_release(pool);
    CHECK_OK(loch_observer_remove(device, count_range, &w));
    loch_allocator_release(direct);
    loch_device_release(device);
}

/* A block at the start of a segment is a block of the pool, although the source has one there. */
static void addresses_lead_to_the_pool(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(device, "direct", NULL, &direct));
    const loch_pool_options options = {.size = sizeof options, .source = direct, .handle_bytes = MIB};
    loch_allocator *pool = pool_make(device, &options);
    void *block = pool_alloc(pool, MIB);
    CHECK_OK(loch_address_free(block));
    assert_int_equal(pool_stats(pool).blocks, 0);
    loch_session *session;
    CHECK_OK(loch_session_begin(pool, NULL, &session));
    assert_non_null(pool_alloc(loch_session_get_allocator(session), 5 * MIB));
    CHECK_OK(loch_session_end(session, NULL, NULL)); /* ends the block, not the segment */
    assert_true(pool_info(pool).reserved_bytes >= 5 * MIB);
    pool_expect_whole(pool);
    pool_expect_empty(pool);
    loch_allocator_release(pool);
    loch_allocator_release(direct);
    loch_device_release(device);
}

static void wrong_sources_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM), *other = sim_open("cpu");
    loch_allocator *foreign, *parent = pool_make(device, NULL), *pool = TEST_UNTOUCHED, *child, *unsafe;
    static const loch_allocator_ops ops = {
        .size = sizeof ops, .kind = "unsafe", .alloc = supplier_alloc, .free = supplier_free};
    CHECK_OK(loch_direct_create(other, "foreign", NULL, &foreign));
    CHECK_OK(loch_allocator_create(device, "unsafe", &ops, NULL, &unsafe));
    loch_pool_options options = {.size = sizeof options, .source = foreign};
    CHECK_FAILS(loch_pool_create(device, NULL, &options, &pool), INVALID);
    assert_null(pool);
    options.source = unsafe;
    CHECK_FAILS(loch_pool_create(device, NULL, &options, &pool), INVALID);
    options.source = parent;
    loch_child_options quota = {.size = sizeof quota, .pool = &options};
    CHECK_FAILS(loch_pool_create_child(parent, NULL, &quota, &child), INVALID);
    loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = MIB, .pool = &options};
    CHECK_FAILS(loch_pool_create_child(parent, NULL, &range, &child), INVALID);
    options.preset = LOCH_POOL_NO_SPLIT + 1; /* refused before the source is looked at */
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(loch_pool_create(device, NULL, &options, &pool), INVALID);
    void *block = pool_alloc(parent, 100); /* the references of the source are as before */
    CHECK_OK(loch_free(parent, block));
    options = (loch_pool_options){.size = sizeof options, .preset = LOCH_POOL_NO_SPLIT};
    CHECK_FAILS(loch_pool_create_child(parent, NULL, &range, &child), INVALID);
    options.preset = LOCH_POOL_NO_SPLIT + 1;
    CHECK_FAILS(loch_pool_create(device, NULL, &options, &pool), INVALID);
    options = (loch_pool_options){.size = offsetof(loch_pool_options, source), .source = TEST_UNTOUCHED};
    CHECK_OK(loch_pool_create(device, NULL, &options, &pool)); /* an older program has no source */
    loch_allocator_release(pool);
    loch_allocator_release(unsafe);
    loch_allocator_release(foreign);
    loch_allocator_release(parent);
    loch_device_release(other);
    loch_device_release(device);
}

static void children_have_the_source_of_their_parent(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu"), *second = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){.limit_bytes = 16 * MIB}), *child, *own;
    const loch_child_options quota = {.size = sizeof quota, .limit_bytes = 8 * MIB};
    const loch_pool_options options = {.size = sizeof options, .source = second->allocator};
    const loch_child_options other = {.size = sizeof other, .pool = &options};
    CHECK_OK(loch_pool_create_child(pool, "child", &quota, &child));
    CHECK_OK(loch_pool_create_child(pool, "own", &other, &own));
    void *a = pool_alloc(child, 6 * MIB), *b = pool_alloc(own, 6 * MIB), *none;
    assert_true(atomic_load(&it->bytes) >= 6 * MIB && atomic_load(&second->bytes) >= 6 * MIB);
    CHECK_FAILS_SET(loch_alloc(child, 6 * MIB, &none), POOL_SHORT);
    CHECK_FAILS_SET(loch_alloc(pool, 6 * MIB, &none), POOL_SHORT); /* counts the memory of both */
    CHECK_OK(loch_free(child, a));
    CHECK_OK(loch_free(own, b));
    void *c = pool_alloc(pool, 15 * MIB); /* the children give theirs back */
    CHECK_OK(loch_free(pool, c));
    loch_allocator_release(child);
    loch_allocator_release(own);
    supplier_close(second);
    supplier_close(it);
}

/* --- threads --- */

typedef struct helper {
    loch_allocator *pool;
    uint64_t seed;
    char failure[256];
} helper;

static void helper_work(helper *w)
{
    test_random random = {w->seed};
    void *blocks[40] = {NULL};
    for (size_t i = 0; i < 4000; i++) {
        const size_t slot = test_random_below(&random, 40);
        if (blocks[slot]) {
            TRY(loch_free(w->pool, blocks[slot]));
            blocks[slot] = NULL;
        } else {
            const size_t bytes = 1 + test_random_below(&random, (size_t)1 << (4 + test_random_below(&random, 17)));
            const loch_status status = loch_alloc(w->pool, bytes, &blocks[slot]);
            EXPECT(status == LOCH_OK || status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT ||
                   status == LOCH_E_FRAGMENTED);
            if (status == LOCH_OK) memset(blocks[slot], (int)w->seed, bytes < 64 ? bytes : 64);
        }
        if (i % 500 == 0) TRY(loch_allocator_trim(w->pool, 0, NULL));
    }
    for (size_t i = 0; i < 40; i++)
        TRY(loch_free(w->pool, blocks[i]));
}

static void *helper_run(void *user)
{
    helper_work(user);
    return NULL;
}

static void threads_share_a_pool_on_a_source(void **state)
{
    (void)state;
    for (size_t preset = 0; preset < 3; preset++) {
        supplier *it = supplier_open("cpu");
        loch_allocator *pool =
            supplier_pool(it, (loch_pool_options){.limit_bytes = 24 * MIB, .preset = (loch_pool_preset)preset});
        atomic_store(&it->capacity, 20 * MIB);
        helper helpers[4] = {{.pool = pool, .seed = 1}, {.pool = pool, .seed = 2}, {pool, 3, ""}, {pool, 4, ""}};
        TEST_THREADS_RUN(helper_run, helpers);
        for (size_t i = 0; i < 4; i++)
            if (helpers[i].failure[0]) fail_msg("%s", helpers[i].failure);
        supplier_close(it);
    }
}

typedef struct taker {
    supplier *from;
    bool is_second; /* begins when the other one has memory of the source */
    long sleeps;
    char failure[256];
} taker;

static void taker_work(taker *w)
{
    void *block = NULL;
    while (w->is_second && !atomic_load(&w->from->bytes))
        usleep(100);
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    TRY(loch_alloc(w->from->pool, 50, &block));
    getrusage(RUSAGE_THREAD, &after);
    w->sleeps = after.ru_nvcsw - before.ru_nvcsw;
    TRY(loch_free(w->from->pool, block));
}

static void *taker_run(void *user)
{
    taker_work(user);
    return NULL;
}

typedef struct taking {
    supplier *from;
    taker takers[2];
    pthread_t threads[2];
} taking;

/* The source has no second segment, and the first one is still on its way to the pool: the second thread waits. */
static void taking_begin(taking *it)
{
    it->from = supplier_open("cpu");
    (void)supplier_pool(it->from, (loch_pool_options){0});
    atomic_store(&it->from->capacity, 2 * MIB);
    atomic_store(&it->from->is_slow, true);
    atomic_store(&it->from->is_held, true);
    for (size_t i = 0; i < 2; i++) {
        it->takers[i] = (taker){.from = it->from, .is_second = i == 1};
        assert_int_equal(pthread_create(&it->threads[i], NULL, taker_run, &it->takers[i]), 0);
    }
    while (atomic_load(&it->from->refused) < 2)
        usleep(1000);
    usleep(50000);
}

static void taking_end(taking *it)
{
    atomic_store(&it->from->is_held, false);
    for (size_t i = 0; i < 2; i++)
        pthread_join(it->threads[i], NULL);
}

/* The segment serves both threads. The second one sleeps until then, instead of looking again and again. */
static void a_segment_on_its_way_is_waited_for(void **state)
{
    (void)state;
    taking it;
    taking_begin(&it);
    taking_end(&it);
    for (size_t i = 0; i < 2; i++)
        if (it.takers[i].failure[0]) fail_msg("%s", it.takers[i].failure);
    assert_true(it.takers[1].sleeps < 50); /* one, and a few for locks */
    supplier_close(it.from);
}

/* A child of a fork has no thread that waits: the end of the pool there must not wait for one. */
static void a_child_of_a_fork_waits_for_no_segment(void **state)
{
    (void)state;
    taking it;
    taking_begin(&it);
    const pid_t child = fork();
    if (!child) {
        alarm(20);
        loch_allocator_release(it.from->pool);
        _exit(0);
    }
    int how = -1;
    const pid_t ended = waitpid(child, &how, 0);
    taking_end(&it); /* the second thread may have waited too long */
    assert_int_equal(ended, child);
    assert_int_equal(how, 0);
    supplier_close(it.from);
}

/* --- sources of the library that have no memory --- */

/* Fills a pool on a source with blocks of several sizes, and frees every second. Returns the bytes of live blocks. */
static size_t fill_half(loch_allocator *pool, void *blocks[512], size_t *count)
{
    test_random random = {7};
    size_t live = 0, bytes;
    for (*count = 0; *count < 512; ++*count) {
        bytes = 1 + test_random_below(&random, 2 * MIB);
        if (loch_alloc(pool, bytes, &blocks[*count]) != LOCH_OK) break;
        if (*count % 2) live += bytes;
    }
    for (size_t i = 0; i < *count; i += 2) {
        CHECK_OK(loch_free(pool, blocks[i]));
        blocks[i] = NULL;
    }
    return live;
}

/* A request that the source refuses leaves the idle segments: what cannot help does not go back, and what went back in
 * vain is fetched again. */
static void a_refusal_of_the_source_keeps_idle_segments(void **state)
{
    (void)state;
    static const size_t limits[] = {16 * MIB, 0};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open(i ? "sim:16MiB,granule=64KiB" : "sim:64MiB,granule=64KiB");
        const loch_pool_options below = {.size = sizeof below, .limit_bytes = limits[i]};
        loch_allocator *source, *pool;
        if (limits[i])
            CHECK_OK(loch_pool_create(device, "source", &below, &source));
        else
            CHECK_OK(loch_direct_create(device, "source", NULL, &source));
        const loch_pool_options options = {.size = sizeof options, .source = source};
        CHECK_OK(loch_pool_create(device, "p", &options, &pool));
        void *blocks[512], *block;
        size_t count;
        const size_t live = fill_half(pool, blocks, &count);
        for (size_t more = 1; more <= 2 * MIB; more += 400000) {
            const loch_pool_info before = pool_info(pool);
            const size_t idle = pool_stats(pool).cached_bytes;
            CHECK_FAILS(loch_alloc(pool, 16 * MIB - live + more, &block), DEVICE_MEMORY);
            assert_true(pool_info(pool).reserved_bytes <= before.reserved_bytes);
            assert_true(pool_stats(pool).cached_bytes >= idle);
        }
        for (size_t at = 0; at < count; at++)
            CHECK_OK(loch_free(pool, blocks[at]));
        CHECK_OK(loch_allocator_trim(pool, 0, NULL));
        loch_allocator_release(pool);
        loch_allocator_release(source);
        loch_device_release(device);
    }
}

/* A source of the user says nothing of what it lacks, so segments go back to it: they are fetched again. */
static void segments_that_went_back_in_vain_are_fetched_again(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){0});
    void *blocks[4], *block;
    for (size_t i = 0; i < 4; i++)
        blocks[i] = pool_alloc(pool, 3 * MIB);
    CHECK_OK(loch_free(pool, blocks[1]));
    CHECK_OK(loch_free(pool, blocks[2]));
    const size_t held = pool_info(pool).reserved_bytes;
    atomic_store(&it->capacity, atomic_load(&it->bytes));
    const size_t frees = atomic_load(&it->frees);
    CHECK_FAILS(loch_alloc(pool, 16 * MIB, &block), DEVICE_MEMORY);
    assert_true(atomic_load(&it->frees) > frees);
    assert_int_equal(pool_info(pool).reserved_bytes, held);
    blocks[1] = pool_alloc(pool, 3 * MIB);
    blocks[2] = pool_alloc(pool, 3 * MIB);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    supplier_close(it);
}

static void what_the_source_can_never_serve_fails_at_once(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *below = pool_make(device, NULL), *limited, *direct, *pool;
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = 16 * MIB};
    CHECK_OK(loch_limit_create(below, "limited", &limit, &limited));
    CHECK_OK(loch_direct_create(device, "direct", NULL, &direct));
    loch_allocator *const sources[] = {limited, direct};
    for (size_t i = 0; i < 2; i++) {
        const loch_pool_options options = {.size = sizeof options, .source = sources[i]};
        CHECK_OK(loch_pool_create(device, "p", &options, &pool));
        /* Without the remedy of the source, the test would wait for centuries. */
        const loch_request request = {
            .size = sizeof request, .bytes = i ? 80 * MIB : 20 * MIB, .timeout_ns = UINT64_MAX / 2};
        void *kept = pool_alloc(pool, MIB), *block;
        const size_t held = pool_info(pool).reserved_bytes;
        CHECK_FAILS(loch_allocator_alloc(pool, &request, &block), DEVICE_MEMORY);
        assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
        assert_int_equal(loch_error_get()->attempts, 1);
        assert_int_equal(loch_error_get()->missing_bytes, i ? 16 * MIB : 4 * MIB);
        assert_string_equal(loch_error_get()->owner, i ? loch_device_get_name(device) : "limited");
        assert_int_equal(pool_info(pool).reserved_bytes, held);
        CHECK_OK(loch_free(pool, kept));
        CHECK_OK(loch_allocator_trim(pool, 0, NULL));
        loch_allocator_release(pool);
    }
    loch_allocator_release(direct);
    loch_allocator_release(limited);
    pool_end_sim(below, device);
}

/* --- every block a segment --- */

static loch_status expect_alone(const loch_memory_piece *piece, void *user)
{
    ++*(size_t *)user;
    return piece->address == piece->range_address && piece->bytes == piece->range_bytes ? LOCH_OK : LOCH_E_INVALID;
}

static void every_block_is_a_segment(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", SIM, "sim:256MiB,backed,virtual=off"};
    static const size_t sizes[] = {1, 100, 8192, 8193, 70000, MIB, 5 * MIB + 1, 5 * MIB};
    for (size_t d = 0; d < 3; d++) {
        const loch_pool_options options = {.size = sizeof options, .preset = LOCH_POOL_NO_SPLIT};
        pool_bench bench = pool_bench_open(devices[d], &options);
        void *blocks[8];
        for (size_t round = 0; round < 3; round++) {
            size_t pieces = 0;
            for (size_t i = 0; i < 8; i++)
                blocks[i] = pool_alloc_on(bench.pool, sizes[i], bench.streams[i % 2]);
            CHECK_OK(loch_pool_walk_memory(bench.pool, expect_alone, &pieces));
            assert_int_equal(pieces, 8); /* the segments are used again */
            assert_int_equal(pool_info(bench.pool).handles, 8);
            pool_expect_whole(bench.pool);
            for (size_t i = 0; i < 8; i++)
                CHECK_OK(loch_free(bench.pool, blocks[i]));
            if (round == 1) (void)pool_trim(bench.pool, 3 * MIB);
        }
        /* A segment serves no request that is much smaller. */
        (void)pool_trim(bench.pool, 0);
        void *large = pool_alloc(bench.pool, 20 * MIB);
        CHECK_OK(loch_free(bench.pool, large));
        void *small = pool_alloc(bench.pool, 2 * MIB);
        assert_ptr_not_equal(small, large);
        loch_block found = {.size = sizeof found};
        CHECK_OK(loch_allocator_find(bench.pool, small, &found));
        assert_int_equal(found.allocated_bytes, 2 * MIB);
        void *resized;
        CHECK_OK(loch_allocator_realloc(bench.pool, small, 3 * MIB, NULL, &resized));
        void *aligned;
        CHECK_OK(pool_try_alloc(bench.pool, 5000, MIB, NULL, &aligned));
        assert_int_equal((uintptr_t)aligned & (MIB - 1), 0);
        size_t pieces = 0;
        CHECK_OK(loch_pool_walk_memory(bench.pool, expect_alone, &pieces));
        CHECK_OK(loch_free(bench.pool, aligned));
        CHECK_OK(loch_free(bench.pool, resized));
        CHECK_OK(loch_device_sync(bench.device));
        pool_bench_close(&bench);
    }
}

static void every_block_is_a_segment_of_the_source(void **state)
{
    (void)state;
    supplier *it = supplier_open("cpu");
    loch_allocator *pool = supplier_pool(it, (loch_pool_options){.preset = LOCH_POOL_NO_SPLIT});
    void *blocks[10];
    for (size_t i = 0; i < 10; i++)
        blocks[i] = pool_alloc(pool, (i + 1) * 100000);
    assert_int_equal(atomic_load(&it->allocs), 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(it->sizes[i], ((i + 1) * 100000 + 8191) / 8192 * 8192);
    for (size_t i = 0; i < 10; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    void *again = NULL;
    const loch_request request = {.size = sizeof request, .bytes = 500000, .address = blocks[4]};
    CHECK_OK(loch_allocator_alloc(pool, &request, &again));
    assert_ptr_equal(again, blocks[4]);
    CHECK_OK(loch_free(pool, again));
    supplier_close(it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(segments_come_from_the_source),
        POOL_TEST(the_size_of_segments_is_that_of_handles),
        POOL_TEST(limits_and_caps_hold),
        POOL_TEST(idle_segments_go_back_before_a_request_fails),
        POOL_TEST(a_source_that_fails_is_asked_again),
        POOL_TEST(a_source_may_align_less),
        POOL_TEST(pools_on_allocators_of_the_library),
        POOL_TEST(observers_see_memory_once),
        POOL_TEST(addresses_lead_to_the_pool),
        POOL_TEST(wrong_sources_are_refused),
        POOL_TEST(children_have_the_source_of_their_parent),
        POOL_TEST(threads_share_a_pool_on_a_source),
        POOL_TEST(a_segment_on_its_way_is_waited_for),
        POOL_TEST(a_child_of_a_fork_waits_for_no_segment),
        POOL_TEST(a_refusal_of_the_source_keeps_idle_segments),
        POOL_TEST(segments_that_went_back_in_vain_are_fetched_again),
        POOL_TEST(what_the_source_can_never_serve_fails_at_once),
        POOL_TEST(every_block_is_a_segment),
        POOL_TEST(every_block_is_a_segment_of_the_source),
    };
    return cmocka_run_group_tests_name("pools on sources", tests, NULL, NULL);
}
