/* SPDX-License-Identifier: MIT */
/* Several real processes: minimum, borrowing and pressure across them, forks, races to make and to remove the file, and
 * processes that are killed at random moments while all allocate. */
#include "workers.h"

#define TOTAL (128 * TEST_MIB)

static worker_start plain(const char *name, size_t minimum)
{
    worker_start start = {.total = TOTAL, .minimum = minimum, .wait_ns = 30000000000u};
    snprintf(start.device, sizeof start.device, BUDGET_DEVICE);
    snprintf(start.name, sizeof start.name, "%s", name);
    return start;
}

static void pressure_crosses_processes(void **state)
{
    (void)state;
    worker_start one = plain("one", 0);
    const worker_start two = plain("two", 64 * TEST_MIB);
    one.wait_ns = 50000000;
    worker a = worker_begin(0, &one);
    for (size_t i = 0; i < 4; i++)
        (void)worker_do(&a, WORKER_ALLOC, i, 30 * TEST_MIB); /* no other process is there: all of it is lent */
    for (size_t i = 1; i < 4; i++)
        (void)worker_do(&a, WORKER_FREE, i, 0);
    assert_true(worker_do(&a, WORKER_LOOK, 0, 0).held >= 120 * TEST_MIB);
    worker b = worker_begin(1, &two);
    (void)worker_do(&b, WORKER_ALLOC, 0, 60 * TEST_MIB); /* its minimum: the other one gives free memory back */
    const worker_answer after = worker_do(&a, WORKER_LOOK, 0, 0);
    assert_true(after.held >= 30 * TEST_MIB && after.held <= 68 * TEST_MIB && after.granted <= 68 * TEST_MIB);
    const worker_answer refused = worker_tell(&a, WORKER_ALLOC, 1, 60 * TEST_MIB); /* after its short wait */
    assert_int_equal(refused.status, LOCH_E_LIMIT);
    char who[64];
    snprintf(who, sizeof who, "\"two\" (pid %ld) ", (long)b.pid);
    if (!strstr(refused.sentence, who)) fail_msg("%s is not in: %s", who, refused.sentence);
    (void)worker_do(&b, WORKER_FREE, 0, 0);
    worker_end(&b);
    (void)worker_do(&a, WORKER_ALLOC, 1, 60 * TEST_MIB); /* the minimum went with its member */
    worker_end(&a);
    assert_false(budget_is_there());
}

static void bytes_of_a_killed_process_serve_others(void **state)
{
    (void)state;
    const worker_start one = plain("one", 0), two = plain("two", 0);
    worker a = worker_begin(0, &one), b = worker_begin(1, &two);
    (void)worker_do(&a, WORKER_ALLOC, 0, 100 * TEST_MIB);
    worker_kill(&a);
    (void)worker_do(&b, WORKER_ALLOC, 0, 100 * TEST_MIB);
    worker_end(&b);
    assert_false(budget_is_there());
}

/* A process that is killed while others wait for it: they do not wait longer than for a living one. */
static void a_kill_ends_the_wait_of_others(void **state)
{
    (void)state;
    const worker_start one = plain("one", 0), two = plain("two", 0);
    worker a = worker_begin(0, &one), b = worker_begin(1, &two);
    (void)worker_do(&a, WORKER_ALLOC, 0, 100 * TEST_MIB);
    const worker_order order = {WORKER_ALLOC, 0, 100 * TEST_MIB};
    assert_int_equal(write(b.socket, &order, sizeof order), sizeof order);
    loch_budget *look = budget_open(0, 0);
    BUDGET_AWAIT(budget_info(look).waiting == 1);
    worker_kill(&a);
    const worker_answer answer = worker_hear(&b);
    if (answer.status != LOCH_OK) fail_msg("%s", answer.sentence);
    loch_budget_close(look);
    worker_end(&b);
    assert_false(budget_is_there());
}

/* A file whose processes were all killed is used again, with another total too, or removed by a process that looks. */
static void a_file_without_processes_is_as_good_as_none(void **state)
{
    (void)state;
    const worker_start one = plain("one", 32 * TEST_MIB);
    worker a = worker_begin(0, &one);
    worker_kill(&a);
    assert_true(budget_is_there());
    loch_budget *again = budget_open(64 * TEST_MIB, 0);
    assert_int_equal(budget_info(again).total_bytes, 64 * TEST_MIB);
    assert_int_equal(budget_info(again).members, 0);
    loch_budget_close(again);
    assert_false(budget_is_there());
}

