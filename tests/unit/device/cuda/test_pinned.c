/* SPDX-License-Identifier: MIT */
/* Pinned memory of the CUDA driver without a GPU: the pages are real, and the entry points of the driver are functions
 * of the test, which count and fail on request. tests/gpu has the real driver. */
#include "device/cuda/pages.h"
#include "device/cuda/pinned.h"
#include "test.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* --- what the kernel says about memory --- */

/* Tells whether a page is mapped, and whether it is present. */
static bool page_is_mapped(const void *address, bool *is_present)
{
    unsigned char there = 0;
    const bool is_mapped = mincore((void *)((uintptr_t)address & ~(uintptr_t)4095), 1, &there) == 0;
    *is_present = there & 1;
    return is_mapped;
}

static void expect_gone(const void *address)
{
    bool is_present;
    assert_false(page_is_mapped(address, &is_present));
}

static void expect_present(const char *address, size_t bytes)
{
    bool is_present;
    for (size_t at = 0; at < bytes; at += 4096) {
        assert_true(page_is_mapped(address + at, &is_present));
#ifndef LOCHI_NO_DONTUNMAP /* an emulator passes no advice on (cmake/arm64.cmake) */
        assert_true(is_present);
#endif
        assert_int_equal(address[at], 0);
    }
}

/* Counts the threads of this process. */
static unsigned count_threads(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    unsigned count = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Threads: %u", &count) == 1) break;
    fclose(file);
    return count;
}

/* --- pages --- */

static void every_page_is_present_exact_and_aligned(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, MIB + 1, 2 * MIB, 3 * MIB + 4097, 100 * MIB + 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t alignment = 1; alignment <= 8 * MIB; alignment *= 8) {
            char *start;
            CHECK_OK(lochi_cuda_map_pages(sizes[i], alignment, -1, NULL, (void **)&start));
            assert_int_equal((uintptr_t)start & (alignment - 1), 0);
            expect_present(start, sizes[i]);
            lochi_cuda_unmap_pages(start, sizes[i]);
            expect_gone(start);
            expect_gone(start + sizes[i] - 1);
        }
}

static _Atomic unsigned populate_calls, populate_threads_seen;
static _Thread_local bool populate_is_seen;
static int populate_error;

static int populate_noted(void *address, size_t bytes, int advice)
{
    atomic_fetch_add(&populate_calls, 1);
    if (!populate_is_seen) atomic_fetch_add(&populate_threads_seen, 1);
    populate_is_seen = true;
    if (populate_error) {
        errno = populate_error;
        return -1;
    }
    (void)advice;
    memset(address, 0, bytes);
    return 0;
}

static void several_threads_share_large_blocks_and_none_is_left(void **state)
{
    (void)state;
    const lochi_cuda_pages_way way = {.threads = 4, .populate = populate_noted};
    const unsigned before = count_threads();
    char *start;
    populate_error = 0;
    atomic_store(&populate_calls, 0);
    CHECK_OK(lochi_cuda_map_pages(128 * MIB, 0, -1, &way, (void **)&start));
    assert_int_equal(atomic_load(&populate_calls), 8); /* parts of 16 MiB, each made present once */
    expect_present(start, 128 * MIB);
    assert_int_equal(count_threads(), before);
    lochi_cuda_unmap_pages(start, 128 * MIB);
}

static unsigned start_calls;

static int start_once(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    return start_calls++ ? EAGAIN : pthread_create(thread, attributes, run, user);
}

static int start_never(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    (void)thread;
    (void)attributes;
    (void)run;
    (void)user;
    return EAGAIN;
}

static void threads_that_cannot_be_started_cost_nothing_but_time(void **state)
{
    (void)state;
    const lochi_cuda_pages_way ways[] = {{.threads = 8, .start = start_once}, {.threads = 8, .start = start_never}};
    const unsigned before = count_threads();
    for (size_t i = 0; i < 2; i++) {
        char *start;
        start_calls = 0;
        CHECK_OK(lochi_cuda_map_pages(80 * MIB, 0, -1, &ways[i], (void **)&start));
        expect_present(start, 80 * MIB);
        assert_int_equal(count_threads(), before);
        lochi_cuda_unmap_pages(start, 80 * MIB);
    }
}

