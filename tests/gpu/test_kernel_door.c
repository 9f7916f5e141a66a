/* SPDX-License-Identifier: MIT */
/* Kernels of the caller on a real GPU: loading, finding, launching, refusals, order, captures, current contexts. */
#include "cuda_fixture.h"
#include "kernel_door_ptx.h"
#include <loch/kernel.h>

#define COUNT 1000

/* The kernels of kernel_door_ptx.h, loaded. */
typedef struct door_rig {
    loch_allocator *pool;
    loch_stream *stream;
    loch_module *module;
    loch_kernel *axpy, *mixed, *shared_sum, *slow_copy, *nothing;
} door_rig;

static int rig_open(void **state)
{
    static door_rig rig;
    if (loch_pool_create(device, "door", NULL, &rig.pool) != LOCH_OK) return 1;
    if (loch_stream_create(device, NULL, &rig.stream) != LOCH_OK) return 1;
    if (loch_module_create(device, door_ptx, sizeof door_ptx - 1, NULL, &rig.module) != LOCH_OK) {
        fprintf(stderr, "%s\n", loch_error_get()->sentence);
        return 1;
    }
    *state = &rig;
    return loch_module_find(rig.module, "axpy", &rig.axpy) || loch_module_find(rig.module, "mixed", &rig.mixed) ||
           loch_module_find(rig.module, "shared_sum", &rig.shared_sum) ||
           loch_module_find(rig.module, "slow_copy", &rig.slow_copy) ||
           loch_module_find(rig.module, "nothing", &rig.nothing);
}

static int rig_close(void **state)
{
    door_rig *rig = *state;
    if (loch_stream_sync(rig->stream) != LOCH_OK) return 1;
    loch_module_destroy(rig->module);
    loch_stream_close(rig->stream);
    loch_allocator_release(rig->pool);
    return 0;
}

static loch_tensor *make(const door_rig *rig, loch_dtype dtype, int64_t count, double value)
{
    const loch_tensor_options options = {.size = sizeof options, .allocator = rig->pool, .stream = rig->stream};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(dtype, LOCH_SHAPE(count), &options, &tensor));
    if (count) CHECK_OK(loch_tensor_fill(tensor, loch_scalar_from_double(value), rig->stream));
    return tensor;
}

static loch_status run_axpy(const door_rig *rig, loch_tensor *y, loch_tensor *x, loch_stream *stream)
{
    const loch_argument arguments[] = {loch_argument_write(y), loch_argument_read(x),
                                       loch_argument_scalar(LOCH_F32, loch_scalar_of(0.5)),
                                       loch_argument_scalar(LOCH_U32, loch_scalar_of(COUNT))};
    const loch_launch_options how = {.size = sizeof how, .grid = {(COUNT + 255) / 256}, .block = {256}};
    return loch_kernel_launch(rig->axpy, arguments, 4, stream, &how);
}

static void expect_all(loch_tensor *tensor, loch_stream *stream, float value)
{
    float back[COUNT];
    CHECK_OK(loch_tensor_read(tensor, back, sizeof back, stream));
    for (size_t i = 0; i < COUNT; i++)
        if (back[i] != value) fail_msg("element %zu is %g, expected %g", i, (double)back[i], (double)value);
}

/* --- tests --- */

static void a_kernel_runs_and_raises_the_version(void **state)
{
    const door_rig *rig = *state;
    loch_tensor *y = make(rig, LOCH_F32, COUNT, 1), *x = make(rig, LOCH_F32, COUNT, 4);
    const uint64_t written = loch_buffer_get_version(loch_tensor_get_buffer(y));
    const uint64_t read = loch_buffer_get_version(loch_tensor_get_buffer(x));
    CHECK_OK(run_axpy(rig, y, x, rig->stream));
    assert_true(loch_buffer_get_version(loch_tensor_get_buffer(y)) > written);
    assert_int_equal(loch_buffer_get_version(loch_tensor_get_buffer(x)), read);
    expect_all(y, rig->stream, 3);
    CHECK_OK(loch_stream_sync(rig->stream));
    CHECK_OK(run_axpy(rig, y, x, NULL)); /* the default stream; waits */
    expect_all(y, rig->stream, 5);
    loch_tensor_release(y);
    loch_tensor_release(x);
}