static void children_do_not_keep_their_parents_alive(void **state)
{
    (void)state;
    for (int is_copy = 0; is_copy < 2; is_copy++) {
        const worker_start one = plain("parent", 96 * TEST_MIB), two = plain("two", 0);
        worker a = worker_begin(0, &one);
        const pid_t child = (pid_t)worker_do(&a, is_copy ? WORKER_COPY : WORKER_FORK, 0, 0).value;
        worker b = worker_begin(1, &two);
        worker_kill(&a); /* its child still sleeps */
        (void)worker_do(&b, WORKER_ALLOC, 0, 100 * TEST_MIB);
        worker_end(&b);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_false(budget_is_there());
    }
}

/* A process that runs another program has no memory any more, and the same pid. */
static void another_program_has_no_budget(void **state)
{
    (void)state;
    const worker_start one = plain("one", 96 * TEST_MIB), two = plain("two", 0);
    worker a = worker_begin(0, &one), b = worker_begin(1, &two);
    const worker_order order = {WORKER_EXEC, 0, 0};
    assert_int_equal(write(a.socket, &order, sizeof order), sizeof order);
    (void)worker_do(&b, WORKER_ALLOC, 0, 100 * TEST_MIB);
    assert_int_equal(kill(a.pid, 0), 0); /* it lives */
    worker_end(&b);
    worker_kill(&a);
    assert_false(budget_is_there());
}

/* What a child of a fork can do with objects of its parent: E_FORKED, and ending them. */
static int forked_calls(loch_budget *budget, party *p)
{
    loch_budget_info info = {.size = sizeof info};
    loch_budget_member_info member = {.size = sizeof member};
    loch_budget_member *none;
    void *block;
    if (loch_budget_get_info(budget, &info) != LOCH_E_FORKED) return 1;
    if (loch_budget_member_get_info(p->member, &member) != LOCH_E_FORKED) return 2;
    if (loch_budget_member_prepare(p->member, 1) != LOCH_E_FORKED) return 3;
    if (loch_budget_member_create(budget, p->pool, NULL, NULL, &none) != LOCH_E_FORKED) return 4;
    if (loch_alloc(p->pool, 100 * TEST_MIB, &block) == LOCH_OK) return 5; /* the limit stays */
    loch_budget_member_destroy(p->member);
    loch_budget_close(budget);
    loch_budget *own;
    if (loch_budget_open(budget_path, NULL, &own) != LOCH_OK) return 6;
    if (loch_budget_get_info(own, &info) != LOCH_OK || info.members != 1 || info.processes != 2) return 7;
    loch_budget_close(own);
    return 0;
}

static void a_child_of_a_fork_has_no_budget(void **state)
{
    (void)state;
    int status;
    loch_budget *budget = budget_open(TOTAL, 20);
    party p = party_begin(budget_device, budget, "parent", 0, 0);
    const pid_t child = fork();
    if (!child) _exit(forked_calls(budget, &p));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(budget_info(budget).members, 1);
    void *block;
    CHECK_OK(loch_alloc(p.pool, 100 * TEST_MIB, &block));
    CHECK_OK(loch_free(p.pool, block));
    party_end(&p);
    loch_budget_close(budget);
    assert_false(budget_is_there());
}

/* --- races for the file --- */

static int open_and_close(size_t times)
{
    const loch_budget_options options = {.size = sizeof options, .total_bytes = TOTAL};
    for (size_t i = 0; i < times; i++) {
        loch_budget *budget;
        loch_budget_info info = {.size = sizeof info};
        if (loch_budget_open(budget_path, &options, &budget) != LOCH_OK) return 1;
        if (loch_budget_get_info(budget, &info) != LOCH_OK || !info.processes) return 2;
        loch_budget_close(budget);
    }
    return 0;
}

