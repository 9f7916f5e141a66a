/* SPDX-License-Identifier: MIT */
/* Entering and leaving sessions. */
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/thread.h"
#include "memory/pool/pool.h"
#include "memory/session/note.h"
#include "memory/session/session.h"
#include <pthread.h>

/* One entry of a thread into a session. Kept in a list for the child of a fork, which does not have the other
 * threads. */
typedef struct session_stay {
    lochi_session_frame frame; /* first member, so that a stay is found from its frame */
    uint64_t thread;
    struct session_stay *next, **link;
} session_stay;

static session_stay *stay_list; /* under lochi_session_lock */
static session_stay *stay_lost; /* stays of threads that do not exist in the child of a fork; written only there */
static pthread_once_t stay_once = PTHREAD_ONCE_INIT;
static pthread_key_t stay_key;
static bool stay_has_key;

/* Removes a stay from its list. The lock is held, except in the child of a fork, where one thread runs. */
static void stay_remove(session_stay *stay)
{
    stay->frame.session->entered--;
    *stay->link = stay->next;
    if (stay->next) stay->next->link = stay->link;
}

static void stay_end(lochi_session_frame *frame)
{
    session_stay *stay = (session_stay *)(void *)frame;
    lochi_lock_take(&lochi_session_lock);
    stay_remove(stay);
    lochi_lock_drop(&lochi_session_lock);
    lochi_free(stay);
}

/* Ends the stays of a thread that exits inside sessions. */
static void stay_thread_ends(void *value)
{
    (void)value;
    while (lochi_session_top) {
        lochi_session_frame *frame = lochi_session_top;
        lochi_session_top = frame->next;
        stay_end(frame);
    }
}

/* Ends the stays of all other threads in the child of a fork. */
static void stay_forked(void)
{
    for (session_stay *stay = stay_list, *next; stay; stay = next) {
        next = stay->next;
        if (stay->thread == lochi_thread_number()) continue;
        stay_remove(stay);
        stay->next = stay_lost;
        stay_lost = stay;
    }
}

static void stay_settle_forked(void)
{
    while (stay_lost) {
        session_stay *stay = stay_lost;
        stay_lost = stay->next;
        lochi_free(stay);
    }
}

static lochi_fork_part stay_part = {.child = stay_forked, .settle = stay_settle_forked};

static void stay_make_key(void)
{
    stay_has_key = pthread_key_create(&stay_key, stay_thread_ends) == 0;
}

static loch_status stay_begin(loch_session *session, session_stay *stay)
{
    lochi_fork_add(&stay_part);
    lochi_lock_take(&lochi_session_lock);
    const bool is_open = !session->is_ending;
    if (is_open) {
        session->entered++;
        *stay = (session_stay){{lochi_session_top, session}, lochi_thread_number(), stay_list, &stay_list};
        if (stay->next) stay->next->link = &stay->next;
        stay_list = stay;
    }
    lochi_lock_drop(&lochi_session_lock);
    return is_open ? LOCH_OK : lochi_session_refuse(session);
}

loch_status loch_session_enter(loch_session *session)
{
    if (!session) return LOCH_FAIL(INVALID, "there is no session to enter");
    if (lochi_session_top && !lochi_session_top->session)
        return LOCH_FAIL(INVALID, "a session cannot be entered from inside an allocation");
    pthread_once(&stay_once, stay_make_key);
    session_stay *stay = lochi_alloc(sizeof *stay);
    if (!stay || !stay_has_key || pthread_setspecific(stay_key, session) != 0) {
        lochi_free(stay);
        return LOCH_FAIL(HOST_MEMORY, "no host memory to enter a session");
    }
    const loch_status status = stay_begin(session, stay);
    if (status != LOCH_OK) {
        lochi_free(stay);
        return status;
    }
    lochi_session_top = &stay->frame;
    if (session->wrapped->pool) lochi_pool_drop_cache(session->wrapped->pool);
    return LOCH_OK;
}

loch_status loch_session_leave(loch_session *session)
{
    lochi_session_frame *frame = lochi_session_top;
    if (!session || !frame || frame->session != session)
        return LOCH_FAIL(INVALID, "the session is not the one that this thread entered last");
    lochi_session_top = frame->next;
    stay_end(frame);
    return LOCH_OK;
}
