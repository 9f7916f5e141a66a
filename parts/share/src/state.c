/* SPDX-License-Identifier: MIT */
/* A fork takes the lock, so that the child finds lists that are complete. The child closes its copies of the sockets:
 * otherwise they would keep leases alive after the parent has ended. */
#include "state.h"

pthread_mutex_t lochi_share_lock = PTHREAD_MUTEX_INITIALIZER;
unsigned lochi_share_epoch;

static share_forked *state_functions[2];
static pthread_once_t state_once = PTHREAD_ONCE_INIT;

static void state_prepare(void)
{
    pthread_mutex_lock(&lochi_share_lock);
}

static void state_parent(void)
{
    pthread_mutex_unlock(&lochi_share_lock);
}

static void state_child(void)
{
    lochi_share_epoch++;
    state_functions[0]();
    state_functions[1]();
    pthread_mutex_unlock(&lochi_share_lock);
}

static void state_register(void)
{
    pthread_atfork(state_prepare, state_parent, state_child);
}

void lochi_share_state_watch_forks(share_forked *one, share_forked *other)
{
    pthread_mutex_lock(&lochi_share_lock);
    state_functions[0] = one;
    state_functions[1] = other;
    pthread_mutex_unlock(&lochi_share_lock);
    pthread_once(&state_once, state_register);
}
