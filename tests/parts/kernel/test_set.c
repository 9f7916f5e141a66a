/* SPDX-License-Identifier: MIT */
/* Sets of Loch's own kernels over a driver of this test: what is loaded, how often, in which capture mode, and what
 * happens if the driver cannot. The functions of the driver are exported by this program. */
#include "support/test.h"
#include <dlfcn.h>
#include <loch/kernel_set.h>
#include <pthread.h>

#define EXPORT __attribute__((visibility("default"), used))

enum { RELAXED = 2, GLOBAL = 0, REFUSES_PTX = 222, OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700 };

static struct {
    int load_result, find_result, launch_result;
    int loads, unloads, launches, mode;
    int asked; /* functions whose attributes were read: a driver that loads lazily loads them then */
    bool is_load_relaxed, has_mark, is_for_90;
    char name[64];
    unsigned blocks;
} fake;

static int compute_major = 8;
static bool is_threaded; /* launches then count nothing and check nothing: cmocka's checks are for one thread */

EXPORT int cuModuleLoadData(void **module, const void *image);
EXPORT int cuModuleUnload(void *module);
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name);
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function);
EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra);
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
EXPORT int cuCtxGetDevice(int *device);
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);

int cuModuleLoadData(void **module, const void *image)
{
    fake.loads++;
    fake.is_load_relaxed = fake.mode == RELAXED;
    fake.has_mark = strstr(image, "0x10c4") != NULL || strstr(image, "call") || strstr(image, "loch_convert");
    fake.is_for_90 = strstr(image, ".target sm_90") != NULL;
    assert_non_null(strstr(image, ".version"));
    assert_non_null(strstr(image, ".target"));
    if (fake.load_result) return fake.load_result;
    *module = &fake;
    return 0;
}

int cuModuleUnload(void *module)
{
    assert_ptr_equal(module, &fake);
    fake.unloads++;
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    assert_ptr_equal(module, &fake);
    snprintf(fake.name, sizeof fake.name, "%s", name);
    if (fake.find_result) return fake.find_result;
    *function = &fake.name;
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute;
    assert_ptr_equal(function, &fake.name);
    assert_int_equal(fake.mode, RELAXED);
    fake.asked++;
    *value = 1024;
    return 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)shared, (void)stream, (void)parameters, (void)extra;
    if (is_threaded) return 0;
    assert_ptr_equal(function, &fake.name);
    assert_true(gx && gy == 1 && gz == 1 && bx == 256 && by == 1 && bz == 1);
    assert_int_equal(fake.mode, GLOBAL); /* a launch is part of a capture */
    fake.launches++;
    fake.blocks = gx;
    return fake.launch_result;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    const int before = fake.mode;
    fake.mode = *mode;
    *mode = before;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 3;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    assert_int_equal(attribute, 75);
    assert_int_equal(device, 3);
    *value = compute_major;
    return 0;
}

static loch_kernel_set *open_set(void)
{
    loch_kernel_set *set;
    memset(&fake, 0, sizeof fake);
    assert_int_equal(loch_kernel_set_create(dlopen(NULL, RTLD_NOW), &set), 0);
    return set;
}

static loch_strided conversion(loch_dtype to, loch_dtype from)
{
    const ptrdiff_t to_bytes = (ptrdiff_t)loch_dtype_bytes(to), from_bytes = (ptrdiff_t)loch_dtype_bytes(from);
    return (loch_strided){.size = sizeof(loch_strided),
                          .to = (void *)(uintptr_t)0x10000,
                          .from = (const void *)(uintptr_t)0x900000,
                          .to_type = to,
                          .from_type = from,
                          .axes = 1,
                          .sizes = {1000},
                          .to_strides = {to_bytes},
                          .from_strides = {from_bytes}};
}

static void kernels_are_loaded_once(void **state)
{
    (void)state;
    loch_kernel_set *set = open_set();
    loch_strided work = conversion(LOCH_BF16, LOCH_F32);
    for (int i = 0; i < 3; i++)
        assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
    assert_int_equal(fake.loads, 1);
    assert_int_equal(fake.launches, 3);
    assert_string_equal(fake.name, "loch_chunks_4_2");
    assert_int_equal(fake.blocks, 1);
    assert_true(fake.is_load_relaxed);
    assert_int_equal(fake.asked, 1);
    assert_false(fake.has_mark);
    work = conversion(LOCH_F16, LOCH_F32);
    assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
    assert_int_equal(fake.loads, 2);
    loch_kernel_set_destroy(set);
    assert_int_equal(fake.unloads, 2);
    loch_kernel_set_destroy(NULL);
}

/* All pairs of types, fills and rows have a text without marks. Pairs with equal results share a kernel. */
static void every_kernel_has_a_text(void **state)
{
    (void)state;
    loch_kernel_set *set = open_set();
    for (int to = 1; to < LOCH_DTYPE_COUNT; to++)
        for (int from = 1; from < LOCH_DTYPE_COUNT; from++)
            for (int kind = 0; kind < 3; kind++) {
                loch_strided work = conversion((loch_dtype)to, (loch_dtype)from);
                if (kind == 1) work.from_strides[0] *= 2; /* element by element */
                if (kind == 2) {                          /* turned */
                    work.axes = 2;
                    work.sizes[0] = work.sizes[1] = 256;
                    work.to_strides[1] = work.to_strides[0];
                    work.to_strides[0] *= 256;
                    work.from_strides[1] = work.from_strides[0] * 256;
                }
                assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
                assert_false(fake.has_mark);
            }
    for (int type = 1; type < LOCH_DTYPE_COUNT; type++) {
        loch_strided work = conversion((loch_dtype)type, (loch_dtype)type);
        work.from = NULL;
        assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
        work.from = (const void *)(uintptr_t)0x900000;
        work.index_type = type % 2 ? LOCH_I32 : LOCH_I64;
        work.indices = (const void *)(uintptr_t)0xa00000;
        work.index_stride = 8;
        work.index_limit = 10;
        for (int indexing = LOCH_INDEXING_GATHER; indexing <= LOCH_INDEXING_SCATTER; indexing++) {
            work.indexing = (loch_indexing)indexing;
            assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
            assert_false(fake.has_mark);
        }
    }
    /* 225 pairs of three kinds; copies of equal sizes and integers of equal results are fewer kernels */
    assert_true(fake.loads > 300 && fake.loads < 3 * 225);
    loch_kernel_set_destroy(set);
    assert_int_equal(fake.unloads, fake.loads);
}

