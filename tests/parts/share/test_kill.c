/* SPDX-License-Identifier: MIT */
/* Processes that are killed at any moment, and many threads. Afterwards no block is held and no descriptor is
 * open that was not before. */
#include "storm.h"

#define KILL_ROUNDS 60

static void importers_are_killed_at_any_moment(void **state)
{
    (void)state;
    offers o;
    offers_make(&o);
    test_random random = {test_seed(23)};
    const size_t files = partner_count_files();
    for (size_t round = 0; round < KILL_ROUNDS; round++) {
        int commands, status;
        char begun;
        const pid_t pid = storm_start("storm", 3, 0, &commands);
        assert_int_equal(write(commands, o.tokens, sizeof o.tokens), sizeof o.tokens);
        if (round % 4) assert_int_equal(read(commands, &begun, 1), 1); /* else it may be killed before it began */
        sleep_up_to(&random, 3000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        close(commands);
        offers_await_none(&o);
    }
    await_files(files);
    offers_end(&o);
}

/* Receives what a process offers, until it was killed for long enough. Every parcel with an even number exists until
 * the kill, so it must arrive; one with an odd number may be destroyed before. Returns the number of buffers. */
static size_t receive_around_a_kill(pid_t pid, int commands, test_random *random, loch_buffer **buffers)
{
    size_t received = 0;
    const size_t before_kill = 1 + test_random_below(random, 40);
    for (size_t i = 0; i < STORM_OFFERS; i++) {
        if (i == before_kill) {
            sleep_up_to(random, 500);
            assert_int_equal(kill(pid, SIGKILL), 0);
        }
        const loch_status got = loch_parcel_receive(cpu, commands, NULL, &buffers[i]);
        const bool may_be_gone = i >= before_kill || i % 2;
        received += got == LOCH_OK;
        if (got == LOCH_E_IO && i >= before_kill) break; /* the socket is empty, and its other end is closed */
        if (got != LOCH_OK && !(got == LOCH_E_NOT_FOUND && may_be_gone))
            fail_msg("parcel %zu, kill before %zu: %s: %s", i, before_kill, loch_status_name(got),
                     loch_error_get()->sentence);
    }
    return received;
}

static void owners_are_killed_at_any_moment(void **state)
{
    (void)state;
    test_random random = {test_seed(29)};
    size_t received = 0;
    const size_t files = partner_count_files();
    for (size_t round = 0; round < KILL_ROUNDS; round++) {
        int commands, status;
        const pid_t pid = storm_start("offer", 0, 0, &commands);
        loch_buffer *buffers[STORM_OFFERS] = {NULL};
        received += receive_around_a_kill(pid, commands, &random, buffers);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status)); /* it did not end because a call had failed */
        for (size_t i = 0; i < STORM_OFFERS; i++) {
            if (buffers[i]) test_pattern_write(loch_buffer_get_address(buffers[i]), 5000, i); /* works without it */
            loch_buffer_release(buffers[i]);
        }
        close(commands);
    }
    print_message("%zu buffers received in %d rounds\n", received, KILL_ROUNDS);
    await_files(files + 4); /* a few connections stay open for the next import */
}

static void threads_import_and_release(void **state)
{
    (void)state;
    offers o;
    offers_make(&o);
    int commands[3], status;
    pid_t pids[3];
    for (size_t i = 0; i < 3; i++) {
        pids[i] = storm_start("storm", 4, 300, &commands[i]);
        assert_int_equal(write(commands[i], o.tokens, sizeof o.tokens), sizeof o.tokens);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        close(commands[i]);
    }
    offers_await_none(&o);
    offers_end(&o);
}

static int begin(void **state)
{
    (void)state;
    return loch_device_open("cpu", &cpu) == LOCH_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    loch_device_release(cpu);
    return 0;
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    storm_main(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(importers_are_killed_at_any_moment),
        cmocka_unit_test(owners_are_killed_at_any_moment),
        cmocka_unit_test(threads_import_and_release),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
