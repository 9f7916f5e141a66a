/* SPDX-License-Identifier: MIT */
/* The pool on a real GPU: contents stay what they were while memory is cut, merged, moved between addresses and shared
 * by streams; what is free goes back to the device; captured streams work and replay.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("sim:1GiB,backed" tries the program itself); captures are left out there. */
#include "memory/pool/report/check.h"
#include "double.h"
#include "support/worker.h"

#include <dlfcn.h>
#include <loch/sleep.h>
#include <loch/tag.h>
#include <pthread.h>
#include <stdatomic.h>

#define PIECES 64
#define STEPS 3000
#define LIMIT (256 * TEST_MIB)
#define BYTES_MAX (12 * TEST_MIB)
#define LARGE (24 * TEST_MIB)
#define CAPTURE_RELAXED 2

static const char *device_name = "cuda:0";
static loch_device *device;
static test_random randomness;
static char *host; /* BYTES_MAX and more */

typedef struct piece {
    char *address;
    size_t bytes;
    uint64_t seed;
    loch_stream *stream;
} piece;

/* --- contents --- */

static void put(const piece *p)
{
    test_pattern_write(host, p->bytes, p->seed);
    CHECK_OK(loch_copy_on(p->address, host, p->bytes, p->stream));
    CHECK_OK(loch_stream_sync(p->stream)); /* the host's side is used again */
}

static void expect(const piece *p)
{
    CHECK_OK(loch_stream_sync(p->stream));
    CHECK_OK(loch_copy(host, p->address, p->bytes));
    const size_t differs = test_pattern_differs(host, p->bytes, p->seed);
    if (differs != p->bytes) fail_msg("byte %zu of %zu at %p differs", differs, p->bytes, (void *)p->address);
}

static loch_allocator *pool_create(const loch_pool_options *options)
{
    loch_allocator *pool = NULL;
    CHECK_OK(loch_pool_create(device, "gpu", options, &pool));
    return pool;
}

static loch_stream *stream_create(void)
{
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    return stream;
}

static void take(loch_allocator *pool, piece *p, size_t bytes, loch_stream *stream)
{
    static uint64_t stamp;
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    void *address = NULL;
    CHECK_OK(loch_allocator_alloc(pool, &request, &address));
    *p = (piece){address, bytes, ++stamp, stream};
}

static loch_pool_info info_of(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info;
}

/* The pool is whole, and ends. */
static void pool_end(loch_allocator *pool)
{
    const char *wrong = lochi_pool_check(lochi_pool_of(pool));
    if (wrong) fail_msg("%s", wrong);
    assert_int_equal(info_of(pool).used_bytes, 0);
    loch_allocator_release(pool);
    CHECK_OK(loch_device_sync(device));
}

/* --- cases --- */

static void random_blocks(const loch_pool_options *options)
{
    static piece pieces[PIECES];
    loch_allocator *pool = pool_create(options);
    loch_stream *const streams[2] = {loch_stream_get_default(device), stream_create()};
    memset(pieces, 0, sizeof pieces);
    for (size_t i = 0; i < STEPS; i++) {
        piece *p = &pieces[test_random_below(&randomness, PIECES)];
        if (p->address) {
            expect(p);
            CHECK_OK(loch_free(pool, p->address));
            p->address = NULL;
            continue;
        }
        const size_t most = test_random_below(&randomness, 4) ? 64 * TEST_KIB : 4 * TEST_MIB;
        take(pool, p, 1 + test_random_below(&randomness, most), streams[test_random_below(&randomness, 2)]);
        put(p);
    }
    for (size_t i = 0; i < PIECES; i++) {
        if (!pieces[i].address) continue;
        expect(&pieces[i]);
        CHECK_OK(loch_free(pool, pieces[i].address));
    }
    loch_stream_close(streams[1]);
    pool_end(pool);
}

/* Makes the driver map and unmap memory of the pool, and puts memory to sleep, until told to stop. */
typedef struct mapper {
    loch_allocator *pool;
    loch_tag tag;
    atomic_bool is_over;
    size_t turns;
    char failure[400];
} mapper;

