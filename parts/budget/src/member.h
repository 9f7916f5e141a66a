/* SPDX-License-Identifier: MIT */
/* A member: a pool whose limit is its grant (member.c, grant.c, service.c). */
#ifndef BUDGET_MEMBER_H
#define BUDGET_MEMBER_H

#include "rules.h"
#include "state.h"
#include "table.h"
#include <loch/budget.h>

struct loch_budget_member {
    loch_budget *budget;  /* counted */
    loch_allocator *pool; /* counted; no wrapper */
    size_t index;         /* slot */
    size_t granule;
    uint64_t chunk;
    uint64_t minimum, limit, old_limit;
    char name[BUDGET_NAME_BYTES];

    pthread_mutex_t mutex; /* guards what follows; not held while a request waits */
    uint64_t granted;      /* as in the file; the pool's limit is never more */
    uint64_t held, used;   /* as in the file */
    uint64_t wanted;       /* as in the file: the largest target of those that wait */
    uint64_t prepared;     /* grant that is kept until it is used or others need it; 0 for none */
    size_t waiting;        /* requests that wait */

    _Atomic uint64_t raised_ns; /* when the grant was last raised */

    /* The thread. The observer sets `is_dirty`, and rings only if the thread sleeps. */
    _Atomic bool is_dirty, is_awake, is_ending;
    bool has_thread, has_observer, has_pressure;
    pthread_t thread;
};

/* --- grant.c: all but lochi_budget_grant_get with the member's mutex held --- */

/* Figures of the pool. */
loch_status lochi_budget_grant_look(const loch_budget_member *member, loch_pool_info *info);

/* Raises the grant to `need` at least, and to `wish` if no member waits. E_LIMIT if the budget does not have it now;
 * with `is_asking` others were asked to give back. Writes the sentence only if `is_told`. */
loch_status lochi_budget_grant_raise(loch_budget_member *member, uint64_t need, uint64_t wish, bool is_asking,
                                     bool is_told);

/* Makes the grant the limit of the pool. */
loch_status lochi_budget_grant_apply(const loch_budget_member *member);

/* Tells whether the grant was raised a moment ago: then a request may be about to use it. */
bool lochi_budget_grant_is_recent(const loch_budget_member *member);

/* Lowers the grant to `aim`, or as far as the pool can go. With `is_trimming` the pool gives free memory back. */
void lochi_budget_grant_lower(loch_budget_member *member, uint64_t aim, bool is_trimming);

/* Writes figures of the pool to the file, if they have changed. With the file's lock. */
void lochi_budget_grant_tell(loch_budget_member *member, const loch_pool_info *info);

/* Answers what others have asked for. */
void lochi_budget_grant_answer(loch_budget_member *member);

/* Keeps the grant a chunk ahead of the pool, and gives back what is much more. */
void lochi_budget_grant_settle(loch_budget_member *member);

/* Raises the grant, and waits for others until `deadline_ns`. Without the mutex. */
loch_status lochi_budget_grant_get(loch_budget_member *member, uint64_t need, uint64_t wish, uint64_t deadline_ns);

/* --- service.c --- */

loch_status lochi_budget_service_start(loch_budget_member *member);
void lochi_budget_service_stop(loch_budget_member *member);

/* Notes that the pool may have taken or given back memory. Takes no lock. */
void lochi_budget_service_note(loch_budget_member *member);

#endif