static void arguments_of_all_kinds_arrive(void **state)
{
    const door_rig *rig = *state;
    struct {
        int32_t first, last;
        double scale;
    } window = {-7, 9, 2.25};
    loch_tensor *out = make(rig, LOCH_F64, 10, 0), *empty = make(rig, LOCH_U8, 0, 0),
                *bytes = make(rig, LOCH_U8, 1, 200);
    for (int round = 0; round < 3; round++) {
        void *address;
        CHECK_OK(loch_tensor_get_address(bytes, &address));
        const loch_argument arguments[] = {loch_argument_write(out),
                                           round == 0   ? loch_argument_read(bytes)
                                           : round == 1 ? loch_argument_address(address)
                                                        : loch_argument_read(empty),
                                           loch_argument_bytes(&window, sizeof window),
                                           loch_argument_scalar(LOCH_I8, loch_scalar_of(-100)),
                                           loch_argument_scalar(LOCH_U16, loch_scalar_of(65000)),
                                           loch_argument_scalar(LOCH_F64, loch_scalar_of(1e100)),
                                           loch_argument_scalar(LOCH_BOOL, loch_scalar_of(17)),
                                           loch_argument_scalar(LOCH_U64, loch_scalar_of(1ULL << 40)),
                                           loch_argument_scalar(LOCH_BF16, loch_scalar_of(1.0))};
        CHECK_OK(loch_kernel_launch(rig->mixed, arguments, 9, rig->stream, NULL));
        double back[10];
        const double expected[10] = {-7, 9, 2.25, -100, 65000, 1e100, 1, 1099511627776.0, 0x3f80, round < 2 ? 200 : -1};
        CHECK_OK(loch_tensor_read(out, back, sizeof back, rig->stream));
        assert_memory_equal(back, expected, sizeof back);
    }
    loch_tensor_release(out);
    loch_tensor_release(empty);
    loch_tensor_release(bytes);
}

/* Blocks that are freed behind a launch on another stream are reused only behind it. */
static void memory_is_reused_behind_the_launch(void **state)
{
    const door_rig *rig = *state;
    loch_stream *other;
    CHECK_OK(loch_stream_create(device, NULL, &other));
    for (int round = 0; round < 20; round++) {
        const int64_t count = 1 << 20;
        loch_tensor *from = make(rig, LOCH_U32, count, 7), *to = make(rig, LOCH_U32, count, 0);
        CHECK_OK(loch_stream_sync(rig->stream));
        const loch_argument arguments[] = {loch_argument_write(to), loch_argument_read(from),
                                           loch_argument_scalar(LOCH_U32, loch_scalar_of(count)),
                                           loch_argument_scalar(LOCH_U64, loch_scalar_of(5000000))};
        const loch_launch_options how = {.size = sizeof how, .grid = {8}, .block = {256}};
        CHECK_OK(loch_kernel_launch(rig->slow_copy, arguments, 4, other, &how));
        loch_tensor_release(from);
        loch_tensor *again = make(rig, LOCH_U32, count, 1000 + round); /* may be the block of `from` */
        uint32_t *back = malloc((size_t)count * sizeof *back);
        assert_non_null(back);
        CHECK_OK(loch_tensor_read(to, back, (size_t)count * sizeof *back, other));
        for (int64_t i = 0; i < count; i++)
            if (back[i] != 7) fail_msg("element %lld is %u", (long long)i, back[i]);
        free(back);
        loch_tensor_release(again);
        loch_tensor_release(to);
    }
    loch_stream_close(other);
}

