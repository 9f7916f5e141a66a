/* SPDX-License-Identifier: MIT */
/* Pools of graphs (LOCH_POOL_CAPTURES_SHARED) on a real GPU: captures of the driver share memory, new memory comes in
 * captures of any mode, and graphs give the same bits after the pool has slept. */
#include "memory/pool/report/check.h"
#include "cuda_fixture.h"
#include <pthread.h>

#define CAPTURE_GLOBAL 0
#define LINKS 6
#define BYTES (24 * TEST_MIB)

static const loch_pool_options shared = {.size = sizeof shared, .captures = LOCH_POOL_CAPTURES_SHARED};

/* A pool with two graphs: the first fills the input, the second copies it through all links to the output. */
typedef struct graph_rig {
    loch_allocator *pool;
    loch_stream *stream, *other;
    void *native, *context, *graphs[2], *executables[2];
    char *input, *output, *links[LINKS], *host;
} graph_rig;

static size_t free_bytes(void)
{
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_calculate_memory(device, &info));
    return info.free_bytes;
}

static size_t reserved_bytes(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info.reserved_bytes;
}

static void expect_whole(loch_allocator *pool)
{
    const char *wrong = lochi_pool_check(lochi_pool_of(pool));
    if (wrong) fail_msg("%s", wrong);
}

static char *take(loch_allocator *pool, size_t bytes, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    void *block;
    CHECK_OK(loch_allocator_alloc(pool, &request, &block));
    return block;
}

/* cmocka's checks leave by longjmp, which must not cross threads; so this thread returns whether all went well. */
static void *take_in_other_thread(void *user)
{
    const graph_rig *rig = user;
    const loch_request request = {.size = sizeof request, .bytes = BYTES, .stream = rig->other};
    void *block = NULL;
    const bool is_done = loch_allocator_alloc(rig->pool, &request, &block) == LOCH_OK &&
                         loch_fill_on(block, BYTES, "o", 1, rig->other) == LOCH_OK &&
                         loch_free(rig->pool, block) == LOCH_OK;
    if (!is_done) fprintf(stderr, "in another thread: %s\n", loch_error_get()->sentence);
    return is_done ? user : NULL;
}

static void capture_begin(const graph_rig *rig)
{
    assert_int_equal(caller.cuStreamBeginCapture_v2(rig->native, CAPTURE_GLOBAL), 0);
}

static void capture_end(graph_rig *rig, size_t i)
{
    assert_int_equal(caller.cuStreamEndCapture(rig->native, &rig->graphs[i]), 0);
    assert_int_equal(caller.cuGraphInstantiateWithFlags(&rig->executables[i], rig->graphs[i], 0), 0);
}

static void rig_open(graph_rig *rig)
{
    *rig = (graph_rig){.host = malloc(BYTES)};
    assert_non_null(rig->host);
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&rig->context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(rig->context), 0);
    CHECK_OK(loch_pool_create(device, "graphs", &shared, &rig->pool));
    CHECK_OK(loch_stream_create(device, NULL, &rig->stream));
    CHECK_OK(loch_stream_create(device, NULL, &rig->other));
    rig->native = loch_stream_get_native(rig->stream);
    const uint32_t pattern = 0x01020304;
    capture_begin(rig); /* all memory is new, and comes in the capture */
    rig->input = take(rig->pool, BYTES, rig->stream);
    CHECK_OK(loch_fill_on(rig->input, BYTES, &pattern, sizeof pattern, rig->stream));
    char *scratch = take(rig->pool, LINKS * BYTES, rig->stream);
    CHECK_OK(loch_fill_on(scratch, LINKS * BYTES, "s", 1, rig->stream));
    CHECK_OK(loch_free(rig->pool, scratch));
    capture_end(rig, 0);
    rig->output = take(rig->pool, BYTES, rig->stream);
    CHECK_OK(loch_fill_on(rig->output, BYTES, "x", 1, rig->stream));
    CHECK_OK(loch_stream_sync(rig->stream));
    const size_t reserved = reserved_bytes(rig->pool);
    capture_begin(rig);
    for (size_t i = 0; i < LINKS - 1; i++) /* from the memory that the first capture freed */
        rig->links[i] = take(rig->pool, BYTES, rig->stream);
    assert_int_equal(reserved_bytes(rig->pool), reserved);
    pthread_t thread;
    void *done;
    assert_int_equal(pthread_create(&thread, NULL, take_in_other_thread, rig), 0);
    assert_int_equal(pthread_join(thread, &done), 0);
    const char *from = rig->input;
    for (size_t i = 0; i < LINKS - 1; i++) {
        CHECK_OK(loch_copy_on(rig->links[i], from, BYTES, rig->stream));
        from = rig->links[i];
    }
    CHECK_OK(loch_copy_on(rig->output, from, BYTES, rig->stream));
    for (size_t i = 0; i < LINKS - 1; i++)
        CHECK_OK(loch_free(rig->pool, rig->links[i]));
    capture_end(rig, 1);
    assert_non_null(done);
    expect_whole(rig->pool);
}

