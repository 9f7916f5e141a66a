/* SPDX-License-Identifier: MIT */
/* Loading of CUDA drivers that cannot be used, are old, or have ended, with drivers for tests. Loading succeeds once in
 * a process, so each case is a process of its own. */
#include "device/cuda/api.h"
#include "support/test.h"
#include <sys/wait.h>
#include <unistd.h>

static char library[LOCH_OPTION_VALUE_MAX]; /* of the newest driver */

/* Runs a check in a child with other switches and perhaps another library beside the newest. */
static void in_child(int (*check)(void), const char *switches, const char *name)
{
    char path[LOCH_OPTION_VALUE_MAX + 32];
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(library, '/') - library), library, name);
        setenv("LOCH_TEST_FAKE_CUDA", switches, 1);
        if (loch_option_set("cuda_library", path) != LOCH_OK) _exit(99);
        const int answer = check();
        if (answer) fprintf(stderr, "check %d: %s\n", answer, loch_error_get()->sentence);
        exit(answer); /* with the handlers of the end */
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static loch_device *device;

static bool fails_with(loch_status status, const char *text)
{
    return loch_device_open("cuda:0", &device) == status && loch_error_get()->status == status &&
           strstr(loch_error_get()->sentence, text);
}

static int check_old_version(void)
{
    return fails_with(LOCH_E_UNSUPPORTED, "11.1") && fails_with(LOCH_E_UNSUPPORTED, "11.1") ? 0 : 1; /* remembered */
}

static int check_no_device(void)
{
    return fails_with(LOCH_E_NOT_FOUND, "finds no GPU") ? 0 : 1;
}

static int check_stub(void)
{
    return fails_with(LOCH_E_NOT_FOUND, "stub") ? 0 : 1;
}

static int check_failing_start(void)
{
    return fails_with(LOCH_E_DRIVER, "failed to start: CUDA_ERROR_UNKNOWN") ? 0 : 1;
}

static int check_failing_version(void)
{
    return fails_with(LOCH_E_DRIVER, "an unknown code") ? 0 : 1;
}

static int check_no_library(void)
{
    return fails_with(LOCH_E_NOT_FOUND, "no CUDA") ? 0 : 1;
}

/* The C library is a library, and no driver. */
static int check_other_library(void)
{
    if (loch_option_set("cuda_library", "libc.so.6") != LOCH_OK) return 1;
    return fails_with(LOCH_E_UNSUPPORTED, "has no cuInit") ? 0 : 2;
}

static int check_failing_open(void)
{
    static const char *const calls[] = {"cuDeviceGet", "cuDeviceTotalMem", "cuDevicePrimaryCtxRetain",
                                        "cuMemGetAllocationGranularity", "cuDeviceGetPCIBusId"};
    const char *wanted = getenv("LOCH_TEST_FAKE_CUDA");
    if (!wanted) return 3;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strstr(wanted, calls[i]) && (strstr(wanted, calls[i])[strlen(calls[i])] == ':' || strstr(wanted, "_v2")))
            return fails_with(LOCH_E_DRIVER, calls[i]) ? 0 : 1;
    return 2;
}

static void drivers_that_cannot_be_used_are_refused(void **state)
{
    (void)state;
    in_child(check_old_version, "quiet,version=11010", "libcuda.so.1");
    in_child(check_no_device, "quiet,devices=0", "libcuda.so.1");
    in_child(check_failing_start, "quiet,fail=cuInit:1:once", "libcuda.so.1");
    in_child(check_stub, "quiet,fail=cuInit:1:once:34", "libcuda.so.1");
    in_child(check_failing_version, "quiet,fail=cuInit:1:once:4711", "libcuda.so.1");
    in_child(check_no_library, "quiet", "nothing.so");
    in_child(check_other_library, "quiet", "libcuda.so.1");
    in_child(check_failing_open, "quiet,fail=cuDeviceGet:1:once", "libcuda.so.1");
    in_child(check_failing_open, "quiet,fail=cuDeviceTotalMem_v2:1:once", "libcuda.so.1");
    in_child(check_failing_open, "quiet,fail=cuDevicePrimaryCtxRetain:1:once", "libcuda.so.1");
    in_child(check_failing_open, "quiet,fail=cuMemGetAllocationGranularity:1:once", "libcuda.so.1");
    in_child(check_failing_open, "quiet,fail=cuDeviceGetPCIBusId:1:once", "libcuda.so.1");
}