static void map_once(mapper *w)
{
    void *large, *asleep;
    const loch_request request = {.size = sizeof request, .bytes = LARGE, .tag = w->tag};
    const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_PINNED, .tag = w->tag};
    TRY(loch_alloc(w->pool, 4 * LARGE, &large));
    TRY(loch_allocator_alloc(w->pool, &request, &asleep));
    TRY(loch_free(w->pool, large));
    const loch_status status = loch_pool_sleep(w->pool, &options, NULL);
    EXPECT(status == LOCH_OK || status == LOCH_E_BUSY);
    TRY(loch_pool_wake(w->pool, NULL));
    TRY(loch_free(w->pool, asleep));
    TRY(loch_allocator_trim(w->pool, 0, NULL));
}

static void *map_until_over(void *user)
{
    mapper *w = user;
    for (; !atomic_load(&w->is_over) && !*w->failure; w->turns++)
        map_once(w);
    return NULL;
}

static void blocks_keep_their_contents_while_another_thread_maps(void **state)
{
    (void)state;
    mapper w = {.pool = pool_create(NULL)};
    pthread_t thread;
    piece pieces[8] = {{NULL}};
    CHECK_OK(loch_tag_create("mapper", &w.tag));
    assert_int_equal(pthread_create(&thread, NULL, map_until_over, &w), 0);
    const size_t steps = gpu_or_double(device, STEPS / 4, STEPS / 40);
    for (size_t i = 0; i < steps; i++) {
        piece *p = &pieces[i % 8];
        if (p->address) {
            expect(p);
            CHECK_OK(loch_free(w.pool, p->address));
        }
        take(w.pool, p, 64 * TEST_KIB + test_random_below(&randomness, 2 * TEST_MIB), loch_stream_get_default(device));
        put(p);
    }
    atomic_store(&w.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (*w.failure) fail_msg("%s", w.failure);
    assert_true(w.turns > 0);
    for (size_t i = 0; i < 8; i++) {
        expect(&pieces[i]);
        CHECK_OK(loch_free(w.pool, pieces[i].address));
    }
    pool_end(w.pool);
}

static void random_blocks_keep_their_contents(void **state)
{
    (void)state;
    random_blocks(NULL);
}

static void whole_blocks_are_used_again(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS};
    random_blocks(&options);
}

static void pinned_blocks_keep_their_contents(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED};
    if (!loch_device_can(device, LOCH_CAN_PINNED)) skip();
    random_blocks(&options);
    loch_allocator *pool = pool_create(&options);
    piece p;
    take(pool, &p, TEST_MIB, NULL);
    memset(p.address, 7, p.bytes); /* the host reaches it */
    CHECK_OK(loch_free(pool, p.address));
    pool_end(pool);
}

/* Long copies on one stream, uses on the other: a block that was freed meanwhile is not overwritten by its next
 * owner. */
static void memory_goes_from_stream_to_stream_in_order(void **state)
{
    (void)state;
    loch_allocator *pool = pool_create(NULL);
    loch_stream *one = stream_create(), *two = stream_create();
    loch_event *event = NULL;
    piece target;
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    take(pool, &target, BYTES_MAX, two);
    const size_t rounds = gpu_or_double(device, 200, 20);
    for (size_t i = 0; i < rounds; i++) {
        piece source, next;
        take(pool, &source, BYTES_MAX, one);
        const uint32_t pattern = (uint32_t)i, other = ~pattern;
        CHECK_OK(loch_fill_on(source.address, BYTES_MAX, &pattern, sizeof pattern, one));
        CHECK_OK(loch_event_record(event, one));
        CHECK_OK(loch_stream_wait(two, event));
        CHECK_OK(loch_copy_on(target.address, source.address, BYTES_MAX, two));
        CHECK_OK(loch_allocator_record_use(pool, source.address, two));
        CHECK_OK(loch_free(pool, source.address));
        take(pool, &next, BYTES_MAX, one); /* often the same memory: behind the copy then */
        CHECK_OK(loch_fill_on(next.address, BYTES_MAX, &other, sizeof other, one));
        CHECK_OK(loch_free(pool, next.address));
        CHECK_OK(loch_stream_sync(two));
        CHECK_OK(loch_copy(host, target.address, BYTES_MAX));
        for (size_t k = 0; k < BYTES_MAX; k += sizeof pattern)
            if (memcmp(host + k, &pattern, sizeof pattern) != 0) fail_msg("round %zu: byte %zu is another's", i, k);
    }
    CHECK_OK(loch_free(pool, target.address));
    assert_true(info_of(pool).events_recorded > 0);
    loch_event_destroy(event);
    loch_stream_close(one);
    loch_stream_close(two);
    pool_end(pool);
}

