/* SPDX-License-Identifier: MIT */
/* Several processes on one GPU with one budget: minimum, borrowing, pressure, processes that are killed, and nothing
 * left on the device afterwards. The budget is most of the memory that is free on the device, so that a process is only
 * served if the others have really given their memory back.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("sim:16GiB" tries the program itself; each process has a device of its own then). */
#include "workers.h"

#define KILL_ROUNDS 10
#define KILL_WORKERS 2
#define LEFT_MAX (256 * TEST_MIB) /* contexts of other programs come and go */

static const char *device_name = "cuda:0";
static size_t total, device_free;

static size_t percent(size_t part)
{
    return total / 100 * part / (2 * TEST_MIB) * (2 * TEST_MIB);
}

static worker_start plain(const char *name, size_t minimum)
{
    worker_start start = {.total = total, .minimum = minimum, .wait_ns = 20000000000u};
    snprintf(start.device, sizeof start.device, "%s", device_name);
    snprintf(start.name, sizeof start.name, "%s", name);
    return start;
}

/* The memory that is free on the device now. This process has no context on it while it looks. */
static size_t look_at_device(void)
{
    loch_device *device;
    loch_memory_info memory = {.size = sizeof memory};
    CHECK_OK(loch_device_open(device_name, &device));
    CHECK_OK(loch_device_calculate_memory(device, &memory));
    loch_device_release(device);
    return memory.free_bytes;
}

static void expect_nothing_left(void)
{
    assert_false(budget_is_there());
    BUDGET_AWAIT(look_at_device() + LEFT_MAX >= device_free);
}

static void a_minimum_is_honoured_and_the_rest_is_lent(void **state)
{
    (void)state;
    worker_start guarded = plain("guarded", percent(40)), other = plain("other", 0);
    other.wait_ns = 500000000; /* one of its requests is refused */
    worker a = worker_begin(0, &guarded), b = worker_begin(1, &other);
    (void)worker_do(&b, WORKER_ALLOC, 0, percent(50)); /* borrowed */
    const worker_answer refused = worker_tell(&b, WORKER_ALLOC, 1, percent(20));
    assert_int_equal(refused.status, LOCH_E_LIMIT);
    if (!strstr(refused.sentence, "\"guarded\" (pid ")) fail_msg("%s", refused.sentence);
    (void)worker_do(&a, WORKER_ALLOC, 0, percent(38)); /* the minimum */
    (void)worker_do(&a, WORKER_FREE, 0, 0);
    (void)worker_do(&b, WORKER_FREE, 0, 0);
    (void)worker_do(&b, WORKER_TRIM, 0, 0);
    (void)worker_do(&a, WORKER_ALLOC, 0, percent(90)); /* alone it may have all of it */
    worker_end(&a);
    worker_end(&b);
    expect_nothing_left();
}

static void free_memory_of_one_process_serves_another(void **state)
{
    (void)state;
    const worker_start one = plain("one", 0), two = plain("two", percent(60));
    worker a = worker_begin(0, &one);
    for (size_t i = 0; i < 3; i++)
        (void)worker_do(&a, WORKER_ALLOC, i, percent(30));
    for (size_t i = 1; i < 3; i++)
        (void)worker_do(&a, WORKER_FREE, i, 0);
    assert_true(worker_do(&a, WORKER_LOOK, 0, 0).held >= percent(85)); /* its pool keeps it */
    worker b = worker_begin(1, &two);
    const uint64_t start = loch_host_now_ns();
    (void)worker_do(&b, WORKER_ALLOC, 0, percent(58));
    print_message("%.1f GiB crossed to another process in %.1f ms\n", (double)percent(58) / (double)TEST_GIB,
                  (double)(loch_host_now_ns() - start) / 1e6);
    assert_true(worker_do(&a, WORKER_LOOK, 0, 0).held <= percent(42));
    worker_end(&b);
    worker_end(&a);
    expect_nothing_left();
}

static void memory_of_a_killed_process_serves_others(void **state)
{
    (void)state;
    const worker_start one = plain("one", 0), two = plain("two", 0);
    for (size_t round = 0; round < 3; round++) {
        worker a = worker_begin(0, &one), b = worker_begin(1, &two);
        (void)worker_do(&a, WORKER_ALLOC, 0, percent(80));
        const uint64_t start = loch_host_now_ns();
        assert_int_equal(kill(a.pid, SIGKILL), 0); /* not waited for: it is a zombie in the end */
        (void)worker_do(&b, WORKER_ALLOC, 0, percent(80));
        print_message("%.1f GiB of a killed process served another one after %.1f ms\n",
                      (double)percent(80) / (double)TEST_GIB, (double)(loch_host_now_ns() - start) / 1e6);
        assert_int_equal(waitpid(a.pid, NULL, 0), a.pid);
        close(a.socket);
        worker_end(&b);
    }
    expect_nothing_left();
}

static worker storm_begin(size_t number, uint64_t seed)
{
    worker_start start = plain("storm", 0);
    start.wait_ns = 5000000;
    start.storm_seed = seed;
    start.storm_bytes = percent(20);
    return worker_spawn(number, &start);
}

static void processes_are_killed_at_random_moments(void **state)
{
    (void)state;
    test_random random = {test_seed(43)};
    const worker_start checks = plain("checker", percent(20));
    worker checker = worker_begin(8, &checks), storms[KILL_WORKERS];
    uint64_t slowest = 0;
    for (size_t i = 0; i < KILL_WORKERS; i++)
        storms[i] = storm_begin(i, i + 1);
    for (size_t round = 0; round < KILL_ROUNDS; round++) {
        const size_t victim = test_random_below(&random, KILL_WORKERS);
        (void)worker_hear(&storms[victim]); /* it has joined */
        const struct timespec moment = {.tv_nsec = (long)test_random_below(&random, 400000000)};
        nanosleep(&moment, NULL);
        worker_kill(&storms[victim]);
        const uint64_t killed = loch_host_now_ns();
        (void)worker_do(&checker, WORKER_ALLOC, 0, percent(18));
        if (loch_host_now_ns() - killed > slowest) slowest = loch_host_now_ns() - killed;
        (void)worker_do(&checker, WORKER_FREE, 0, 0);
        (void)worker_do(&checker, WORKER_TRIM, 0, 0);
        assert_int_equal(atomic_load(&worker_board_mine->wrong), 0);
        storms[victim] = storm_begin(victim, round + 100);
    }
    print_message("%d kills; a minimum of %.1f GiB was served after %.1f ms at most\n", KILL_ROUNDS,
                  (double)percent(18) / (double)TEST_GIB, (double)slowest / 1e6);
    for (size_t i = 0; i < KILL_WORKERS; i++)
        worker_kill(&storms[i]);
    (void)worker_do(&checker, WORKER_ALLOC, 0, percent(90)); /* all of it is there again */
    worker_end(&checker);
    expect_nothing_left();
}

int main(int count, char **arguments)
{
    worker_main(count, arguments);
    loch_device *device;
    if (count > 1) device_name = arguments[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    loch_device_release(device);
    device_free = look_at_device();
    total = device_free / 100 * 80; /* contexts of several processes need memory beside it */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minimum_is_honoured_and_the_rest_is_lent),
        cmocka_unit_test(free_memory_of_one_process_serves_another),
        cmocka_unit_test(memory_of_a_killed_process_serves_others),
        cmocka_unit_test(processes_are_killed_at_random_moments),
    };
    return cmocka_run_group_tests(tests, budget_folder_begin, budget_folder_end);
}
