/* SPDX-License-Identifier: MIT */
/* Every call of a CUDA driver fails in turn, once and for good, over the driver for tests: nothing is left in the
 * driver, nothing in Loch's bookkeeping, and the next run succeeds.
 *
 * Faults meet all entry points but those that give something back, and those that make a context current: when such a
 * call fails, what it was to give back stays. Those are tried by name, with fewer promises: a call that fails has a
 * sentence, memory holds what was copied, and the next run succeeds. */
#include "device/cuda/api.h"
#include "faults.h"
#include <sys/wait.h>
#include <unistd.h>

static void every_call_of_the_scenario_fails(void **state)
{
    (void)state;
    static const char *const switches[] = {"virtual=on,register=on,fabric=on", "virtual=off,register=off,fabric=off"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(control.set(switches[i]), 0);
        const test_sweep sweep = {.device = "cuda:0", .other = "cuda:1", .from = &driver_faults};
        test_scenario_sweep(&sweep);
    }
    assert_int_equal(control.set("virtual=on,register=on"), 0);
}

/* --- pools --- */

enum { BLOCKS = 8 };

/* A program in small over pools: two streams, memory of the device and pinned, growth, a capture, a trim. */
static loch_status pool_blocks(loch_allocator *pool, loch_stream *const streams[2])
{
    void *blocks[BLOCKS] = {NULL};
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < BLOCKS && status == LOCH_OK; i++) {
        const loch_request request = {
            .size = sizeof request, .bytes = (i + 1) * (i + 1) * 1500, .stream = streams[i % 2]};
        status = loch_allocator_alloc(pool, &request, &blocks[i]);
        if (status == LOCH_OK) status = loch_fill_on(blocks[i], request.bytes, "a", 1, streams[i % 2]);
        if (status == LOCH_OK && i % 3 == 2) {
            status = loch_free(pool, blocks[i - 1]);
            if (status == LOCH_OK) blocks[i - 1] = NULL;
        }
    }
    const loch_error error = *loch_error_get();
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i]) TEST_BACK(loch_free(pool, blocks[i]));
    if (status != LOCH_OK) loch_error_set(status, error.driver, error.driver_code, "%s", error.sentence);
    return status;
}

/* Calls that neither the scenario nor pools make: a peer, planes, a pattern of two bytes, the caller's context. */
static loch_status rare_calls(loch_device *device)
{
    loch_device *other = NULL;
    void *block = NULL, *self, *before;
    static const loch_pitched planes = {.row_bytes = 10,
                                        .rows = 3,
                                        .planes = 2,
                                        .to_row_pitch = 16,
                                        .to_plane_pitch = 64,
                                        .from_row_pitch = 16,
                                        .from_plane_pitch = 64};
    loch_status status = loch_device_open("cuda:1", &other);
    if (status == LOCH_OK) status = loch_device_enable_peer(device, other);
    if (status == LOCH_OK) status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 256, 0, &block);
    if (status == LOCH_OK) status = loch_fill(block, 256, "ab", 2);
    if (status == LOCH_OK) status = loch_copy_pitched((char *)block + 128, block, &planes, NULL);
    const loch_driver *driver = loch_device_get_driver(device, &self);
    if (status == LOCH_OK) status = driver->enter(self, &before);
    if (status == LOCH_OK) status = driver->leave(self, before);
    const loch_error error = *loch_error_get();
    if (block) TEST_BACK(loch_device_sync(device));
    if (block) TEST_BACK(loch_raw_free(block));
    loch_device_release(other);
    if (status != LOCH_OK) loch_error_set(status, error.driver, error.driver_code, "%s", error.sentence);
    return status;
}

static loch_status pool_run(void)
{
    loch_device *device = NULL;
    loch_stream *streams[2] = {NULL};
    loch_allocator *pool = NULL, *pinned = NULL, *shared = NULL;
    const loch_pool_options pinned_options = {.size = sizeof pinned_options, .kind = LOCH_MEMORY_PINNED};
    const loch_pool_options shared_options = {.size = sizeof shared_options, .captures = LOCH_POOL_CAPTURES_SHARED};
    loch_status status = loch_device_open("cuda:0", &device);
    for (size_t i = 0; i < 2 && status == LOCH_OK; i++)
        status = loch_stream_create(device, NULL, &streams[i]);
    if (status == LOCH_OK) status = loch_pool_create(device, "plain", NULL, &pool);
    if (status == LOCH_OK) status = loch_pool_create(device, "pinned", &pinned_options, &pinned);
    if (status == LOCH_OK) status = loch_pool_create(device, "shared", &shared_options, &shared);
    if (status == LOCH_OK) status = pool_blocks(pool, streams);
    if (status == LOCH_OK) status = pool_blocks(pinned, streams);
    if (status == LOCH_OK) status = pool_blocks(shared, streams);
    if (status == LOCH_OK) status = loch_allocator_trim(pool, 0, NULL);
    if (status == LOCH_OK) status = pool_blocks(pool, streams);
    if (status == LOCH_OK) status = rare_calls(device);
    const loch_error error = *loch_error_get();
    if (device) TEST_BACK(loch_device_sync(device)); /* work that was queued uses the memory */
    loch_allocator_release(shared);
    loch_allocator_release(pinned);
    loch_allocator_release(pool);
    for (size_t i = 0; i < 2; i++)
        loch_stream_close(streams[i]);
    loch_device_release(device);
    if (status != LOCH_OK) loch_error_set(status, error.driver, error.driver_code, "%s", error.sentence);
    return status;
}

