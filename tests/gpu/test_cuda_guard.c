/* SPDX-License-Identifier: MIT */
/* Guards on a real GPU: the seat's primary context is current inside, for work that the caller queues by plain CUDA,
 * and what was current before comes back: nested, in workers, in calls for each seat, with locks, and whatever the
 * caller did to the stack of contexts.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * CUDA device than cuda:0. */
#include "device/cuda/cuda.h"
#include "support/test.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define GUARDS 200000

static const char *device_name = "cuda:0";
static const loch_seat gpu = {0}, cpu = {1};

/* What a caller links by itself. */
static struct caller {
    int (*cuCtxGetCurrent)(void **context);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuCtxPushCurrent_v2)(void *context);
    int (*cuCtxPopCurrent_v2)(void **context);
    int (*cuCtxCreate_v2)(void **context, unsigned flags, int device);
    int (*cuCtxDestroy_v2)(void *context);
    int (*cuMemAlloc_v2)(unsigned long long *address, size_t bytes);
    int (*cuMemFree_v2)(unsigned long long address);
    int (*cuMemsetD8_v2)(unsigned long long address, unsigned char value, size_t count);
} caller;

static void load_caller(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    void *library = loch_option_get("cuda_library", path) == LOCH_OK && *path ? dlopen(path, RTLD_NOW)
                                                                              : dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(library);
#define CALLER_LOAD(name)                                                                                              \
    *(void **)(void *)&caller.name = dlsym(library, #name);                                                            \
    assert_true(caller.name != NULL)
    CALLER_LOAD(cuCtxGetCurrent);
    CALLER_LOAD(cuCtxSetCurrent);
    CALLER_LOAD(cuCtxPushCurrent_v2);
    CALLER_LOAD(cuCtxPopCurrent_v2);
    CALLER_LOAD(cuCtxCreate_v2);
    CALLER_LOAD(cuCtxDestroy_v2);
    CALLER_LOAD(cuMemAlloc_v2);
    CALLER_LOAD(cuMemFree_v2);
    CALLER_LOAD(cuMemsetD8_v2);
#undef CALLER_LOAD
}

static void *current(void)
{
    void *context = TEST_UNTOUCHED;
    assert_int_equal(caller.cuCtxGetCurrent(&context), 0);
    return context;
}

static void make_current(void *context)
{
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
}

/* Plain CUDA without a word about the device: fails where no context is current. */
static int use_plain_cuda(void)
{
    unsigned long long address = 0;
    const int result = caller.cuMemAlloc_v2(&address, 4096);
    if (result) return result;
    const int filled = caller.cuMemsetD8_v2(address, 1, 4096);
    return caller.cuMemFree_v2(address) ? -1 : filled;
}

typedef struct rig {
    loch_engine *engine;
    loch_context *context;
    void *primary; /* the GPU's */
} rig;

static rig open_rig(void)
{
    const loch_engine_device table[] = {
        {.size = sizeof table[0], .name = device_name, .limit_bytes = 64 * TEST_MIB, .workers = 2},
        {.size = sizeof table[0], .name = "cpu", .limit_bytes = 64 * TEST_MIB}};
    const loch_engine_options options = {.size = sizeof options, .devices = table, .devices_count = 2};
    rig r;
    make_current(NULL);
    CHECK_OK(loch_engine_open(&options, &r.engine));
    CHECK_OK(loch_context_open(r.engine, NULL, &r.context));
    r.primary = lochi_cuda_of(loch_engine_get_device(r.engine, gpu))->context;
    assert_non_null(r.primary);
    assert_null(current()); /* opening has left the thread alone */
    return r;
}

static void close_rig(rig *r)
{
    void *before = current();
    CHECK_OK(loch_context_close(r->context));
    CHECK_OK(loch_engine_close(r->engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    assert_ptr_equal(current(), before);
    make_current(NULL);
}

static void guards_nest_and_put_the_device_back(void **state)
{
    (void)state;
    rig r = open_rig();
    loch_guard one, two, three;
    assert_int_not_equal(use_plain_cuda(), 0);
    CHECK_OK(loch_context_begin_seat(r.context, gpu, LOCH_SEAT_LOCKED, &one));
    assert_ptr_equal(current(), r.primary);
    assert_int_equal(use_plain_cuda(), 0);
    CHECK_OK(loch_context_begin_seat(r.context, cpu, LOCH_SEAT_PLAIN, &two)); /* leaves it alone */
    assert_ptr_equal(current(), r.primary);
    CHECK_OK(loch_context_begin_seat(r.context, gpu, LOCH_SEAT_PLAIN, &three));
    assert_ptr_equal(current(), r.primary);
    loch_guard_end(&three);
    loch_guard_end(&two);
    assert_ptr_equal(current(), r.primary);
    loch_guard_end(&one);
    assert_null(current());
    assert_int_not_equal(use_plain_cuda(), 0);
    CHECK_OK(loch_context_begin_stream(r.context, NULL, &one));
    assert_ptr_equal(current(), r.primary);
    loch_guard_end(&one);
    assert_null(current());
    close_rig(&r);
}

/* The caller's own context comes back, whatever was pushed, popped and set inside. */
static void a_guard_puts_back_what_the_caller_changed(void **state)
{
    (void)state;
    rig r = open_rig();
    loch_guard guard;
    void *own, *other, *popped;
    assert_int_equal(caller.cuCtxCreate_v2(&own, 0, 0), 0);
    assert_int_equal(caller.cuCtxCreate_v2(&other, 0, 0), 0);
    assert_int_equal(caller.cuCtxPopCurrent_v2(&popped), 0); /* of cuCtxCreate: `own` is on top */
    assert_ptr_equal(current(), own);
    for (int change = 0; change < 4; change++) {
        CHECK_OK(loch_context_begin_seat(r.context, gpu, LOCH_SEAT_PLAIN, &guard));
        assert_ptr_equal(current(), r.primary);
        if (change == 1) make_current(other); /* cudaSetDevice */
        if (change == 2) assert_int_equal(caller.cuCtxPushCurrent_v2(other), 0);
        if (change == 3) assert_int_equal(caller.cuCtxPopCurrent_v2(&popped), 0);
        loch_guard_end(&guard);
        assert_ptr_equal(current(), own);
    }
    while (current())
        assert_int_equal(caller.cuCtxPopCurrent_v2(&popped), 0);
    for (int change = 0; change < 4; change++) { /* none was current: none is */
        CHECK_OK(loch_context_begin_seat(r.context, gpu, LOCH_SEAT_PLAIN, &guard));
        if (change == 1) make_current(other);
        if (change == 2) assert_int_equal(caller.cuCtxPushCurrent_v2(other), 0);
        if (change == 3) assert_int_equal(caller.cuCtxPopCurrent_v2(&popped), 0);
        loch_guard_end(&guard);
        assert_null(current());
    }
    assert_int_equal(caller.cuCtxDestroy_v2(other), 0);
    assert_int_equal(caller.cuCtxDestroy_v2(own), 0);
    close_rig(&r);
}

static void a_lock_makes_its_gpu_current(void **state)
{
    (void)state;
    rig r = open_rig();
    CHECK_OK(loch_engine_lock(r.engine, gpu));
    CHECK_OK(loch_engine_lock(r.engine, cpu));
    assert_ptr_equal(current(), r.primary);
    CHECK_OK(loch_engine_unlock(r.engine, cpu));
    CHECK_OK(loch_engine_unlock(r.engine, gpu));
    assert_null(current());
    loch_guard guard;
    CHECK_FAILS(loch_context_begin_seat(r.context, LOCH_SEAT(7), LOCH_SEAT_PLAIN, &guard), NOT_FOUND);
    assert_null(current());
    close_rig(&r);
}

static loch_status work(void *user)
{
    rig *r = user;
    if (current() != r->primary) return loch_error_set(LOCH_E_DRIVER, NULL, 0, "another context is current");
    if (use_plain_cuda()) return loch_error_set(LOCH_E_DRIVER, NULL, 0, "plain CUDA does not work");
    make_current(NULL); /* the next task has it again */
    return LOCH_OK;
}

static loch_status work_on_seat(loch_engine *engine, loch_seat seat, void *user)
{
    (void)engine;
    return seat.number == gpu.number ? work(user) : LOCH_OK;
}

static void workers_have_the_gpu_of_their_seat(void **state)
{
    (void)state;
    rig r = open_rig();
    for (int i = 0; i < 20; i++)
        CHECK_OK(loch_workers_run(loch_engine_get_workers(r.engine, gpu), work, &r, NULL));
    CHECK_OK(loch_workers_wait(loch_engine_get_workers(r.engine, gpu), NULL));
    for (int i = 0; i < 20; i++)
        CHECK_OK(loch_engine_for_each(r.engine, work_on_seat, &r, NULL));
    assert_null(current());
    close_rig(&r);
}

/* Prints what a guard costs; no bar. */
static void the_cost_of_a_guard_is_printed(void **state)
{
    (void)state;
    rig r = open_rig();
    for (int is_same = 0; is_same < 2; is_same++) {
        struct timespec from, to;
        make_current(is_same ? r.primary : NULL);
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < GUARDS; i++) {
            loch_guard guard;
            CHECK_OK(loch_context_begin_seat(r.context, gpu, LOCH_SEAT_PLAIN, &guard));
            loch_guard_end(&guard);
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        const double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
        print_message("a guard, %s: %.0f ns\n", is_same ? "its context current already" : "none current before",
                      ns / GUARDS);
    }
    assert_ptr_equal(current(), r.primary);
    close_rig(&r);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guards_nest_and_put_the_device_back),
        cmocka_unit_test(a_guard_puts_back_what_the_caller_changed),
        cmocka_unit_test(a_lock_makes_its_gpu_current),
        cmocka_unit_test(workers_have_the_gpu_of_their_seat),
        cmocka_unit_test(the_cost_of_a_guard_is_printed),
    };
    loch_device *device;
    if (count > 1) device_name = arguments[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    load_caller();
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(device);
    return failures ? 1 : 0;
}