/* Floats become f8 types by instructions where the device has them; the text is for such devices alone. */
static void newer_devices_have_texts_of_their_own(void **state)
{
    (void)state;
    static const loch_dtype sources[] = {LOCH_F32, LOCH_F16, LOCH_BF16, LOCH_F64, LOCH_I16};
    for (compute_major = 8; compute_major <= 10; compute_major++) {
        loch_kernel_set *set = open_set();
        for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
            loch_strided work = conversion(LOCH_F8E4M3, sources[i]);
            assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
            assert_int_equal(fake.is_for_90, compute_major >= 9 && i < 3);
            work.overflow = LOCH_OVERFLOW_SPECIAL;
            assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
            assert_false(fake.is_for_90);
            assert_false(fake.has_mark);
        }
        loch_kernel_set_destroy(set);
    }
    compute_major = 8;
}

/* A driver that cannot compile a text is asked once; the host does the work. */
static void a_refused_text_is_not_loaded_again(void **state)
{
    (void)state;
    loch_kernel_set *set = open_set();
    const loch_strided work = conversion(LOCH_BF16, LOCH_F32);
    fake.load_result = REFUSES_PTX;
    for (int i = 0; i < 3; i++)
        assert_int_equal(loch_kernel_set_run(set, &work, NULL), LOCH_KERNEL_SET_NONE);
    assert_int_equal(fake.loads, 1);
    assert_int_equal(fake.mode, GLOBAL);
    assert_int_equal(fake.launches, 0);
    loch_kernel_set_destroy(set);
    assert_int_equal(fake.unloads, 0);
}

/* Other failures are reported, and may pass. */
static void failures_are_reported_and_may_pass(void **state)
{
    (void)state;
    loch_kernel_set *set = open_set();
    const loch_strided work = conversion(LOCH_BF16, LOCH_F32);
    fake.load_result = OUT_OF_MEMORY;
    assert_int_equal(loch_kernel_set_run(set, &work, NULL), OUT_OF_MEMORY);
    fake.load_result = 0;
    fake.find_result = OUT_OF_MEMORY;
    assert_int_equal(loch_kernel_set_run(set, &work, NULL), OUT_OF_MEMORY);
    assert_int_equal(fake.unloads, 1);
    fake.find_result = 0;
    fake.launch_result = ILLEGAL_ADDRESS;
    assert_int_equal(loch_kernel_set_run(set, &work, NULL), ILLEGAL_ADDRESS);
    fake.launch_result = 0;
    assert_int_equal(loch_kernel_set_run(set, &work, NULL), 0);
    assert_int_equal(fake.loads, 3);
    loch_kernel_set_destroy(set);
    assert_int_equal(fake.unloads, 2);
}

/* Elements at odd addresses have no kernel: nothing is loaded. */
static void work_without_a_kernel_is_refused(void **state)
{
    (void)state;
    loch_kernel_set *set = open_set();
    loch_strided work = conversion(LOCH_BF16, LOCH_F32);
    work.from = (const char *)work.from + 1;
    assert_int_equal(loch_kernel_set_run(set, &work, NULL), LOCH_KERNEL_SET_NONE);
    assert_int_equal(fake.loads, 0);
    loch_kernel_set_destroy(set);
}

static void a_library_without_the_functions_is_refused(void **state)
{
    (void)state;
    loch_kernel_set *set = TEST_UNTOUCHED;
    void *library = dlopen("libc.so.6", RTLD_NOW);
    assert_non_null(library);
    assert_int_equal(loch_kernel_set_create(library, &set), LOCH_KERNEL_SET_NONE);
    assert_null(set);
    dlclose(library);
}

static void *run_in_thread(void *user)
{
    const loch_strided work = conversion(LOCH_F16, LOCH_I32);
    for (int i = 0; i < 100; i++)
        if (loch_kernel_set_run(user, &work, NULL) != 0) return NULL;
    return user;
}

/* Threads that ask for a kernel at once load it once. */
static void threads_load_a_kernel_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    loch_kernel_set *set = open_set();
    pthread_t threads[THREADS];
    is_threaded = true;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_in_thread, set), 0);
    for (int i = 0; i < THREADS; i++) {
        void *done;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_non_null(done);
    }
    is_threaded = false;
    loch_kernel_set_destroy(set);
    assert_int_equal(fake.loads, 1);
    assert_int_equal(fake.unloads, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_loaded_once),
        cmocka_unit_test(every_kernel_has_a_text),
        cmocka_unit_test(newer_devices_have_texts_of_their_own),
        cmocka_unit_test(a_refused_text_is_not_loaded_again),
        cmocka_unit_test(failures_are_reported_and_may_pass),
        cmocka_unit_test(work_without_a_kernel_is_refused),
        cmocka_unit_test(a_library_without_the_functions_is_refused),
        cmocka_unit_test(threads_load_a_kernel_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
