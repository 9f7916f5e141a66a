/* SPDX-License-Identifier: MIT */
/* Shared by the tests of engines: engines in one line, gates that tasks wait at, and the check that nothing is
 * left. */
#ifndef LOCH_TEST_ENGINE_FIXTURE_H
#define LOCH_TEST_ENGINE_FIXTURE_H

#include "engine/engine_state.h"
#include "test.h"
#include <pthread.h>
#include <stdatomic.h>

#define MIB TEST_MIB
#define SIM_A "sim:64MiB,granule=64KiB,backed"
#define SIM_B "sim:32MiB,granule=64KiB,backed,id=7"

static loch_host_usage usage_before = {.size = sizeof usage_before};

__attribute__((unused)) static int note_usage(void **state)
{
    (void)state;
    CHECK_OK(loch_host_get_usage(&usage_before));
    return 0;
}

/* Every test ends with what it began with. */
__attribute__((unused)) static int check_usage(void **state)
{
    (void)state;
    loch_host_usage now = {.size = sizeof now};
    CHECK_OK(loch_host_get_usage(&now));
    if (now.blocks == usage_before.blocks && now.bytes == usage_before.bytes) return 0;
    print_error("the bookkeeping holds %zu bytes in %zu pieces, before it were %zu in %zu\n", now.bytes, now.blocks,
                usage_before.bytes, usage_before.blocks);
    return -1;
}

__attribute__((unused)) static loch_engine_device device_named(const char *name)
{
    return (loch_engine_device){.size = sizeof(loch_engine_device), .name = name};
}

__attribute__((unused)) static loch_status try_open(const loch_engine_device *table, size_t count, loch_engine **out)
{
    const loch_engine_options options = {.size = sizeof options, .devices = table, .devices_count = count};
    return loch_engine_open(&options, out);
}

__attribute__((unused)) static loch_engine *open_engine(const loch_engine_device *table, size_t count)
{
    loch_engine *engine;
    CHECK_OK(try_open(table, count, &engine));
    return engine;
}

/* On the CPU and two simulated devices. */
__attribute__((unused)) static loch_engine *open_three(void)
{
    const loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A), device_named(SIM_B)};
    return open_engine(table, 3);
}

__attribute__((unused)) static void end_engine(loch_engine *engine)
{
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks));
    assert_int_equal(leaks.blocks, 0);
}

__attribute__((unused)) static loch_engine_info info_of(loch_engine *engine, unsigned seat)
{
    loch_engine_info info = {.size = sizeof info};
    CHECK_OK(loch_engine_get_info(engine, LOCH_SEAT(seat), &info));
    return info;
}

__attribute__((unused)) static void expect_sentence(const char *part)
{
    if (!strstr(loch_error_get()->sentence, part))
        fail_msg("\"%s\" is not in \"%s\"", part, loch_error_get()->sentence);
}

/* A gate that a task waits at until the test lets it go. */
typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_open, is_reached;
} gate;

#define GATE_CLOSED                                                                                                    \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false                                              \
    }

__attribute__((unused)) static void gate_pass(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->is_reached = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->is_open)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

__attribute__((unused)) static void gate_await(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    while (!g->is_reached)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

__attribute__((unused)) static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->is_open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

__attribute__((unused)) static loch_status task_at_gate(void *user)
{
    gate_pass(user);
    return LOCH_OK;
}

__attribute__((unused)) static void *open_gate(void *user)
{
    gate_open(user);
    return NULL;
}

__attribute__((unused)) static loch_status each_counts(loch_engine *engine, loch_seat seat, void *user)
{
    (void)engine, (void)seat;
    atomic_fetch_add((atomic_uint *)user, 1);
    return LOCH_OK;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, note_usage, check_usage)

#endif