static void large_shared_memory_is_allowed_by_itself(void **state)
{
    const door_rig *rig = *state;
    loch_tensor *out = make(rig, LOCH_U32, 1, 0);
    loch_kernel_info info = {.size = sizeof info, .block_threads = 128};
    CHECK_OK(loch_kernel_get_info(rig->shared_sum, &info));
    assert_true(info.shared_max_bytes >= 64 * TEST_KIB);
    assert_true(info.blocks > 0 && info.threads_max >= 128);
    for (size_t bytes = 40 * TEST_KIB; bytes <= info.shared_max_bytes; bytes += 8 * TEST_KIB) {
        const uint32_t words = (uint32_t)(bytes / 4);
        const loch_argument arguments[] = {loch_argument_write(out),
                                           loch_argument_scalar(LOCH_U32, loch_scalar_of(words))};
        const loch_launch_options how = {.size = sizeof how, .block = {128}, .shared_bytes = bytes};
        CHECK_OK(loch_kernel_launch(rig->shared_sum, arguments, 2, rig->stream, &how));
        uint32_t sum;
        CHECK_OK(loch_tensor_read(out, &sum, sizeof sum, rig->stream));
        assert_int_equal(sum, (uint32_t)((uint64_t)words * (words - 1) / 2));
    }
    loch_tensor_release(out);
}

static void flags_are_passed_on(void **state)
{
    const door_rig *rig = *state;
    loch_launch_options how = {.size = sizeof how, .grid = {2}, .block = {32}, .flags = LOCH_LAUNCH_COOPERATIVE};
    CHECK_OK(loch_kernel_launch(rig->nothing, NULL, 0, rig->stream, &how));
    how.grid[0] = 1000000; /* cannot all run at a time */
    CHECK_FAILS(loch_kernel_launch(rig->nothing, NULL, 0, rig->stream, &how), LIMIT);
    how.grid[0] = 2;
    how.flags = LOCH_LAUNCH_EARLY;
    CHECK_OK(loch_kernel_launch(rig->nothing, NULL, 0, rig->stream, &how));
    how.flags = 1 << 20;
    CHECK_FAILS(loch_kernel_launch(rig->nothing, NULL, 0, rig->stream, &how), INVALID);
    CHECK_OK(loch_stream_sync(rig->stream));
}

static void wrong_launches_are_refused(void **state)
{
    const door_rig *rig = *state;
    loch_tensor *y = make(rig, LOCH_F32, COUNT, 1), *x = make(rig, LOCH_F32, COUNT, 4), *host;
    static float memory[COUNT];
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(COUNT), memory, NULL, &host));
    loch_device *cpu;
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_FAILS(run_axpy(rig, y, host, rig->stream), INVALID); /* another device */
    assert_non_null(strstr(loch_error_get()->sentence, "is on the host"));
    CHECK_FAILS(run_axpy(rig, y, NULL, rig->stream), INVALID);
    CHECK_FAILS(run_axpy(rig, y, x, loch_stream_get_default(cpu)), INVALID);
    loch_stream *closed;
    CHECK_OK(loch_stream_create(device, NULL, &closed));
    loch_stream_retain(closed);
    loch_stream_close(closed);
    CHECK_FAILS(run_axpy(rig, y, x, closed), INVALID);
    loch_stream_release(closed);

    loch_argument arguments[] = {loch_argument_write(y), loch_argument_read(x),
                                 loch_argument_scalar(LOCH_F32, loch_scalar_of(0.5)),
                                 loch_argument_scalar(LOCH_U32, loch_scalar_of(COUNT)), loch_argument_read(x)};
    loch_kernel_info info = {.size = sizeof info};
    CHECK_OK(loch_kernel_get_info(rig->axpy, &info));
    if (info.arguments >= 0) { /* the driver tells */
        assert_int_equal(info.arguments, 4);
        CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 3, rig->stream, NULL), INVALID);
        CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 5, rig->stream, NULL), INVALID);
        arguments[2].dtype = LOCH_F64;
        CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 4, rig->stream, NULL), INVALID);
        arguments[2].dtype = LOCH_F32;
    }
    CHECK_FAILS(loch_kernel_launch(rig->axpy, NULL, 4, rig->stream, NULL), INVALID);
    arguments[2].kind = 77;
    CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 4, rig->stream, NULL), INVALID);
    arguments[2] = loch_argument_bytes(NULL, 4);
    CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 4, rig->stream, NULL), INVALID);
    arguments[2] = loch_argument_scalar(LOCH_F32, loch_scalar_of(0));
    CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 4, rig->stream, &(loch_launch_options){0}), INVALID);
    loch_launch_options how = {.size = sizeof how, .block = {2048}};
    CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 4, rig->stream, &how), LIMIT);
    how = (loch_launch_options){.size = sizeof how, .grid = {1, 70000}};
    CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 4, rig->stream, &how), LIMIT);
    how = (loch_launch_options){.size = sizeof how, .shared_bytes = TEST_MIB};
    CHECK_FAILS(loch_kernel_launch(rig->axpy, arguments, 4, rig->stream, &how), LIMIT);

    CHECK_OK(loch_stream_sync(rig->stream));
    CHECK_OK(loch_buffer_resize(loch_tensor_get_buffer(x), 8, LOCH_CONTENTS_DROP, rig->stream));
    CHECK_FAILS(run_axpy(rig, y, x, rig->stream), OUT_OF_RANGE); /* no longer fits its buffer */
    expect_all(y, rig->stream, 1);                               /* nothing ran */
    const loch_external frozen = {.size = sizeof frozen, .device = device, .access = LOCH_READ_ONLY};
    void *address;
    loch_tensor *wrapped;
    CHECK_OK(loch_tensor_get_address(y, &address));
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(COUNT), address, &frozen, &wrapped));
    CHECK_FAILS(run_axpy(rig, wrapped, y, rig->stream), INVALID);
    CHECK_OK(run_axpy(rig, y, wrapped, rig->stream));
    expect_all(y, rig->stream, 1.5);
    loch_tensor_release(wrapped);
    loch_tensor_release(y);
    loch_tensor_release(x);
    loch_tensor_release(host);
    loch_device_release(cpu);
}