/* Free memory in many pieces becomes one at other addresses, up to the limit; what lives meanwhile stays as it was. */
static void moved_memory_keeps_its_contents(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL)) skip();
    loch_allocator *pool = pool_create(&options);
    piece pieces[LIMIT / (4 * TEST_MIB)], large[4];
    const size_t count = sizeof pieces / sizeof *pieces - 1;
    for (size_t i = 0; i < count; i++) {
        take(pool, &pieces[i], 4 * TEST_MIB, NULL);
        pieces[i].stream = loch_stream_get_default(device);
        put(&pieces[i]);
    }
    for (size_t i = 0; i < count; i += 2)
        CHECK_OK(loch_free(pool, pieces[i].address));
    for (size_t i = 0; i < 4; i++) {
        take(pool, &large[i], LARGE, NULL);
        large[i].stream = loch_stream_get_default(device);
        put(&large[i]);
    }
    assert_true(info_of(pool).handles_moved > 0);
    assert_true(info_of(pool).peak_reserved_bytes <= LIMIT);
    for (size_t i = 1; i < count; i += 2) {
        expect(&pieces[i]);
        CHECK_OK(loch_free(pool, pieces[i].address));
    }
    for (size_t i = 0; i < 4; i++) {
        expect(&large[i]);
        CHECK_OK(loch_free(pool, large[i].address));
    }
    pool_end(pool);
}

static void a_growable_block_grows_in_place(void **state)
{
    (void)state;
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL)) skip();
    loch_allocator *pool = pool_create(NULL);
    const loch_request request = {.size = sizeof request, .bytes = TEST_MIB};
    void *address = NULL;
    CHECK_OK(loch_pool_alloc_growable(pool, 10 * BYTES_MAX, &request, &address));
    piece p = {address, TEST_MIB, 77, loch_stream_get_default(device)};
    put(&p);
    static const size_t sizes[] = {3 * TEST_MIB, 8 * TEST_MIB, 2 * TEST_MIB, 12 * TEST_MIB, TEST_MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_OK(loch_pool_resize_growable(pool, address, sizes[i]));
        if (p.bytes > sizes[i]) p.bytes = sizes[i];
        expect(&p); /* what was there before */
        p.bytes = sizes[i];
        p.seed++;
        put(&p);
        expect(&p);
    }
    CHECK_OK(loch_free(pool, address));
    pool_end(pool);
}

/* Through a wrapper, and beyond what is reserved: the contents move to another reservation. */
static void a_tracked_growable_block_moves_with_its_contents(void **state)
{
    (void)state;
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL)) skip();
    loch_allocator *pool = pool_create(NULL), *tracked;
    CHECK_OK(loch_tracking_create(pool, NULL, NULL, &tracked));
    const loch_request request = {.size = sizeof request, .bytes = TEST_MIB, .max_bytes = 4 * TEST_MIB};
    void *address = NULL;
    CHECK_OK(loch_allocator_alloc(tracked, &request, &address));
    CHECK_OK(loch_pool_resize_growable(tracked, address, 3 * TEST_MIB));
    piece p = {address, 3 * TEST_MIB, 99, loch_stream_get_default(device)};
    put(&p);
    CHECK_OK(loch_allocator_realloc(tracked, address, 7 * TEST_MIB, NULL, &address));
    assert_ptr_not_equal(address, p.address);
    p.address = address;
    expect(&p);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(tracked, &stats));
    assert_int_equal(stats.requested_bytes, 7 * TEST_MIB);
    CHECK_OK(loch_free(tracked, address));
    loch_allocator_release(tracked);
    pool_end(pool);
}

static size_t free_on_device(void)
{
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_device_calculate_memory(device, &info));
    return info.free_bytes;
}

