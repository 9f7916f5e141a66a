/* SPDX-License-Identifier: MIT */
/* The thread of a member. It sleeps on the bell of its slot. It looks after a second in any case: then figures are as
 * fresh, and what a dying process asked for without ringing is answered. */
#include "member.h"
#include <signal.h>

#define SERVICE_LOOK_NS 1000000000u
#define SERVICE_NAP_NS 1000000u /* notes of the observer that come closer are taken together */

void lochi_budget_service_note(loch_budget_member *member)
{
    atomic_store(&member->is_dirty, true);
    if (!atomic_load(&member->is_awake) && !lochi_budget_state_is_forked(member->budget))
        lochi_budget_file_ring(&member->budget->file, BUDGET_PLACE(member->index, bell));
}

static void service_work(loch_budget_member *member)
{
    atomic_store(&member->is_dirty, false);
    pthread_mutex_lock(&member->mutex);
    lochi_budget_grant_answer(member);
    lochi_budget_grant_settle(member);
    pthread_mutex_unlock(&member->mutex);
}

static void *service_run(void *user)
{
    loch_budget_member *member = user;
    const budget_file *file = &member->budget->file;
    const size_t bell = BUDGET_PLACE(member->index, bell);
    while (!atomic_load(&member->is_ending)) {
        const uint32_t heard = lochi_budget_file_hear(file, bell); /* before the work: what rings later is seen later */
        atomic_store(&member->is_awake, true);
        service_work(member);
        if (!atomic_load(&member->is_ending)) lochi_budget_file_sleep(file, bell, heard, SERVICE_NAP_NS);
        atomic_store(&member->is_awake, false);
        if (!atomic_load(&member->is_dirty) && !atomic_load(&member->is_ending))
            lochi_budget_file_sleep(file, bell, heard, SERVICE_LOOK_NS);
    }
    return NULL;
}

loch_status lochi_budget_service_start(loch_budget_member *member)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&member->thread, NULL, service_run, member);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    member->has_thread = error == 0;
    return error ? loch_error_set(LOCH_E_HOST_MEMORY, "system", error, "no thread for a member of a budget") : LOCH_OK;
}

void lochi_budget_service_stop(loch_budget_member *member)
{
    if (!member->has_thread) return;
    atomic_store(&member->is_ending, true);
    lochi_budget_file_ring(&member->budget->file, BUDGET_PLACE(member->index, bell));
    pthread_join(member->thread, NULL);
    member->has_thread = false;
}