static void old_kernels_touch_the_pages(void **state)
{
    (void)state;
    const lochi_cuda_pages_way way = {.threads = 3, .populate = populate_noted};
    char *start;
    populate_error = EINVAL;
    CHECK_OK(lochi_cuda_map_pages(64 * MIB, 0, -1, &way, (void **)&start));
    expect_present(start, 64 * MIB);
    lochi_cuda_unmap_pages(start, 64 * MIB);
    populate_error = 0;
}

static void pages_that_cannot_be_had_leave_nothing(void **state)
{
    (void)state;
    const lochi_cuda_pages_way way = {.threads = 3, .populate = populate_noted};
    char *start = TEST_UNTOUCHED;
    populate_error = ENOMEM;
    CHECK_FAILS(lochi_cuda_map_pages(64 * MIB, 0, -1, &way, (void **)&start), HOST_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "64 MiB"));
    assert_ptr_equal(start, TEST_UNTOUCHED);
    populate_error = 0;
}

/* Far more than any machine has: the kernel would hand it out, and end the process at the faults. */
static void sizes_beyond_the_host_are_refused_before_the_first_fault(void **state)
{
    (void)state;
    void *start = TEST_UNTOUCHED;
    for (unsigned shift = 45; shift < 64; shift++) {
        CHECK_FAILS(lochi_cuda_map_pages((size_t)1 << shift, 0, -1, NULL, &start), HOST_MEMORY);
        assert_non_null(strstr(loch_error_get()->sentence, "page-locked"));
    }
    CHECK_FAILS(lochi_cuda_map_pages(SIZE_MAX - 5, 0, -1, NULL, &start), HOST_MEMORY);
    assert_ptr_equal(start, TEST_UNTOUCHED);
}

static void a_node_that_does_not_exist_is_no_failure(void **state)
{
    (void)state;
    static const int nodes[] = {0, 1, 63, 1023, 1024, 1 << 30, -7};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        char *start;
        CHECK_OK(lochi_cuda_map_pages(20 * MIB, 0, nodes[i], NULL, (void **)&start));
        expect_present(start, 20 * MIB);
        lochi_cuda_unmap_pages(start, 20 * MIB);
    }
}

static void a_fork_does_not_copy_the_pages(void **state)
{
    (void)state;
    char *start;
#ifdef LOCHI_NO_DONTUNMAP /* an emulator passes no advice on (cmake/arm64.cmake) */
    skip();
#endif
    CHECK_OK(lochi_cuda_map_pages(4 * MIB, 0, -1, NULL, (void **)&start));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        bool is_present;
        _exit(page_is_mapped(start, &is_present) ? 1 : 0);
    }
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    lochi_cuda_unmap_pages(start, 4 * MIB);
}

static _Atomic bool cancel_may_go;

static void *map_and_be_cancelled(void *user)
{
    const lochi_cuda_pages_way way = {.threads = 4, .populate = populate_noted};
    while (!atomic_load(&cancel_may_go)) /* cancelled before the call: no call is a cancellation point */
        ;
    CHECK_OK(lochi_cuda_map_pages(64 * MIB, 0, -1, &way, (void **)user));
    pthread_testcancel();
    return NULL;
}

static void a_cancelled_thread_ends_behind_the_call(void **state)
{
    (void)state;
    pthread_t thread;
    char *start = NULL;
    void *answer;
    populate_error = 0;
    atomic_store(&cancel_may_go, false);
    assert_int_equal(pthread_create(&thread, NULL, map_and_be_cancelled, &start), 0);
    assert_int_equal(pthread_cancel(thread), 0);
    atomic_store(&cancel_may_go, true);
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_ptr_equal(answer, PTHREAD_CANCELED);
    assert_non_null(start);
    expect_present(start, 64 * MIB);
    lochi_cuda_unmap_pages(start, 64 * MIB);
}

/* --- with a driver of the test --- */

typedef struct fake {
    cu_result fail_register, fail_unregister, fail_alloc;
    void *registered, *allocated;
    size_t registered_bytes;
    unsigned registers, unregisters, allocs, frees;
} fake;

static fake driver;
static char context_object;
#define CONTEXT ((cu_context *)(void *)&context_object)