static void pool_round(test_round *round, const void *user)
{
    (void)user;
    test_kept = NULL;
    test_round_begin(round, NULL);
    const loch_status status = pool_run();
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (test_kept) fail_msg("%s: %s failed, it gives something back", round->when, test_kept);
    if (status != LOCH_OK && !loch_error_get()->sentence[0]) fail_msg("%s: no sentence", round->when);
    CHECK_OK(pool_run());
}

static void every_call_under_pools_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(control.set(i ? "virtual=off" : "virtual=on"), 0);
        const test_rounds rounds = test_rounds_run(&driver_faults, "pools", pool_round, NULL);
        assert_true(rounds.places > 40 && rounds.felt > 10);
    }
    assert_int_equal(control.set("virtual=on"), 0);
}

/* --- calls that give back, by name --- */

/* Runs both programs once. Returns NULL, or what is wrong with the answers. E_EXISTS: a registration could not be
 * ended, and the scenario registers the same memory again. */
static const char *named_run(bool is_faulty)
{
    test_scenario run;
    test_scenario_run(&run, "cuda:0", "cuda:1");
    const bool may_fail = is_faulty || run.status == LOCH_E_EXISTS;
    if (run.status == LOCH_E_CORRUPT) return "memory does not hold what was copied";
    if (run.status != LOCH_OK && (!may_fail || !run.error.sentence[0])) return run.call;
    const loch_status status = pool_run();
    return status != LOCH_OK && (!is_faulty || !loch_error_get()->sentence[0]) ? "the pools" : NULL;
}

/* One entry point fails at each place, once and for good. What stays in the driver stays until the process ends.
 * Returns the exit code: 0, or 1 if a promise is broken. */
static int named_sweep(const char *call)
{
    if (control.set("total=8GiB") != 0 || named_run(false)) return 1;
    for (int is_forever = 0; is_forever < 2; is_forever++) {
        bool is_met = true;
        for (uint64_t after = 0; is_met; after += 1 + after / 8) { /* later places are much alike */
            const fake_cuda_fault fault = {.call = call, .after = after, .is_forever = is_forever, .code = 999};
            control.set_fault(&fault);
            const char *wrong = named_run(true);
            is_met = control.calls() > after;
            control.set_fault(NULL);
            cu_context *left; /* contexts that could not be popped */
            while (lochi_cuda.cuCtxPopCurrent_v2(&left) == LOCHI_CUDA_SUCCESS)
                continue;
            if (!wrong) wrong = named_run(false);
            if (!wrong && (is_met || after)) continue;
            fprintf(stderr, "%s fails %s behind %llu calls: %s: %s\n", call, is_forever ? "for good" : "once",
                    (unsigned long long)after, wrong ? wrong : "it is never called", loch_error_get()->sentence);
            return 1;
        }
    }
    return 0;
}

/* Each entry point has a process of its own, which starts the driver: this one must not have. */
static void calls_that_give_back_fail_by_name(void **state)
{
    (void)state;
    if (TEST_HAS_FEW_ADDRESSES) { /* what cannot be unmapped keeps its addresses for good */
        print_message("skipped: ThreadSanitizer leaves too few addresses\n");
        skip();
    }
    static const char *const calls[] = {"cuMemFree_v2",        "cuMemFreeHost",
                                        "cuMemHostUnregister", "cuMemFreeAsync",
                                        "cuMemAddressFree",    "cuMemRelease",
                                        "cuMemUnmap",          "cuStreamDestroy_v2",
                                        "cuEventDestroy_v2",   "cuDevicePrimaryCtxRelease_v2",
                                        "cuCtxGetCurrent",     "cuCtxSetCurrent",
                                        "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                                        "cuCtxSynchronize",    "cuThreadExchangeStreamCaptureMode"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(named_sweep(calls[i]));
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s: status %x", calls[i], (unsigned)status);
    }
}

/* --- what the sweeps reach --- */

static void every_entry_point_is_called(void **state)
{
    (void)state;
#define CALL_NAME(name, suffix, need, parameters) #name #suffix,
    static const char *const names[] = {LOCHI_CUDA_CALLS(CALL_NAME)};
#undef CALL_NAME
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!control.count(names[i])) fail_msg("%s: no sweep calls it", names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_give_back_fail_by_name), /* the first: it forks before the driver starts */
        cmocka_unit_test(every_call_of_the_scenario_fails),
        cmocka_unit_test(every_call_under_pools_fails),
        cmocka_unit_test(every_entry_point_is_called),
    };
    return cmocka_run_group_tests_name("calls of a driver fail", tests, control_open, NULL);
}
