/* SPDX-License-Identifier: MIT */
/* A second thread that works in turns with the first one: one of the two runs, the other waits. */
#ifndef LOCH_TEST_PARTNER_H
#define LOCH_TEST_PARTNER_H

#include "test.h"

#include <pthread.h>

typedef struct partner partner;

/* One turn. Checks with TRY and EXPECT (worker.h). */
typedef void partner_work(partner *w);

struct partner {
    pthread_t thread;
    pthread_barrier_t barrier;
    partner_work *work;
    void *user;
    bool is_over;
    char failure[400];
};

__attribute__((unused)) static void *partner_run(void *user)
{
    partner *w = user;
    for (;;) {
        pthread_barrier_wait(&w->barrier);
        if (w->is_over) return NULL;
        w->work(w);
        pthread_barrier_wait(&w->barrier);
    }
}

/* Starts the thread, which waits for its first turn. `w` stays where it is until partner_end. */
__attribute__((unused)) static void partner_start(partner *w, partner_work *work, void *user)
{
    *w = (partner){.work = work, .user = user};
    assert_int_equal(pthread_barrier_init(&w->barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&w->thread, NULL, partner_run, w), 0);
}

/* Lets it work for one turn, and waits for the end of it. */
__attribute__((unused)) static void partner_turn(partner *w)
{
    pthread_barrier_wait(&w->barrier);
    pthread_barrier_wait(&w->barrier);
    if (w->failure[0]) fail_msg("%s", w->failure);
}

__attribute__((unused)) static void partner_end(partner *w)
{
    w->is_over = true;
    pthread_barrier_wait(&w->barrier);
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    pthread_barrier_destroy(&w->barrier);
}

#endif