static void a_trim_gives_memory_back_to_the_gpu(void **state)
{
    (void)state;
    loch_allocator *pool = pool_create(NULL);
    piece p;
    take(pool, &p, 100, NULL); /* what the driver takes for itself comes first */
    CHECK_OK(loch_free(pool, p.address));
    const size_t before = free_on_device();
    take(pool, &p, LIMIT, NULL);
    const size_t held = free_on_device();
    assert_true(before - held >= LIMIT - 8 * TEST_MIB);
    CHECK_OK(loch_free(pool, p.address));
    assert_true(free_on_device() < before - LIMIT / 2); /* it is kept */
    size_t released = 0;
    CHECK_OK(loch_allocator_trim(pool, 0, &released));
    assert_true(released >= LIMIT);
    assert_int_equal(info_of(pool).reserved_bytes, 0);
    assert_true(free_on_device() >= held + LIMIT - 8 * TEST_MIB);
    pool_end(pool);
}

/* --- captures: the caller's side of the driver --- */

static struct {
    int (*cuStreamBeginCapture_v2)(void *stream, int mode);
    int (*cuStreamEndCapture)(void *stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **executable, void *graph, unsigned long long flags);
    int (*cuGraphLaunch)(void *executable, void *stream);
    int (*cuGraphExecDestroy)(void *executable);
    int (*cuGraphDestroy)(void *graph);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuDevicePrimaryCtxRelease_v2)(int device);
} caller;