/* --- old drivers --- */

/* Uses what every driver has. Returns 0 if it works. */
static int use_basics(void)
{
    void *block = NULL, *self, *before;
    char here[100] = "x", back[100] = "";
    loch_stream *stream = NULL;
    loch_event *first = NULL, *second = NULL;
    loch_capture_info capture = {.size = sizeof capture, .active = 7};
    uint64_t ns = 0;
    if (loch_device_open("cuda:0", &device) != LOCH_OK) return 10;
    if (loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof here, 0, &block) != LOCH_OK) return 11;
    if (loch_copy(block, here, sizeof here) != LOCH_OK || loch_copy(back, block, sizeof here) != LOCH_OK) return 12;
    if (memcmp(here, back, sizeof here) != 0) return 13;
    if (loch_stream_create(device, NULL, &stream) != LOCH_OK) return 14;
    if (loch_event_create(device, LOCH_EVENT_TIMED, &first) != LOCH_OK) return 15;
    if (loch_event_create(device, LOCH_EVENT_TIMED, &second) != LOCH_OK) return 16;
    if (loch_event_record(first, stream) != LOCH_OK || loch_event_record(second, stream) != LOCH_OK) return 17;
    if (loch_event_sync(second) != LOCH_OK || loch_event_elapsed(first, second, &ns) != LOCH_OK) return 18;
    if (loch_device_can(device, LOCH_CAN_ORDERED | LOCH_CAN_SHARE_FD)) return 19;
    if (loch_device_can(device, LOCH_CAN_ORDERED) || loch_device_can(device, LOCH_CAN_SHARE_FD)) return 20;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    if (driver->ordered_alloc(self, 100, NULL, &before) != LOCH_E_UNSUPPORTED) return 21;
    if (driver->ordered_free(self, block, 100, NULL) != LOCH_E_UNSUPPORTED) return 22;
    if (driver->stream_call(self, NULL, NULL, NULL) != LOCH_E_UNSUPPORTED) return 23;
    if (driver->stream_capture(self, loch_stream_get_native(stream), &capture) != LOCH_OK || capture.active) return 24;
    loch_event_destroy(first);
    loch_event_destroy(second);
    loch_stream_close(stream);
    if (loch_raw_free(block) != LOCH_OK) return 25;
    return 0;
}

static int check_old(void)
{
    const int answer = use_basics();
    if (answer || !loch_device_can(device, LOCH_CAN_CAPTURE)) return answer ? answer : 30;
    loch_device_release(device);
    return 0;
}

/* Without a question for captures. */
static int check_oldest(void)
{
    const int answer = use_basics();
    if (answer || loch_device_can(device, LOCH_CAN_CAPTURE)) return answer ? answer : 31;
    loch_device_release(device);
    return 0;
}

static void old_drivers_are_used_without_what_they_lack(void **state)
{
    (void)state;
    in_child(check_old, "quiet,version=11020", "libcuda_old.so.1");
    in_child(check_oldest, "quiet,version=11020", "libcuda_oldest.so.1");
}

/* --- the end --- */

static void *late_block;

/* Runs when the driver has ended: it began earlier than the driver's own handler. */
static void give_back_late(void)
{
    if (loch_raw_free(late_block) != LOCH_OK || lochi_cuda_late_calls() == 0) _exit(40);
    loch_device_release(device);
}

static int check_end(void)
{
    atexit(give_back_late);
    if (loch_device_open("cuda:0", &device) != LOCH_OK) return 1;
    return loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &late_block) == LOCH_OK ? 0 : 2;
}

static void memory_is_given_back_after_the_end_of_the_driver(void **state)
{
    (void)state;
    in_child(check_end, "quiet", "libcuda.so.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drivers_that_cannot_be_used_are_refused),
        cmocka_unit_test(old_drivers_are_used_without_what_they_lack),
        cmocka_unit_test(memory_is_given_back_after_the_end_of_the_driver),
    };
    if (loch_option_get("cuda_library", library) != LOCH_OK || !strchr(library, '/')) return TEST_SKIPPED;
    return cmocka_run_group_tests_name("drivers are loaded", tests, NULL, NULL);
}
