/* SPDX-License-Identifier: MIT */
/* A gate: work on a stream that waits for the test. Queue gate_wait with loch_stream_call. */
#ifndef LOCH_TEST_GATE_H
#define LOCH_TEST_GATE_H

#include <pthread.h>
#include <stdbool.h>

typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool is_open;
} gate;

__attribute__((unused)) static void gate_wait(void *user)
{
    gate *g = user;
    pthread_mutex_lock(&g->mutex);
    while (!g->is_open)
        pthread_cond_wait(&g->opened, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

__attribute__((unused)) static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->is_open = true;
    pthread_cond_broadcast(&g->opened);
    pthread_mutex_unlock(&g->mutex);
}

#define GATE_INITIALIZER                                                                                               \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                                                     \
    }

#endif