/* Launches both graphs, and expects the pattern in the output. */
static void rig_run(const graph_rig *rig)
{
    const uint32_t pattern = 0x01020304;
    CHECK_OK(loch_fill_on(rig->output, BYTES, "y", 1, rig->stream));
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(caller.cuGraphLaunch(rig->executables[i], rig->native), 0);
    CHECK_OK(loch_stream_sync(rig->stream));
    CHECK_OK(loch_copy(rig->host, rig->output, BYTES));
    for (size_t i = 0; i < BYTES; i += sizeof pattern)
        if (memcmp(rig->host + i, &pattern, sizeof pattern) != 0) fail_msg("byte %zu of the graph's result", i);
}

static void rig_close(graph_rig *rig)
{
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(caller.cuGraphExecDestroy(rig->executables[i]), 0);
        assert_int_equal(caller.cuGraphDestroy(rig->graphs[i]), 0);
    }
    loch_stream_close(rig->stream);
    loch_stream_close(rig->other);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    free(rig->host);
}

/* --- tests --- */

static void captures_share_memory_until_the_release(void **state)
{
    (void)state;
    graph_rig rig;
    rig_open(&rig);
    const size_t reserved = reserved_bytes(rig.pool);
    for (int i = 0; i < 3; i++) {
        rig_run(&rig);
        size_t released;
        CHECK_OK(loch_allocator_trim(rig.pool, 0, &released));
        assert_int_equal(released, 0);
        assert_int_equal(reserved_bytes(rig.pool), reserved);
    }
    assert_int_equal(caller.cuGraphLaunch(rig.executables[1], rig.native), 0); /* still runs at the release */
    const size_t before = free_bytes();
    loch_allocator_release(rig.pool);
    assert_true(free_bytes() >= before + BYTES);      /* handles without a live block */
    CHECK_OK(loch_copy(rig.host, rig.output, BYTES)); /* a live block */
    CHECK_OK(loch_free(rig.pool, rig.input));
    CHECK_OK(loch_free(rig.pool, rig.output));
    assert_true(free_bytes() >= before + reserved);
    rig_close(&rig);
}

static void graphs_give_the_same_bits_after_a_sleep(void **state)
{
    (void)state;
    graph_rig rig;
    rig_open(&rig);
    rig_run(&rig);
    for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_DROP; contents++) {
        const loch_sleep_options options = {.size = sizeof options, .contents = contents};
        const size_t reserved = reserved_bytes(rig.pool), before = free_bytes();
        size_t released, restored;
        CHECK_OK(loch_pool_sleep(rig.pool, &options, &released));
        assert_int_equal(released, reserved);
        assert_int_equal(reserved_bytes(rig.pool), 0);
        assert_true(free_bytes() >= before + reserved);
        CHECK_OK(loch_pool_wake(rig.pool, &restored));
        assert_int_equal(reserved_bytes(rig.pool), reserved);
        expect_whole(rig.pool);
        CHECK_OK(loch_copy(rig.host, rig.output, BYTES));
        for (size_t i = 0; i < BYTES; i++) {
            const unsigned char is = (unsigned char)rig.host[i];
            if (contents == LOCH_SLEEP_DROP ? is != 0 : is != 4 - i % 4) fail_msg("byte %zu after the wake", i);
        }
        rig_run(&rig);
    }
    CHECK_OK(loch_free(rig.pool, rig.input));
    CHECK_OK(loch_free(rig.pool, rig.output));
    loch_allocator_release(rig.pool);
    rig_close(&rig);
}

/* A sleep or a release of a capture waits for the device: not while a stream is captured, which goes on. */
static void a_sleep_leaves_captures_alone(void **state)
{
    (void)state;
    graph_rig rig;
    rig_open(&rig);
    void *graph = NULL;
    capture_begin(&rig);
    CHECK_OK(loch_fill_on(rig.output, BYTES, "z", 1, rig.stream));
    CHECK_FAILS(loch_pool_sleep(rig.pool, NULL, NULL), BUSY);
    assert_int_equal(caller.cuStreamEndCapture(rig.native, &graph), 0);
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    rig_run(&rig);
    CHECK_OK(loch_free(rig.pool, rig.input));
    CHECK_OK(loch_free(rig.pool, rig.output));
    loch_allocator_release(rig.pool);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captures_share_memory_until_the_release),
        cmocka_unit_test(graphs_give_the_same_bits_after_a_sleep),
        cmocka_unit_test(a_sleep_leaves_captures_alone),
    };
    return CUDA_RUN(tests);
}