static void processes_race_to_make_and_to_remove(void **state)
{
    (void)state;
    pid_t pids[4];
    for (size_t i = 0; i < 4; i++) {
        pids[i] = fork();
        if (!pids[i]) {
            const int code = open_and_close(400);
            if (code) fprintf(stderr, "%s\n", loch_error_get()->sentence);
            _exit(code);
        }
    }
    for (size_t i = 0; i < 4; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_false(budget_is_there());
}

/* --- kills at random moments --- */

#define KILL_WORKERS 3
#define KILL_ROUNDS 200

static loch_status check_member(const loch_budget_member_info *info, void *user)
{
    uint64_t *granted = user;
    *granted += info->granted_bytes;
    return kill((pid_t)info->pid, 0) == 0 ? LOCH_OK : LOCH_E_CORRUPT; /* it lives, or is not waited for yet */
}

static worker storm_begin(size_t number, uint64_t seed)
{
    worker_start start = plain("storm", number * 4 * TEST_MIB);
    start.wait_ns = 2000000;
    start.storm_seed = seed;
    start.storm_bytes = 20 * TEST_MIB;
    return worker_spawn(number, &start);
}

static void processes_are_killed_at_random_moments(void **state)
{
    (void)state;
    test_random random = {test_seed(41)};
    worker workers[KILL_WORKERS];
    uint64_t slowest = 0;
    loch_budget *budget = budget_open(TOTAL, 30000);
    party checker = party_begin(budget_device, budget, "checker", 24 * TEST_MIB, 0);
    for (size_t i = 0; i < KILL_WORKERS; i++)
        workers[i] = storm_begin(i, i + 1);
    for (size_t round = 0; round < KILL_ROUNDS; round++) {
        const size_t victim = test_random_below(&random, KILL_WORKERS);
        const struct timespec moment = {.tv_nsec = (long)test_random_below(&random, 12000000)};
        nanosleep(&moment, NULL);
        worker_kill(&workers[victim]);
        const uint64_t killed = loch_host_now_ns();
        uint64_t granted = 0, before[KILL_WORKERS];
        CHECK_OK(loch_budget_walk_members(budget, check_member, &granted));
        assert_true(granted <= TOTAL);
        for (size_t i = 0; i < KILL_WORKERS; i++)
            before[i] = atomic_load(&worker_board_mine->served[i]);
        void *block; /* the minimum of one that never borrowed is there whatever happens */
        CHECK_OK(loch_alloc(checker.pool, 20 * TEST_MIB, &block));
        CHECK_OK(loch_free(checker.pool, block));
        CHECK_OK(loch_allocator_trim(checker.pool, 0, NULL));
        for (size_t i = 0; i < KILL_WORKERS; i++)
            if (i != victim) BUDGET_AWAIT(atomic_load(&worker_board_mine->served[i]) > before[i]);
        const uint64_t took = loch_host_now_ns() - killed;
        if (took > slowest) slowest = took;
        assert_int_equal(atomic_load(&worker_board_mine->wrong), 0);
        workers[victim] = storm_begin(victim, round + 100);
    }
    print_message("%d kills; the others were served after %.1f ms at most\n", KILL_ROUNDS, (double)slowest / 1e6);
    for (size_t i = 0; i < KILL_WORKERS; i++)
        worker_kill(&workers[i]);
    const loch_budget_info left = budget_info(budget);
    assert_int_equal(left.members, 1);
    assert_int_equal(left.processes, 1);
    void *block;
    CHECK_OK(loch_alloc(checker.pool, 120 * TEST_MIB, &block)); /* all of the budget is there again */
    CHECK_OK(loch_free(checker.pool, block));
    party_end(&checker);
    loch_budget_close(budget);
    assert_false(budget_is_there());
}

int main(int count, char **arguments)
{
    worker_main(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pressure_crosses_processes),
        cmocka_unit_test(bytes_of_a_killed_process_serve_others),
        cmocka_unit_test(a_kill_ends_the_wait_of_others),
        cmocka_unit_test(a_file_without_processes_is_as_good_as_none),
        cmocka_unit_test(children_do_not_keep_their_parents_alive),
        cmocka_unit_test(another_program_has_no_budget),
        cmocka_unit_test(a_child_of_a_fork_has_no_budget),
        cmocka_unit_test(processes_race_to_make_and_to_remove),
        cmocka_unit_test(processes_are_killed_at_random_moments),
    };
    return cmocka_run_group_tests(tests, budget_begin, budget_end);
}
