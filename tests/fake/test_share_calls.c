/* SPDX-License-Identifier: MIT */
/* Every call of a CUDA driver fails in turn, once and for good, while events are shared between processes over the
 * driver for tests: a refusal, nothing left in the driver, and the next run is served. Another process owns the event
 * that this one opens. */
#include "cuda.h"
#include "faults.h"
#include <sys/wait.h>
#include <unistd.h>

/* The process that owns an event. It is forked before this process starts the driver. */
static struct {
    pid_t pid;
    int until; /* it ends when this descriptor is closed */
    uint8_t event[SHARE_EVENT_BYTES];
} owner;

/* Records an event, passes its name on, and lives until `until` ends. */
static void owner_run(int to, int until)
{
    uint8_t event[SHARE_EVENT_BYTES];
    loch_device *device;
    char end;
    if (loch_device_open("cuda:0", &device) != LOCH_OK) _exit(1);
    share_cuda_event *made = lochi_share_cuda_record(device, NULL);
    if (!made) _exit(1);
    lochi_share_cuda_get_handle(made, event);
    if (write(to, event, sizeof event) != (ssize_t)sizeof event) _exit(1);
    (void)!read(until, &end, 1);
    lochi_share_cuda_destroy(made);
    loch_device_release(device);
    _exit(0);
}

static int owner_start(void **state)
{
    int from[2], until[2];
    if (pipe(from) != 0 || pipe(until) != 0) return 1;
    owner.pid = fork();
    if (owner.pid == 0) {
        close(until[1]);
        owner_run(from[1], until[0]);
    }
    close(from[1]);
    close(until[0]);
    owner.until = until[1];
    const bool is_there = owner.pid > 0 && read(from[0], owner.event, sizeof owner.event) == sizeof owner.event;
    close(from[0]);
    return is_there ? control_open(state) : 1;
}

static int owner_end(void **state)
{
    int status;
    (void)state;
    close(owner.until);
    return waitpid(owner.pid, &status, 0) == owner.pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Records an event, waits for it and for the other process's, and gives everything back. Returns whether the driver
 * served all of it. */
static bool share_run(void)
{
    loch_device *device = NULL;
    loch_stream *stream = NULL;
    share_cuda_event *event = NULL;
    bool is_served =
        loch_device_open("cuda:0", &device) == LOCH_OK && loch_stream_create(device, NULL, &stream) == LOCH_OK;
    if (is_served) event = lochi_share_cuda_record(device, stream);
    is_served = event && lochi_share_cuda_wait(event, NULL);
    if (event) {
        is_served &= lochi_share_cuda_wait_shared(device, owner.event, stream);
        is_served &= loch_device_sync(device) == LOCH_OK;
    }
    if (is_served) assert_true(lochi_share_cuda_has_passed(event));
    lochi_share_cuda_destroy(event);
    loch_stream_close(stream);
    test_end_defaults();
    loch_device_release(device);
    return is_served;
}

static void share_round(test_round *round, const void *user)
{
    (void)user;
    test_round_begin(round, NULL);
    const bool is_served = share_run();
    test_round_end(round);
    round->is_felt = !is_served;
    assert_true(share_run());
}

static void every_call_under_shared_events_fails(void **state)
{
    (void)state;
    const test_rounds rounds = test_rounds_run(&driver_faults, "shared events", share_round, NULL);
    assert_true(rounds.places > 20 && rounds.felt > 10);
}

/* Entering a device fails: nothing is shared, and nothing is waited for. */
static void calls_without_a_context_refuse(void **state)
{
    static const char *const calls[] = {"cuDeviceGet",   "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
                                        "cuEventCreate", "cuIpcGetEventHandle",      "cuIpcOpenEventHandle"};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        loch_device *device;
        CHECK_OK(loch_device_open("cuda:0", &device));
        const fake_cuda_fault fault = {.call = calls[i], .is_forever = true, .code = 999};
        control.set_fault(&fault);
        share_cuda_event *event = lochi_share_cuda_record(device, NULL);
        const bool is_waited_for = lochi_share_cuda_wait_shared(device, owner.event, NULL);
        const uint64_t met = control.calls();
        control.set_fault(NULL);
        if (!met || (event && is_waited_for)) fail_msg("%s failed, and nobody noticed", calls[i]);
        lochi_share_cuda_destroy(event);
        CHECK_OK(loch_device_sync(device));
        loch_device_release(device);
        control_expect_empty(calls[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_under_shared_events_fails),
        cmocka_unit_test(calls_without_a_context_refuse),
    };
    return cmocka_run_group_tests_name("calls of a driver fail under shared events", tests, owner_start, owner_end);
}