static cu_result fake_get_current(cu_context **context)
{
    *context = CONTEXT;
    return LOCHI_CUDA_SUCCESS;
}

static cu_result fake_register(void *address, size_t bytes, unsigned flags)
{
    driver.registers++;
    if (driver.fail_register) return driver.fail_register;
    assert_int_equal(flags, LOCHI_CU_MEMHOSTREGISTER_PORTABLE);
    expect_present(address, bytes);
    driver.registered = address;
    driver.registered_bytes = bytes;
    return LOCHI_CUDA_SUCCESS;
}

static cu_result fake_unregister(void *address)
{
    driver.unregisters++;
    if (driver.fail_unregister) return driver.fail_unregister;
    assert_ptr_equal(address, driver.registered);
    bool is_present;
    assert_true(page_is_mapped(address, &is_present)); /* pages go after their registration */
    driver.registered = NULL;
    return LOCHI_CUDA_SUCCESS;
}

static cu_result fake_alloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    driver.allocs++;
    if (driver.fail_alloc) return driver.fail_alloc;
    *address = driver.allocated = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return LOCHI_CUDA_SUCCESS;
}

static cu_result fake_free(void *address)
{
    driver.frees++;
    assert_ptr_equal(address, driver.allocated);
    free(address);
    return LOCHI_CUDA_SUCCESS;
}

static cu_result fake_name(cu_result error, const char **name)
{
    (void)error;
    *name = "CUDA_ERROR_OF_THE_TEST";
    return LOCHI_CUDA_SUCCESS;
}

static int put_driver(void **state)
{
    (void)state;
    driver = (fake){.registers = 0};
    lochi_cuda = (lochi_cuda_api){.version = 13000,
                                  .cuCtxGetCurrent = fake_get_current,
                                  .cuMemHostRegister_v2 = fake_register,
                                  .cuMemHostUnregister = fake_unregister,
                                  .cuMemHostAlloc = fake_alloc,
                                  .cuMemFreeHost = fake_free,
                                  .cuGetErrorName = fake_name,
                                  .cuGetErrorString = fake_name};
    lochi_cuda_is_forked = false;
    return 0;
}

static lochi_cuda_device card = {.context = CONTEXT, .numa_node = 0, .is_registering = true};

static void large_blocks_are_mapped_registered_and_undone(void **state)
{
    (void)state;
    static const size_t sizes[] = {MIB, MIB + 1, 2 * MIB, 70 * MIB + 8192};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *block;
        CHECK_OK(lochi_cuda_pinned_alloc(&card, sizes[i], 2 * MIB, &block));
        assert_int_equal((uintptr_t)block % (2 * MIB), 0);
        assert_ptr_equal(driver.registered, block);
        assert_int_equal(driver.registered_bytes, sizes[i]);
        memset(block, 0x5a, sizes[i]);
        CHECK_OK(lochi_cuda_pinned_free(&card, block, sizes[i]));
        assert_null(driver.registered);
        expect_gone(block);
    }
    assert_int_equal(driver.registers, driver.unregisters);
    assert_int_equal(driver.allocs, 0);
}

static void small_blocks_come_from_the_driver(void **state)
{
    (void)state;
    void *block;
    CHECK_OK(lochi_cuda_pinned_alloc(&card, MIB - 1, 4096, &block));
    CHECK_OK(lochi_cuda_pinned_free(&card, block, MIB - 1));
    CHECK_FAILS(lochi_cuda_pinned_alloc(&card, MIB - 1, 8192, &block), UNSUPPORTED);
    assert_int_equal(driver.allocs, 1);
    assert_int_equal(driver.frees, 1);
    assert_int_equal(driver.registers, 0);
}

static void cards_that_cannot_register_use_the_driver_alone(void **state)
{
    (void)state;
    lochi_cuda_device plain = card;
    void *block;
    plain.is_registering = false;
    CHECK_OK(lochi_cuda_pinned_alloc(&plain, 3 * MIB, 0, &block));
    CHECK_OK(lochi_cuda_pinned_free(&plain, block, 3 * MIB));
    assert_int_equal(driver.registers, 0);
    assert_int_equal(driver.frees, 1);
}

