/* SPDX-License-Identifier: MIT */
/* Processes that are killed at any moment, many threads, and forks. Afterwards no block is held and no descriptor is
 * open that was not before. */
#include "second_process.h"
#include <pthread.h>

#define KILL_ROUNDS 60
#define STORM_TOKENS 6
#define STORM_BYTES 30000

typedef struct storm_token {
    size_t bytes;
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
} storm_token;

static loch_device *cpu;

/* --- a process that imports and releases --- */

typedef struct storm_thread {
    const storm_token *tokens;
    uint64_t seed;
    size_t rounds; /* 0: without end */
    size_t failures;
} storm_thread;

static void *storm_import(void *user)
{
    storm_thread *own = user;
    test_random random = {own->seed};
    loch_buffer *held[4] = {NULL};
    for (size_t i = 0; !own->rounds || i < own->rounds; i++) {
        loch_buffer **slot = &held[test_random_below(&random, 4)];
        const storm_token *token = &own->tokens[test_random_below(&random, STORM_TOKENS)];
        loch_buffer_clear(slot);
        if (loch_parcel_import(cpu, token->token, token->bytes, NULL, slot) != LOCH_OK) {
            own->failures++;
            continue;
        }
        const size_t which = (size_t)(token - own->tokens);
        if (test_pattern_differs(loch_buffer_get_address(*slot), 500, which) != 500) own->failures++;
    }
    for (size_t i = 0; i < 4; i++)
        loch_buffer_release(held[i]);
    return NULL;
}

/* Imports in several threads. The exit code is 0 if every import succeeded and had the right contents. */
static int storm_run(int commands, size_t threads, size_t rounds)
{
    storm_token tokens[STORM_TOKENS];
    pthread_t all[8];
    storm_thread own[8];
    if (loch_device_open("cpu", &cpu) != LOCH_OK) return 2;
    if (read(commands, tokens, sizeof tokens) != (ssize_t)sizeof tokens) return 3;
    size_t failures = 0;
    for (size_t i = 0; i < threads; i++) {
        own[i] = (storm_thread){tokens, i + 1, rounds, 0};
        if (pthread_create(&all[i], NULL, storm_import, &own[i]) != 0) return 4;
    }
    (void)!write(commands, "", 1); /* has begun */
    for (size_t i = 0; i < threads; i++) {
        pthread_join(all[i], NULL);
        failures += own[i].failures;
    }
    loch_device_release(cpu);
    return failures ? 1 : 0;
}

/* --- a process that offers --- */

static int storm_offer(int commands)
{
    loch_buffer *buffers[8] = {NULL};
    loch_parcel *parcels[8] = {NULL};
    if (loch_device_open("cpu", &cpu) != LOCH_OK) return 2;
    loch_allocator *pool = partner_pool(cpu, 0);
    for (size_t i = 0;; i = (i + 1) % 8) {
        loch_parcel_destroy(parcels[i]);
        parcels[i] = NULL;
        loch_buffer_clear(&buffers[i]);
        if (loch_buffer_create(pool, 5000 * (i + 1), NULL, &buffers[i]) != LOCH_OK ||
            loch_parcel_create(buffers[i], NULL, &parcels[i]) != LOCH_OK ||
            loch_parcel_send(parcels[i], commands) != LOCH_OK)
            return 3;
    }
}

/* --- the first process --- */

static pid_t storm_start(const char *role, size_t threads, size_t rounds, int *commands)
{
    int ends[2];
    char texts[3][24];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    snprintf(texts[0], sizeof texts[0], "%d", ends[1]);
    snprintf(texts[1], sizeof texts[1], "%zu", threads);
    snprintf(texts[2], sizeof texts[2], "%zu", rounds);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        fcntl(ends[1], F_SETFD, 0);
        char *const arguments[] = {(char *)"/proc/self/exe", (char *)role, texts[0], texts[1], texts[2], NULL};
        execv(arguments[0], arguments);
        _exit(127);
    }
    close(ends[1]);
    *commands = ends[0];
    return pid;
}

typedef struct offers {
    loch_allocator *pool;
    loch_parcel *parcels[STORM_TOKENS];
    storm_token tokens[STORM_TOKENS];
} offers;

static void offers_make(offers *o)
{
    o->pool = partner_pool(cpu, 0);
    memset(o->tokens, 0, sizeof o->tokens);
    for (size_t i = 0; i < STORM_TOKENS; i++) {
        loch_buffer *buffer;
        CHECK_OK(loch_buffer_create(o->pool, STORM_BYTES, NULL, &buffer));
        test_pattern_write(loch_buffer_get_address(buffer), STORM_BYTES, i);
        CHECK_OK(loch_parcel_create(buffer, NULL, &o->parcels[i]));
        loch_buffer_release(buffer);
        const void *token = loch_parcel_get_token(o->parcels[i], &o->tokens[i].bytes);
        memcpy(o->tokens[i].token, token, o->tokens[i].bytes);
    }
}

static void offers_await_none(const offers *o)
{
    for (size_t i = 0; i < STORM_TOKENS; i++)
        partner_await_imports(o->parcels[i], 0);
}

static void offers_end(offers *o)
{
    for (size_t i = 0; i < STORM_TOKENS; i++)
        loch_parcel_destroy(o->parcels[i]);
    partner_await_empty(o->pool);
    loch_allocator_release(o->pool);
}

static void sleep_up_to(test_random *random, size_t us)
{
    const struct timespec pause = {.tv_nsec = (long)test_random_below(random, us) * 1000};
    nanosleep(&pause, NULL);
}

static void await_files(size_t files)
{
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_count_files() > files && time(NULL) < end)
        partner_pause();
    assert_true(partner_count_files() <= files);
}

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

static void owners_are_killed_at_any_moment(void **state)
{
    (void)state;
    test_random random = {test_seed(29)};
    size_t received = 0;
    const size_t files = partner_count_files();
    for (size_t round = 0; round < KILL_ROUNDS; round++) {
        int commands, status;
        const pid_t pid = storm_start("offer", 0, 0, &commands);
        loch_buffer *buffers[64] = {NULL};
        const size_t before_kill = 1 + test_random_below(&random, 40);
        for (size_t i = 0; i < 64; i++) {
            if (i == before_kill) {
                sleep_up_to(&random, 500);
                assert_int_equal(kill(pid, SIGKILL), 0);
            }
            const loch_status got = loch_parcel_receive(cpu, commands, NULL, &buffers[i]);
            if (got == LOCH_OK)
                received++;
            else if (got != LOCH_E_NOT_FOUND && got != LOCH_E_IO)
                fail_msg("%s: %s", loch_status_name(got), loch_error_get()->sentence);
            if (got == LOCH_E_IO) break;
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        for (size_t i = 0; i < 64; i++) {
            if (buffers[i]) test_pattern_write(loch_buffer_get_address(buffers[i]), 5000, i); /* works without it */
            loch_buffer_release(buffers[i]);
        }
        close(commands);
    }
    assert_true(received > 0);
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
    if (count == 5 && !strcmp(arguments[1], "storm"))
        return storm_run(atoi(arguments[2]), (size_t)atoi(arguments[3]), (size_t)atoi(arguments[4]));
    if (count == 5 && !strcmp(arguments[1], "offer")) return storm_offer(atoi(arguments[2]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(importers_are_killed_at_any_moment),
        cmocka_unit_test(owners_are_killed_at_any_moment),
        cmocka_unit_test(threads_import_and_release),
        cmocka_unit_test(a_child_of_a_fork_shares_on_its_own),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
