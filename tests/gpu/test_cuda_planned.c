/* SPDX-License-Identifier: MIT */
/* Planned pools on a real GPU: a planned step makes no driver call, and may be captured into a graph of the driver that
 * computes the same in every launch. */
#include "cuda_fixture.h"
#include <loch/planned.h>

#define PLANNED_BLOCKS 6
#define CAPTURE_GLOBAL 0

typedef struct planned_step {
    loch_planned *planned;
    loch_stream *stream;
    char *input, *output; /* of the caller, not planned */
    void *addresses[PLANNED_BLOCKS];
} planned_step;

static size_t step_bytes(size_t i)
{
    return (1 + i % 3) * TEST_MIB + 256 * i;
}

/* Copies the input through blocks of the plan to the output. */
static void step_run(planned_step *s, bool compares)
{
    const char *from = s->input;
    void *last = NULL;
    CHECK_OK(loch_planned_step(s->planned));
    for (size_t i = 0; i < PLANNED_BLOCKS; i++) {
        const loch_request request = {.size = sizeof request, .bytes = step_bytes(i), .stream = s->stream};
        void *block;
        CHECK_OK(loch_planned_alloc(s->planned, &request, &block));
        if (compares) assert_ptr_equal(block, s->addresses[i]);
        s->addresses[i] = block;
        CHECK_OK(loch_copy_on(block, from, TEST_MIB, s->stream));
        CHECK_OK(loch_planned_free(s->planned, last));
        from = last = block;
    }
    CHECK_OK(loch_copy_on(s->output, from, TEST_MIB, s->stream));
    CHECK_OK(loch_planned_free(s->planned, last));
}

static loch_status add_call(const loch_call_count *count, void *user)
{
    if (strncmp(count->name, "copy", 4) != 0) *(uint64_t *)user += count->count;
    return LOCH_OK;
}

static void test_a_planned_step_on_a_gpu(void **state)
{
    (void)state;
    loch_allocator *pool;
    void *native, *context, *graph, *executable;
    planned_step s = {.planned = NULL};
    const loch_planned_options options = {.size = sizeof options, .renewal = LOCH_PLANNED_FIXED};
    char *host = malloc(TEST_MIB);
    assert_non_null(host);
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    CHECK_OK(loch_pool_create(device, "planned", NULL, &pool));
    CHECK_OK(loch_planned_create(pool, NULL, &options, &s.planned));
    CHECK_OK(loch_stream_create(device, NULL, &s.stream));
    native = loch_stream_get_native(s.stream);
    CHECK_OK(loch_alloc(pool, TEST_MIB, (void **)&s.input));
    CHECK_OK(loch_alloc(pool, TEST_MIB, (void **)&s.output));
    for (size_t i = 0; i < 6; i++)
        step_run(&s, i == 5);
    loch_planned_info info = {.size = sizeof info};
    CHECK_OK(loch_planned_get_info(s.planned, &info));
    assert_int_equal(info.planned, PLANNED_BLOCKS);
    uint64_t calls = 0;
    CHECK_OK(loch_device_measure_calls(device, LOCH_MEASURE_ON));
    for (size_t i = 0; i < 5; i++)
        step_run(&s, true);
    CHECK_OK(loch_device_walk_calls(device, add_call, &calls));
    CHECK_OK(loch_device_measure_calls(device, LOCH_MEASURE_OFF));
    assert_int_equal(calls, 0);
    assert_int_equal(caller.cuStreamBeginCapture_v2(native, CAPTURE_GLOBAL), 0);
    step_run(&s, true);
    assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
    assert_int_equal(caller.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    CHECK_OK(loch_stream_sync(s.stream));       /* the steps so far have read the input, which is written now */
    for (uint64_t seed = 1; seed < 5; seed++) { /* launches and steps take turns on one stream */
        test_pattern_write(host, TEST_MIB, seed);
        CHECK_OK(loch_copy(s.input, host, TEST_MIB));
        if (seed % 2)
            assert_int_equal(caller.cuGraphLaunch(executable, native), 0);
        else
            step_run(&s, true);
        CHECK_OK(loch_stream_sync(s.stream));
        CHECK_OK(loch_copy(host, s.output, TEST_MIB));
        assert_int_equal(test_pattern_differs(host, TEST_MIB, seed), TEST_MIB);
    }
    assert_int_equal(caller.cuGraphExecDestroy(executable), 0);
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    loch_planned_destroy(s.planned);
    CHECK_OK(loch_free(pool, s.input));
    CHECK_OK(loch_free(pool, s.output));
    loch_allocator_release(pool);
    loch_stream_close(s.stream);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_planned_step_on_a_gpu),
    };
    return CUDA_RUN(tests);
}