static void a_refused_registration_unmaps_and_says_why(void **state)
{
    (void)state;
    void *block = TEST_UNTOUCHED;
    driver.fail_register = LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    CHECK_FAILS(lochi_cuda_pinned_alloc(&card, 5 * MIB, 0, &block), HOST_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "5 MiB left that can be page-locked"));
    assert_ptr_equal(block, TEST_UNTOUCHED);
    driver.fail_register = LOCHI_CUDA_ERROR_NOT_PERMITTED;
    CHECK_FAILS(lochi_cuda_pinned_alloc(&card, 5 * MIB, 0, &block), UNSUPPORTED);
    assert_int_equal(driver.unregisters, 0);
}

/* The block stays as it is, so that the free can be tried again. */
static void a_refused_unregistration_keeps_the_pages(void **state)
{
    (void)state;
    char *block;
    CHECK_OK(lochi_cuda_pinned_alloc(&card, MIB, 0, (void **)&block));
    driver.fail_unregister = LOCHI_CUDA_ERROR_LAUNCH_FAILED;
    CHECK_FAILS(lochi_cuda_pinned_free(&card, block, MIB), DEVICE_LOST);
    block[MIB - 1] = 1;
    driver.fail_unregister = LOCHI_CUDA_SUCCESS;
    CHECK_OK(lochi_cuda_pinned_free(&card, block, MIB));
    expect_gone(block);
    /* At the end of the process the driver has let go of everything already. */
    CHECK_OK(lochi_cuda_pinned_alloc(&card, MIB, 0, (void **)&block));
    driver.fail_unregister = LOCHI_CUDA_ERROR_DEINITIALIZED;
    CHECK_OK(lochi_cuda_pinned_free(&card, block, MIB));
    expect_gone(block);
}

static void the_child_of_a_fork_unmaps_nothing(void **state)
{
    (void)state;
    char *block;
    CHECK_OK(lochi_cuda_pinned_alloc(&card, MIB, 0, (void **)&block));
    lochi_cuda_is_forked = true;
    CHECK_OK(lochi_cuda_pinned_free(&card, block, MIB));
    void *other = TEST_UNTOUCHED;
    CHECK_FAILS(lochi_cuda_pinned_alloc(&card, MIB, 0, &other), FORKED);
    lochi_cuda_is_forked = false;
    block[0] = 1;
    assert_int_equal(driver.unregisters, 0);
    CHECK_OK(lochi_cuda_pinned_free(&card, block, MIB));
}

static void a_probe_says_whether_pages_can_be_pinned(void **state)
{
    (void)state;
    assert_true(lochi_cuda_can_pin_pages(&card));
    assert_int_equal(driver.unregisters, 1);
    driver.fail_register = LOCHI_CUDA_ERROR_NOT_SUPPORTED;
    assert_false(lochi_cuda_can_pin_pages(&card));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_present_exact_and_aligned),
        cmocka_unit_test(several_threads_share_large_blocks_and_none_is_left),
        cmocka_unit_test(threads_that_cannot_be_started_cost_nothing_but_time),
        cmocka_unit_test(old_kernels_touch_the_pages),
        cmocka_unit_test(pages_that_cannot_be_had_leave_nothing),
        cmocka_unit_test(sizes_beyond_the_host_are_refused_before_the_first_fault),
        cmocka_unit_test(a_node_that_does_not_exist_is_no_failure),
        cmocka_unit_test(a_fork_does_not_copy_the_pages),
        cmocka_unit_test(a_cancelled_thread_ends_behind_the_call),
        cmocka_unit_test_setup(large_blocks_are_mapped_registered_and_undone, put_driver),
        cmocka_unit_test_setup(small_blocks_come_from_the_driver, put_driver),
        cmocka_unit_test_setup(cards_that_cannot_register_use_the_driver_alone, put_driver),
        cmocka_unit_test_setup(a_refused_registration_unmaps_and_says_why, put_driver),
        cmocka_unit_test_setup(a_refused_unregistration_keeps_the_pages, put_driver),
        cmocka_unit_test_setup(the_child_of_a_fork_unmaps_nothing, put_driver),
        cmocka_unit_test_setup(a_probe_says_whether_pages_can_be_pinned, put_driver),
    };
    return cmocka_run_group_tests_name("pinned memory of CUDA", tests, NULL, NULL);
}
