/* SPDX-License-Identifier: MIT */
/* Processes that import and release, or offer, as fast as they can: the test program itself, run again. */
#ifndef LOCH_TEST_STORM_H
#define LOCH_TEST_STORM_H

#include "second_process.h"
#include <pthread.h>

#define STORM_TOKENS 6
#define STORM_BYTES 30000
#define STORM_OFFERS 64 /* parcels that a test receives of one process that offers */

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

__attribute__((unused)) static void *storm_import(void *user)
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
__attribute__((unused)) static int storm_run(int commands, size_t threads, size_t rounds)
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

/* Offers without end, as fast as the socket takes it. The parcels with even numbers among the first STORM_OFFERS stay;
 * of all others the last few stay, so that they are destroyed before, during and after their import. */
__attribute__((unused)) static int storm_offer(int commands)
{
    enum { LAST = 8 };
    loch_parcel *kept[STORM_OFFERS], *last[LAST] = {NULL};
    if (loch_device_open("cpu", &cpu) != LOCH_OK) return 2;
    loch_allocator *pool = partner_pool(cpu, 0);
    for (size_t i = 0, at = 0;; i++) {
        const bool is_kept = i < STORM_OFFERS && i % 2 == 0;
        loch_parcel **parcel = is_kept ? &kept[i] : &last[at++ % LAST];
        loch_buffer *buffer;
        if (!is_kept) loch_parcel_destroy(*parcel);
        if (loch_buffer_create(pool, 5000 * (i % LAST + 1), NULL, &buffer) != LOCH_OK ||
            loch_parcel_create(buffer, NULL, parcel) != LOCH_OK || loch_parcel_send(*parcel, commands) != LOCH_OK)
            return 3;
        loch_buffer_release(buffer);
    }
}

/* --- the first process --- */

__attribute__((unused)) static pid_t storm_start(const char *role, size_t threads, size_t rounds, int *commands)
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

__attribute__((unused)) static void offers_make(offers *o)
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

__attribute__((unused)) static void offers_await_none(const offers *o)
{
    for (size_t i = 0; i < STORM_TOKENS; i++)
        partner_await_imports(o->parcels[i], 0);
}

__attribute__((unused)) static void offers_end(offers *o)
{
    for (size_t i = 0; i < STORM_TOKENS; i++)
        loch_parcel_destroy(o->parcels[i]);
    partner_await_empty(o->pool);
    loch_allocator_release(o->pool);
}

__attribute__((unused)) static void sleep_up_to(test_random *random, size_t us)
{
    const struct timespec pause = {.tv_nsec = (long)test_random_below(random, us) * 1000};
    nanosleep(&pause, NULL);
}

__attribute__((unused)) static void await_files(size_t files)
{
    const time_t end = time(NULL) + PARTNER_SECONDS;
    while (partner_count_files() > files && time(NULL) < end)
        partner_pause();
    assert_true(partner_count_files() <= files);
}

/* Runs as a storm if the arguments say so: ends the program then. */
static void storm_main(int count, char **arguments)
{
    if (count != 5) return;
    if (!strcmp(arguments[1], "storm"))
        exit(storm_run(atoi(arguments[2]), (size_t)atoi(arguments[3]), (size_t)atoi(arguments[4])));
    if (!strcmp(arguments[1], "offer")) exit(storm_offer(atoi(arguments[2])));
}

#endif
