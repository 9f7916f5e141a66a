/* SPDX-License-Identifier: MIT */
/* Forks of a process that shares: the child has nothing of its parent's, and shares on its own. */
#include "storm.h"

/* The child has nothing of its parent's, and shares on its own. */
static int child_of_an_owner(const offers *o, const loch_buffer *imported)
{
    loch_buffer *buffer, *again;
    loch_parcel *parcel;
    size_t bytes;
    if (partner_count_files() > 40) return 1;
    if (loch_parcel_send(o->parcels[0], 0) != LOCH_E_FORKED) return 2;
    for (size_t i = 0; i < STORM_TOKENS; i++)
        loch_parcel_destroy(o->parcels[i]);
    loch_buffer_release((loch_buffer *)(uintptr_t)imported);
    loch_allocator *pool = partner_pool(cpu, 0);
    if (loch_buffer_create(pool, 1000, NULL, &buffer) != LOCH_OK) return 3;
    if (loch_parcel_create(buffer, NULL, &parcel) != LOCH_OK) return 4;
    const void *token = loch_parcel_get_token(parcel, &bytes);
    if (loch_parcel_import(cpu, token, bytes, NULL, &again) != LOCH_OK || again != buffer) return 5;
    loch_buffer_release(again);
    const storm_token *old = &o->tokens[1]; /* the parent is another process now: its pool is not this one's */
    if (loch_parcel_import(cpu, old->token, old->bytes, NULL, &again) != LOCH_OK) return 6;
    if (test_pattern_differs(loch_buffer_get_address(again), STORM_BYTES, 1) != STORM_BYTES) return 7;
    loch_buffer_release(again);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    loch_allocator_release(pool);
    return 0;
}

static void a_child_of_a_fork_shares_on_its_own(void **state)
{
    (void)state;
    offers o;
    offers_make(&o);
    partner p = partner_start("cpu");
    loch_buffer *imported;
    partner_do_it(&p, PARTNER_OFFER, 0, 2000);
    CHECK_OK(loch_parcel_receive(cpu, p.parcels, NULL, &imported));
    for (int i = 0; i < 10; i++) {
        int commands, status;
        const pid_t storm = storm_start("storm", 2, 0, &commands); /* the thread is busy while the process forks */
        assert_int_equal(write(commands, o.tokens, sizeof o.tokens), sizeof o.tokens);
        char begun;
        assert_int_equal(read(commands, &begun, 1), 1);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) _exit(child_of_an_owner(&o, imported));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_int_equal(kill(storm, SIGKILL), 0);
        assert_int_equal(waitpid(storm, &status, 0), storm);
        close(commands);
        assert_int_equal(partner_do_it(&p, PARTNER_COUNT, 0, 0), 1); /* the child released nothing of its parent's */
    }
    offers_await_none(&o);
    loch_buffer_release(imported);
    partner_stop(&p);
    offers_end(&o);
}

int main(int count, char **arguments)
{
    partner_main(count, arguments);
    storm_main(count, arguments);
    CHECK_OK(loch_device_open("cpu", &cpu));
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_of_a_fork_shares_on_its_own)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(cpu);
    return failed;
}
