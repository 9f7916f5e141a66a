/* SPDX-License-Identifier: MIT */
/* What the functions for kernels refuse without a GPU: wrong arguments, devices that are not CUDA's, driver libraries
 * that are none. Launches themselves are in tests/gpu/test_kernel_door.c. */
#include "cuda.h"
#include "test.h"
#include <loch/kernel.h>
#include <loch/sim.h>

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n";

static void other_devices_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "sim:64MiB"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        loch_device *device;
        loch_module *module = TEST_UNTOUCHED;
        CHECK_OK(loch_device_open(names[i], &device));
        CHECK_FAILS(loch_module_create(device, ptx, sizeof ptx, NULL, &module), UNSUPPORTED);
        assert_null(module);
        assert_non_null(strstr(loch_error_get()->sentence, "is not a CUDA device"));
        loch_device_release(device);
    }
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    loch_device *device;
    loch_module *module = TEST_UNTOUCHED;
    loch_kernel *kernel = TEST_UNTOUCHED;
    char log[8] = "before";
    loch_module_options options = {.log = log, .log_bytes = sizeof log};
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_FAILS(loch_module_create(device, ptx, sizeof ptx, NULL, NULL), INVALID);
    CHECK_FAILS(loch_module_create(NULL, ptx, sizeof ptx, NULL, &module), INVALID);
    assert_null(module);
    CHECK_FAILS(loch_module_create(device, NULL, 10, NULL, &module), INVALID);
    CHECK_FAILS(loch_module_create(device, ptx, 0, NULL, &module), INVALID);
    CHECK_FAILS(loch_module_create(device, "nonsense", 8, NULL, &module), INVALID);
    CHECK_FAILS(loch_module_create(device, ptx, sizeof ptx, &options, &module), INVALID); /* no size */
    assert_string_equal(log, "before");
    options.size = sizeof options;
    CHECK_FAILS(loch_module_create(device, ptx, sizeof ptx, &options, &module), UNSUPPORTED);
    assert_string_equal(log, ""); /* the compiler was not asked */
    CHECK_FAILS(loch_module_find(NULL, "f", &kernel), INVALID);
    assert_null(kernel);
    CHECK_FAILS(loch_module_find(NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_kernel_launch(NULL, NULL, 0, NULL, NULL), INVALID);
    loch_kernel_info info = {.size = sizeof info};
    CHECK_FAILS(loch_kernel_get_info(NULL, &info), INVALID);
    loch_module_destroy(NULL);
    loch_device_release(device);
}

static void arguments_hold_what_they_are_made_from(void **state)
{
    (void)state;
    loch_tensor *tensor = TEST_UNTOUCHED;
    assert_int_equal(loch_argument_read(tensor).kind, LOCH_ARGUMENT_READ);
    assert_ptr_equal(loch_argument_read(tensor).value.tensor, tensor);
    assert_int_equal(loch_argument_write(tensor).kind, LOCH_ARGUMENT_WRITE);
    const loch_argument scalar = loch_argument_scalar(LOCH_BF16, loch_scalar_of(-3));
    assert_int_equal(scalar.kind, LOCH_ARGUMENT_SCALAR);
    assert_int_equal(scalar.dtype, LOCH_BF16);
    assert_int_equal(scalar.value.scalar.value.i, -3);
    assert_ptr_equal(loch_argument_address(ptx).value.address, ptx);
    const loch_argument bytes = loch_argument_bytes(ptx, sizeof ptx);
    assert_int_equal(bytes.kind, LOCH_ARGUMENT_BYTES);
    assert_int_equal(bytes.bytes, sizeof ptx);
    assert_ptr_equal(bytes.value.bytes, ptx);
}

static void a_library_that_is_no_driver_is_refused(void **state)
{
    (void)state;
    lochi_kernel_api api = {0};
    CHECK_FAILS(lochi_kernel_load_from("libloch-no-such-driver.so", &api), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "libloch-no-such-driver.so"));
    CHECK_FAILS(lochi_kernel_load_from("libc.so.6", &api), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "has no cu"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_devices_are_refused),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(arguments_hold_what_they_are_made_from),
        cmocka_unit_test(a_library_that_is_no_driver_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
