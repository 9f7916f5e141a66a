/* SPDX-License-Identifier: MIT */
/* The child of a fork closes its copies of the files: otherwise they would keep the marks of the parent's slots after
 * the parent has ended. It takes no lock of the parent but the one of the list, which the fork takes. */
#include "state.h"
#include "kit/fail.h"

static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list; nothing is called with it held */
static loch_budget *state_list;
static unsigned state_epoch; /* changes in the child of a fork only */
static pthread_once_t state_once = PTHREAD_ONCE_INIT;

static void state_prepare(void)
{
    pthread_mutex_lock(&state_lock);
}

static void state_parent(void)
{
    pthread_mutex_unlock(&state_lock);
}

static void state_child(void)
{
    state_epoch++;
    for (loch_budget *budget = state_list, *next; budget; budget = next) {
        next = budget->next;
        budget->next = NULL;
        budget->link = NULL;
        lochi_budget_file_close(&budget->file);
    }
    state_list = NULL;
    pthread_mutex_unlock(&state_lock);
}

static void state_watch_forks(void)
{
    (void)pthread_atfork(state_prepare, state_parent, state_child);
}

void lochi_budget_state_add(loch_budget *budget)
{
    pthread_once(&state_once, state_watch_forks);
    pthread_mutex_lock(&state_lock);
    budget->epoch = state_epoch;
    budget->next = state_list;
    budget->link = &state_list;
    if (state_list) state_list->link = &budget->next;
    state_list = budget;
    pthread_mutex_unlock(&state_lock);
}

void lochi_budget_state_remove(loch_budget *budget)
{
    pthread_mutex_lock(&state_lock);
    if (budget->link) {
        *budget->link = budget->next;
        if (budget->next) budget->next->link = budget->link;
        budget->link = NULL;
    }
    pthread_mutex_unlock(&state_lock);
}

bool lochi_budget_state_is_forked(const loch_budget *budget)
{
    return budget->epoch != state_epoch;
}

loch_status lochi_budget_state_refuse(void)
{
    return LOCH_FAIL(FORKED, "the budget was opened before a fork: open it again in the child");
}
