/* SPDX-License-Identifier: MIT */
/* Every call of a CUDA driver fails in turn, once and for good, while kernels of the caller and of Loch are loaded and
 * launched over the driver for tests: a status with a sentence, nothing left, and the next run has the right
 * numbers. */
#include "cuda.h"
#include "faults.h"
#include "base/fail.h"
#include "gpu/kernel_door_ptx.h"
#include <loch/kernel.h>
#include <loch/kernel_set.h>

enum { COUNT = 100, SHARED_WORDS = 15 * 1024 };

typedef struct program {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *stream;
    loch_module *module;
    loch_kernel *axpy, *shared_sum, *nothing;
    loch_tensor *x, *y, *sum, *plane, *turned, *copy;
} program;

static loch_status program_make(const program *p, loch_tensor **out, loch_dtype dtype, int dims, const int64_t *shape,
                                double value)
{
    const loch_tensor_options options = {.size = sizeof options, .allocator = p->pool, .stream = p->stream};
    LOCH_TRY_RETURN(loch_tensor_create(dtype, dims, shape, &options, out));
    return loch_tensor_fill(*out, loch_scalar_from_double(value), p->stream);
}

static loch_status program_load(program *p)
{
    LOCH_TRY_RETURN(loch_device_open("cuda:0", &p->device));
    LOCH_TRY_RETURN(loch_pool_create(p->device, "kernels", NULL, &p->pool));
    LOCH_TRY_RETURN(loch_stream_create(p->device, NULL, &p->stream));
    LOCH_TRY_RETURN(loch_module_create(p->device, door_ptx, sizeof door_ptx - 1, NULL, &p->module));
    LOCH_TRY_RETURN(loch_module_find(p->module, "axpy", &p->axpy));
    LOCH_TRY_RETURN(loch_module_find(p->module, "shared_sum", &p->shared_sum));
    LOCH_TRY_RETURN(loch_module_find(p->module, "nothing", &p->nothing));
    LOCH_TRY_RETURN(program_make(p, &p->x, LOCH_F32, LOCH_SHAPE(COUNT), 4));
    LOCH_TRY_RETURN(program_make(p, &p->y, LOCH_F32, LOCH_SHAPE(COUNT), 1));
    LOCH_TRY_RETURN(program_make(p, &p->sum, LOCH_U32, LOCH_SHAPE(1), 0));
    LOCH_TRY_RETURN(program_make(p, &p->plane, LOCH_F32, LOCH_SHAPE(40, 30), 3));
    LOCH_TRY_RETURN(program_make(p, &p->copy, LOCH_F32, LOCH_SHAPE(30, 40), 0));
    return loch_tensor_transpose(p->plane, 0, 1, &p->turned);
}

static loch_status program_launch(program *p)
{
    const loch_argument axpy[] = {loch_argument_write(p->y), loch_argument_read(p->x),
                                  loch_argument_scalar(LOCH_F32, loch_scalar_of(0.5)),
                                  loch_argument_scalar(LOCH_U32, loch_scalar_of(COUNT))};
    const loch_argument sum[] = {loch_argument_write(p->sum),
                                 loch_argument_scalar(LOCH_U32, loch_scalar_of(SHARED_WORDS))};
    const loch_launch_options wide = {.size = sizeof wide, .grid = {1}, .block = {COUNT}};
    const loch_launch_options shared = {.size = sizeof shared, .block = {128}, .shared_bytes = SHARED_WORDS * 4};
    const loch_launch_options together = {
        .size = sizeof together, .grid = {2}, .block = {32}, .flags = LOCH_LAUNCH_COOPERATIVE};
    const loch_tensor_copy_options on = {.size = sizeof on, .stream = p->stream};
    loch_kernel_info info = {.size = sizeof info, .block_threads = 128};
    LOCH_TRY_RETURN(loch_kernel_launch(p->axpy, axpy, 4, p->stream, &wide));
    LOCH_TRY_RETURN(loch_kernel_get_info(p->shared_sum, &info));
    LOCH_TRY_RETURN(loch_kernel_launch(p->shared_sum, sum, 2, p->stream, &shared));
    LOCH_TRY_RETURN(loch_kernel_launch(p->nothing, NULL, 0, p->stream, &together));
    return loch_tensor_copy(p->copy, p->turned, &on); /* a kernel of Loch */
}

