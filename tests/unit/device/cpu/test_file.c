/* SPDX-License-Identifier: MIT */
/* Shareable handles of the CPU: which descriptors can be imported, and what a process without descriptors gets. */
#include "test.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const loch_handle_options shareable = {.size = sizeof shareable, .share = LOCH_SHARE_FD};

static void only_sealed_files_of_the_right_size_are_imported(void **state)
{
    (void)state;
    loch_device *cpu;
    loch_handle *handle, *imported = TEST_UNTOUCHED;
    int descriptor;
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_OK(loch_handle_create(cpu, 2 * TEST_MIB, &shareable, &handle));
    CHECK_OK(loch_handle_export(handle, LOCH_SHARE_FD, sizeof descriptor, &descriptor));
    assert_true(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    assert_int_not_equal(ftruncate(descriptor, 4096), 0); /* sealed: importers keep their pages */
    CHECK_FAILS(loch_handle_import(cpu, LOCH_SHARE_FD, &descriptor, 4 * TEST_MIB, &imported), INVALID);
    assert_null(imported);
    assert_int_equal(close(descriptor), 0);

    const int plain = memfd_create("plain", MFD_CLOEXEC);
    assert_int_equal(ftruncate(plain, 2 * TEST_MIB), 0);
    CHECK_FAILS(loch_handle_import(cpu, LOCH_SHARE_FD, &plain, 2 * TEST_MIB, &imported), INVALID);
    assert_int_equal(close(plain), 0);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    CHECK_FAILS(loch_handle_import(cpu, LOCH_SHARE_FD, &ends[0], 2 * TEST_MIB, &imported), INVALID);
    close(ends[0]), close(ends[1]);
    CHECK_FAILS(loch_handle_import(cpu, LOCH_SHARE_FD, &ends[0], 2 * TEST_MIB, &imported), INVALID);
    CHECK_FAILS(loch_handle_import(cpu, LOCH_SHARE_FABRIC, &ends, 2 * TEST_MIB, &imported), UNSUPPORTED);
    loch_handle_destroy(handle);
    loch_device_release(cpu);
}

static void without_descriptors_nothing_is_created_and_nothing_lost(void **state)
{
    (void)state;
    loch_device *cpu;
    loch_handle *handle = TEST_UNTOUCHED;
    CHECK_OK(loch_device_open("cpu", &cpu));
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const loch_status status = loch_handle_create(cpu, 2 * TEST_MIB, &shareable, &handle);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, LOCH_E_DEVICE_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "file descriptor"));
    assert_null(handle);
    CHECK_OK(loch_handle_create(cpu, 2 * TEST_MIB, &shareable, &handle));
    loch_handle_destroy(handle);
    loch_device_release(cpu);
}

/* A pool of shareable memory does what any pool does: grows, remaps free memory, trims. */
static void a_shareable_pool_keeps_its_contents(void **state)
{
    (void)state;
    loch_device *cpu;
    loch_allocator *pool;
    const loch_pool_options options = {.size = sizeof options, .handle = shareable, .handle_bytes = 2 * TEST_MIB};
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_OK(loch_pool_create(cpu, "shareable", &options, &pool));
    void *blocks[24];
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 24; i++) {
            CHECK_OK(loch_alloc(pool, (i + 1) * 200000, &blocks[i]));
            test_pattern_write(blocks[i], (i + 1) * 200000, i + round);
        }
        for (size_t i = 0; i < 24; i += 2)
            CHECK_OK(loch_free(pool, blocks[i]));
        void *large;
        CHECK_OK(loch_alloc(pool, 20 * TEST_MIB, &large)); /* out of pieces that lie elsewhere */
        test_pattern_write(large, 20 * TEST_MIB, 99);
        for (size_t i = 1; i < 24; i += 2) {
            assert_int_equal(test_pattern_differs(blocks[i], (i + 1) * 200000, i + round), (i + 1) * 200000);
            CHECK_OK(loch_free(pool, blocks[i]));
        }
        assert_int_equal(test_pattern_differs(large, 20 * TEST_MIB, 99), 20 * TEST_MIB);
        CHECK_OK(loch_free(pool, large));
        CHECK_OK(loch_allocator_trim(pool, round * TEST_MIB, NULL));
    }
    loch_allocator_release(pool);
    loch_device_release(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_sealed_files_of_the_right_size_are_imported),
        cmocka_unit_test(without_descriptors_nothing_is_created_and_nothing_lost),
        cmocka_unit_test(a_shareable_pool_keeps_its_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