static void movable_tensors_are_pinned_during_the_call(void **state)
{
    const door_rig *rig = *state;
    const loch_tensor_options options = {
        .size = sizeof options, .allocator = rig->pool, .stream = rig->stream, .flags = LOCH_ALLOC_MOVABLE};
    loch_tensor *y, *x = make(rig, LOCH_F32, COUNT, 4);
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(COUNT), &options, &y));
    CHECK_OK(loch_tensor_fill(y, loch_scalar_of(1.0), rig->stream));
    CHECK_OK(run_axpy(rig, y, x, rig->stream));
    expect_all(y, rig->stream, 3);
    assert_null(loch_buffer_get_address(loch_tensor_get_buffer(y))); /* not pinned any more */
    loch_tensor_release(y);
    loch_tensor_release(x);
}

static void launches_can_be_captured(void **state)
{
    const door_rig *rig = *state;
    loch_tensor *y = make(rig, LOCH_F32, COUNT, 1), *x = make(rig, LOCH_F32, COUNT, 4);
    CHECK_OK(loch_stream_sync(rig->stream));
    void *native = loch_stream_get_native(rig->stream), *graph, *executable, *before = caller_current();
    void *context;
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    for (int mode = 0; mode < 3; mode++) {
        assert_int_equal(caller.cuStreamBeginCapture_v2(native, mode), 0);
        CHECK_OK(run_axpy(rig, y, x, rig->stream));
        CHECK_OK(run_axpy(rig, y, x, rig->stream));
        loch_module *module; /* loading is not part of the capture, and legal in it */
        loch_kernel *kernel;
        CHECK_OK(loch_module_create(device, door_ptx, sizeof door_ptx, NULL, &module));
        CHECK_OK(loch_module_find(module, "nothing", &kernel));
        loch_module_destroy(module);
        assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
        assert_int_equal(caller.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
        CHECK_OK(loch_tensor_fill(y, loch_scalar_of(1.0), rig->stream));
        for (int i = 0; i < 3; i++)
            assert_int_equal(caller.cuGraphLaunch(executable, native), 0);
        expect_all(y, rig->stream, 13);
        assert_int_equal(caller.cuGraphExecDestroy(executable), 0);
        assert_int_equal(caller.cuGraphDestroy(graph), 0);
    }
    assert_int_equal(caller.cuCtxSetCurrent(before), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    loch_tensor_release(y);
    loch_tensor_release(x);
}

static void the_current_context_stays(void **state)
{
    const door_rig *rig = *state;
    loch_tensor *y = make(rig, LOCH_F32, COUNT, 1), *x = make(rig, LOCH_F32, COUNT, 4);
    void *own;
    assert_null(caller_current());
    CHECK_OK(run_axpy(rig, y, x, rig->stream));
    assert_null(caller_current());
    assert_int_equal(caller.cuCtxCreate_v2(&own, 0, 0), 0);
    CHECK_OK(run_axpy(rig, y, x, rig->stream));
    CHECK_FAILS(run_axpy(rig, y, NULL, rig->stream), INVALID);
    loch_module *module;
    CHECK_OK(loch_module_create(device, door_ptx, sizeof door_ptx, NULL, &module));
    loch_module_destroy(module);
    assert_ptr_equal(caller_current(), own);
    assert_int_equal(caller.cuCtxDestroy_v2(own), 0);
    expect_all(y, rig->stream, 5);
    loch_tensor_release(y);
    loch_tensor_release(x);
}

static void bad_images_are_refused_with_the_compilers_words(void **state)
{
    (void)state;
    loch_module *module = TEST_UNTOUCHED;
    char log[1024];
    const loch_module_options options = {.size = sizeof options, .name = "model", .log = log, .log_bytes = sizeof log};
    static const char wrong[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry f() { nonsense; }\n";
    CHECK_FAILS(loch_module_create(device, wrong, sizeof wrong - 1, &options, &module), INVALID);
    assert_null(module);
    assert_non_null(strstr(loch_error_get()->sentence, "model: "));
    assert_non_null(strstr(loch_error_get()->sentence, "error"));
    assert_null(strchr(loch_error_get()->sentence, '\n'));
    assert_non_null(strstr(log, "error"));
    static const char later[] = ".version 8.7\n.target sm_190\n.address_size 64\n.visible .entry f() { ret; }\n";
    CHECK_FAILS_SET(loch_module_create(device, later, sizeof later - 1, &options, &module),
                    TEST_SET(UNSUPPORTED) | TEST_SET(INVALID));
    static const char newer[] = ".version 99.0\n.target sm_75\n.address_size 64\n";
    CHECK_FAILS_SET(loch_module_create(device, newer, sizeof newer - 1, &options, &module),
                    TEST_SET(UNSUPPORTED) | TEST_SET(INVALID));
    CHECK_OK(loch_module_create(device, door_ptx, sizeof door_ptx, &options, &module));
    loch_kernel *kernel = TEST_UNTOUCHED, *again;
    CHECK_FAILS(loch_module_find(module, "missing", &kernel), NOT_FOUND);
    assert_null(kernel);
    CHECK_FAILS(loch_module_find(module, "", &kernel), INVALID);
    CHECK_OK(loch_module_find(module, "axpy", &kernel));
    CHECK_OK(loch_module_find(module, "axpy", &again));
    assert_ptr_equal(kernel, again);
    loch_kernel_info info = {.size = sizeof info};
    CHECK_OK(loch_kernel_get_info(kernel, &info));
    assert_string_equal(info.name, "axpy");
    CHECK_FAILS(loch_kernel_get_info(kernel, &(loch_kernel_info){0}), INVALID);
    loch_module_destroy(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_kernel_runs_and_raises_the_version, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(arguments_of_all_kinds_arrive, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(memory_is_reused_behind_the_launch, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(large_shared_memory_is_allowed_by_itself, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(flags_are_passed_on, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(wrong_launches_are_refused, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(movable_tensors_are_pinned_during_the_call, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(launches_can_be_captured, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(the_current_context_stays, rig_open, rig_close),
        cmocka_unit_test(bad_images_are_refused_with_the_compilers_words),
        cmocka_unit_test(nothing_is_left_of_the_device),
    };
    return CUDA_RUN(tests);
}