static loch_status program_check(program *p)
{
    float y[COUNT], copy[1200];
    uint32_t sum;
    LOCH_TRY_RETURN(loch_tensor_read(p->y, y, sizeof y, p->stream));
    LOCH_TRY_RETURN(loch_tensor_read(p->sum, &sum, sizeof sum, p->stream));
    LOCH_TRY_RETURN(loch_tensor_read(p->copy, copy, sizeof copy, p->stream));
    const bool is_right = y[0] == 3 && y[COUNT - 1] == 3 && sum == SHARED_WORDS / 2u * (SHARED_WORDS - 1u) &&
                          copy[0] == 3 && copy[1199] == 3;
    return is_right ? LOCH_OK : loch_error_set(LOCH_E_CORRUPT, NULL, 0, "a kernel wrote other numbers");
}

/* Loads, launches, reads, and gives back. Returns the first failure. */
static loch_status program_run(void)
{
    program p = {0};
    loch_status status = program_load(&p);
    if (status == LOCH_OK) status = program_launch(&p);
    if (status == LOCH_OK) status = program_check(&p);
    const loch_error error = *loch_error_get();
    loch_tensor *const tensors[] = {p.x, p.y, p.sum, p.turned, p.plane, p.copy};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        loch_tensor_release(tensors[i]);
    if (p.device) TEST_BACK(loch_device_sync(p.device)); /* work that was queued uses the memory */
    loch_module_destroy(p.module);
    loch_stream_close(p.stream);
    loch_allocator_release(p.pool);
    test_end_defaults();
    loch_device_release(p.device);
    if (status != LOCH_OK) loch_error_set(status, error.driver, error.driver_code, "%s", error.sentence);
    return status;
}

static void program_round(test_round *round, const void *user)
{
    (void)user;
    test_kept = NULL;
    test_round_begin(round, NULL);
    const loch_status status = program_run();
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (test_kept) fail_msg("%s: %s failed, it gives something back", round->when, test_kept);
    if (status == LOCH_E_CORRUPT) fail_msg("%s: %s", round->when, loch_error_get()->sentence);
    if (status != LOCH_OK && !loch_error_get()->sentence[0]) fail_msg("%s: no sentence", round->when);
    CHECK_OK(program_run());
}

static void every_call_under_kernels_fails(void **state)
{
    (void)state;
    loch_kernel_set_destroy(NULL); /* so that Loch's kernels are linked with this program */
    const test_rounds rounds = test_rounds_run(&driver_faults, "kernels", program_round, NULL);
    assert_true(rounds.places > 40 && rounds.felt > 20);
}

static void every_entry_point_is_called(void **state)
{
    (void)state;
#define CALL_NAME(name, need, parameters) #name,
    static const char *const names[] = {LOCHI_KERNEL_CALLS(CALL_NAME) "cuModuleLoadData"};
#undef CALL_NAME
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!control.count(names[i])) fail_msg("%s: the sweep does not call it", names[i]);
}

/* What an unloading that fails was to give back stays, and harms nothing. The last test, because of what stays. */
static void an_unloading_that_fails_harms_nothing(void **state)
{
    (void)state;
    for (int is_forever = 0; is_forever < 2; is_forever++) {
        const fake_cuda_fault fault = {.call = "cuModuleUnload", .is_forever = is_forever, .code = 999};
        control.set_fault(&fault);
        CHECK_OK(program_run());
        assert_true(control.calls() > 0);
        control.set_fault(NULL);
        CHECK_OK(program_run());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_under_kernels_fails),
        cmocka_unit_test(every_entry_point_is_called),
        cmocka_unit_test(an_unloading_that_fails_harms_nothing),
    };
    return cmocka_run_group_tests_name("calls of a driver fail under kernels", tests, control_open, NULL);
}
