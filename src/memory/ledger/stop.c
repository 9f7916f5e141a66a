/* SPDX-License-Identifier: MIT */
/* Stops of a ledger, for consistent reads and for forks. */
#include "memory/ledger/stop.h"
#include "kit/backoff.h"
#include "memory/ledger/slot.h"
#include <stddef.h>

/* Turns that a stop waits for threads that the last stop kept out: about 10 ms. */
#define STOP_TURNS (LOCHI_BACKOFF_AWAKE + 15)

void lochi_ledger_halt(lochi_ledger *ledger)
{
    lochi_lock_assert_held(&ledger->lock);
    atomic_fetch_or_explicit(&ledger->state, LOCHI_LEDGER_STOPPED, memory_order_relaxed);
    lochi_fence_heavy(); /* a thread that is inside is seen as inside, or it sees the stop */
    uint32_t index = 0;
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));)
        for (unsigned turn = 0; atomic_load_explicit(&slot->inside, memory_order_acquire);)
            lochi_backoff(&turn);
}

void lochi_ledger_go_on(lochi_ledger *ledger)
{
    atomic_fetch_and_explicit(&ledger->state, ~(unsigned)LOCHI_LEDGER_STOPPED, memory_order_release);
}

/* Waits for the threads that the last stop kept out. Without this, a thread that reads statistics in a loop would
 * keep them out forever. */
static void stop_let_in(lochi_ledger *ledger)
{
    unsigned turn = 0;
    for (int turns = STOP_TURNS; turns && atomic_load_explicit(&ledger->kept_out, memory_order_relaxed); turns--)
        lochi_backoff(&turn);
}

void lochi_ledger_stop(lochi_ledger *ledger)
{
    lochi_lock_take(&ledger->lock);
    stop_let_in(ledger);
    lochi_ledger_halt(ledger);
}

void lochi_ledger_resume(lochi_ledger *ledger)
{
    lochi_ledger_go_on(ledger);
    lochi_lock_drop(&ledger->lock);
}

/* --- forks --- */

/* Turns that a fork waits for threads that need a group which the forking thread visits: about 100 ms. */
#define STOP_FORK_TURNS (LOCHI_BACKOFF_AWAKE + 100)

static lochi_fork_part stop_part;

static lochi_ledger *stop_of(lochi_fork_item *item)
{
    return (lochi_ledger *)((char *)item - offsetof(lochi_ledger, in_forks));
}

/* Waits until no thread is inside. If a visitor of a walk forks, threads that need the visited group are inside and
 * cannot leave; they have changed nothing yet, so the wait for them ends after STOP_FORK_TURNS. */
static void stop_await(lochi_ledger *ledger)
{
    const bool is_own = lochi_lock_is_mine(&ledger->lock);
    uint32_t index = 0;
    for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));) {
        unsigned turn = 0;
        for (int turns = STOP_FORK_TURNS; atomic_load_explicit(&slot->inside, memory_order_acquire); turns--) {
            if (is_own && turns <= 0) break;
            lochi_backoff(&turn);
        }
    }
}

static void stop_stop_all(void)
{
    for (lochi_fork_item *item = stop_part.items; item; item = item->next)
        atomic_fetch_or_explicit(&stop_of(item)->state, LOCHI_LEDGER_STOPPED, memory_order_relaxed);
    lochi_fence_heavy();
    for (lochi_fork_item *item = stop_part.items; item; item = item->next)
        stop_await(stop_of(item));
}

static void stop_go_on_all(void)
{
    for (lochi_fork_item *item = stop_part.items; item; item = item->next)
        lochi_ledger_go_on(stop_of(item));
}

/* Resets the marks of all other threads in the child of a fork, where no thread is inside. */
static void stop_forked(void)
{
    for (lochi_fork_item *item = stop_part.items; item; item = item->next) {
        lochi_ledger *ledger = stop_of(item);
        uint32_t index = 0, count = LOCHI_SLOT_COUNT;
        while (count && !atomic_load_explicit(&ledger->slots[count - 1], memory_order_relaxed))
            count--; /* a thread may have made its slot without counting it yet */
        atomic_store_explicit(&ledger->slot_count, count, memory_order_relaxed);
        for (lochi_ledger_slot *slot; (slot = lochi_ledger_next_slot(ledger, &index));)
            atomic_store_explicit(&slot->inside, false, memory_order_relaxed);
        lochi_ledger_unlock(&ledger->shared.is_locked);
        atomic_store_explicit(&ledger->kept_out, 0, memory_order_relaxed);
        lochi_ledger_go_on(ledger);
    }
}

static lochi_fork_part stop_part = {.prepare = stop_stop_all, .parent = stop_go_on_all, .child = stop_forked};

void lochi_ledger_enter_forks(lochi_ledger *ledger)
{
    lochi_fork_enter(&stop_part, &ledger->in_forks);
}