static bool caller_load(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    if (strncmp(device_name, "cuda", 4) != 0) return false;
    void *library = loch_option_get("cuda_library", path) == LOCH_OK && *path ? dlopen(path, RTLD_NOW)
                                                                              : dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return false;
#define CALLER_LOAD(name)                                                                                              \
    *(void **)(void *)&caller.name = dlsym(library, #name);                                                            \
    if (!caller.name) return false
    CALLER_LOAD(cuStreamBeginCapture_v2);
    CALLER_LOAD(cuStreamEndCapture);
    CALLER_LOAD(cuGraphInstantiateWithFlags);
    CALLER_LOAD(cuGraphLaunch);
    CALLER_LOAD(cuGraphExecDestroy);
    CALLER_LOAD(cuGraphDestroy);
    CALLER_LOAD(cuCtxSetCurrent);
    CALLER_LOAD(cuDevicePrimaryCtxRetain);
    CALLER_LOAD(cuDevicePrimaryCtxRelease_v2);
#undef CALLER_LOAD
    return true;
}

/* Blocks come and go in a capture; the graph runs twice, and others' blocks stay as they were meanwhile. */
static void a_graph_finds_its_memory(void **state)
{
    (void)state;
    if (!caller_load()) skip();
    loch_allocator *pool = pool_create(NULL);
    loch_stream *stream = stream_create();
    void *native = loch_stream_get_native(stream), *graph = NULL, *executable = NULL, *context = NULL;
    const uint32_t pattern = 0x01020304;
    piece result, inner, others[8];
    loch_capture_info info = {.size = sizeof info};
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    take(pool, &result, 4 * TEST_MIB, stream);
    CHECK_OK(loch_stream_sync(stream));
    assert_int_equal(caller.cuStreamBeginCapture_v2(native, CAPTURE_RELAXED), 0);
    CHECK_OK(loch_stream_query_capture(stream, &info));
    assert_true(info.active);
    take(pool, &inner, 4 * TEST_MIB, stream);
    CHECK_OK(loch_fill_on(inner.address, inner.bytes, &pattern, sizeof pattern, stream));
    CHECK_OK(loch_copy_on(result.address, inner.address, inner.bytes, stream));
    CHECK_OK(loch_free(pool, inner.address));
    assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
    assert_int_equal(caller.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    for (size_t i = 0; i < 8; i++) {
        take(pool, &others[i], 4 * TEST_MIB, loch_stream_get_default(device));
        put(&others[i]);
    }
    for (int round = 0; round < 2; round++) {
        CHECK_OK(loch_fill_on(result.address, result.bytes, "\0", 1, stream));
        assert_int_equal(caller.cuGraphLaunch(executable, native), 0);
        CHECK_OK(loch_stream_sync(stream));
        CHECK_OK(loch_copy(host, result.address, result.bytes));
        for (size_t k = 0; k < result.bytes; k += sizeof pattern)
            if (memcmp(host + k, &pattern, sizeof pattern) != 0) fail_msg("byte %zu of the graph's result", k);
    }
    for (size_t i = 0; i < 8; i++) {
        expect(&others[i]);
        CHECK_OK(loch_free(pool, others[i].address));
    }
    assert_int_equal(caller.cuGraphExecDestroy(executable), 0);
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    CHECK_OK(loch_pool_release_capture(pool, info.id));
    CHECK_OK(loch_free(pool, result.address));
    loch_stream_close(stream);
    CHECK_OK(loch_allocator_trim(pool, 0, NULL));
    assert_int_equal(info_of(pool).reserved_bytes, 0);
    pool_end(pool);
}

/* Frees in the order of addresses, with and without waits in between: what is above the cap goes back. */
static void the_idle_cap_gives_memory_back(void **state)
{
    (void)state;
    enum { COUNT = 24 };
    const loch_pool_options options = {.size = sizeof options, .idle_bytes = 32 * TEST_MIB};
    for (int is_synced = 0; is_synced < 2; is_synced++) {
        loch_allocator *pool = pool_create(&options);
        piece pieces[COUNT];
        for (size_t i = 0; i < COUNT; i++)
            take(pool, &pieces[i], (i % 4 + 1) * 3 * TEST_MIB, NULL);
        for (size_t i = 0; i < COUNT; i++) {
            CHECK_OK(loch_free(pool, pieces[i].address));
            if (is_synced) CHECK_OK(loch_device_sync(device));
        }
        CHECK_OK(loch_device_sync(device));
        loch_pool_info info = {.size = sizeof info};
        for (int i = 0; i < 3; i++) /* an event that was recorded just now may need another look */
            CHECK_OK(loch_pool_get_info(pool, &info));
        assert_true(info.free_bytes <= 32 * TEST_MIB);
        pool_end(pool);
    }
}

/* The next owner of freed memory finds zeros, on the same stream and on another. */
static void freed_blocks_are_zero(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 8192, 100000, 3 * TEST_MIB, 10 * TEST_MIB};
    const loch_pool_options options = {.size = sizeof options, .wipe = LOCH_POOL_WIPE_FREED};
    loch_allocator *pool = pool_create(&options);
    loch_stream *streams[] = {stream_create(), stream_create()};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t i = 0; i < 6; i++) {
            piece p;
            take(pool, &p, sizes[s], streams[i % 2]);
            put(&p);
            expect(&p);
            CHECK_OK(loch_free(pool, p.address));
            void *next;
            const loch_request request = {.size = sizeof request, .bytes = sizes[s], .stream = streams[i / 2 % 2]};
            CHECK_OK(loch_allocator_alloc(pool, &request, &next));
            CHECK_OK(loch_copy_on(host, next, sizes[s], request.stream));
            CHECK_OK(loch_stream_sync(request.stream));
            for (size_t at = 0; at < sizes[s]; at++)
                if (host[at]) fail_msg("byte %zu of %zu was not wiped", at, sizes[s]);
            CHECK_OK(loch_free(pool, next));
        }
    CHECK_OK(loch_device_sync(device));
    for (size_t i = 0; i < 2; i++)
        loch_stream_close(streams[i]);
    pool_end(pool);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_blocks_keep_their_contents),
        cmocka_unit_test(blocks_keep_their_contents_while_another_thread_maps),
        cmocka_unit_test(whole_blocks_are_used_again),
        cmocka_unit_test(pinned_blocks_keep_their_contents),
        cmocka_unit_test(memory_goes_from_stream_to_stream_in_order),
        cmocka_unit_test(moved_memory_keeps_its_contents),
        cmocka_unit_test(a_growable_block_grows_in_place),
        cmocka_unit_test(a_tracked_growable_block_moves_with_its_contents),
        cmocka_unit_test(the_idle_cap_gives_memory_back),
        cmocka_unit_test(freed_blocks_are_zero),
        cmocka_unit_test(a_trim_gives_memory_back_to_the_gpu),
        cmocka_unit_test(a_graph_finds_its_memory),
    };
    if (count > 1) device_name = arguments[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    host = malloc(LARGE);
    if (!host) return 1;
    randomness.state = test_seed(0x10c5);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    free(host);
    loch_device_release(device);
    return failures ? 1 : 0;
}
