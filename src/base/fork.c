/* SPDX-License-Identifier: MIT */
/* Taking all locks before a fork, and dropping them after it.
 *
 * Locks are taken in rising rank and address, as every thread does. The fork never waits for a lock while it holds the
 * mutex of the list, because the thread that holds the lock may need the list to create or end a lock. If a lock is not
 * free, the fork drops the locks that its holder may wait for: those of higher rank and those without a rank order.
 * Then the fork releases the mutex of the list for a moment. So no thread waits for a fork that waits for that thread.
 * When all locks are taken, the fork keeps the mutex of the list too: no lock is created or ended during the fork.
 *
 * The thread that forks may hold locks itself, inside a log hook or a visitor. Another thread may then wait for such a
 * lock while it holds a lock of lower rank, which the fork cannot get. After FORK_PATIENCE_NS the fork goes on without
 * that lock, and the child initialises the lock again. The data that it guards may be half changed in the child, as
 * after any fork from inside a callback.
 *
 * No static constructor runs: the handlers are registered with the first lock. */
#include "base/fork.h"
#include "kit/backoff.h"
#include "base/fence.h"
#include <stdint.h>
#include <time.h>

/* Attempts for one lock before the others are dropped. The fork does not sleep meanwhile: it holds locks. */
#define FORK_LOOKS LOCHI_BACKOFF_AWAKE
#define FORK_PATIENCE_NS ((uint64_t)1000000000)

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t fork_turn = PTHREAD_MUTEX_INITIALIZER;  /* one fork at a time */
static pthread_mutex_t fork_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the lists below */
static lochi_lock *fork_locks[LOCHI_RANK_COUNT];
static lochi_fork_part *fork_parts;
static bool fork_is_inside; /* the thread that forks holds a lock of the library */

/* --- one lock --- */

static void fork_let_go(lochi_lock *lock)
{
    if (!lock->is_kept) return;
    lock->is_kept = false;
    pthread_mutex_unlock(&lock->mutex);
}

/* Tries to take a lock. Returns whether the fork need not wait for it: taken now or before, held by the calling
 * thread, or being ended (the thread that ends it goes on). */
static bool fork_take(lochi_lock *lock)
{
    if (lock->is_ending) {
        fork_let_go(lock);
        return true;
    }
    if (lock->is_kept) return true;
    if (lochi_lock_is_mine(lock)) return fork_is_inside = true;
    for (unsigned looks = 0; looks < FORK_LOOKS;) {
        lock->is_kept = pthread_mutex_trylock(&lock->mutex) == 0;
        if (lock->is_kept) return true;
        lochi_backoff(&looks);
    }
    return false;
}

/* --- all locks; under fork_mutex --- */

static void fork_let_all_go(lochi_rank from)
{
    for (unsigned rank = from; rank < LOCHI_RANK_COUNT; rank++)
        for (lochi_lock *lock = fork_locks[rank]; lock; lock = lock->next)
            fork_let_go(lock);
}

/* Takes all locks without a rank order, or none. */
static bool fork_take_unordered(void)
{
    for (lochi_lock *lock = fork_locks[LOCHI_RANK_NONE]; lock; lock = lock->next)
        if (!fork_take(lock)) {
            fork_let_all_go(LOCHI_RANK_NONE);
            return false;
        }
    return true;
}

/* Takes all locks of a rank. On failure keeps those at addresses below the first lock that is not free, and drops the
 * locks of higher rank and those without a rank order. */
static bool fork_take_rank(lochi_rank rank)
{
    const lochi_lock *missing = NULL;
    for (lochi_lock *lock = fork_locks[rank]; lock; lock = lock->next)
        if (!fork_take(lock) && (!missing || (uintptr_t)lock < (uintptr_t)missing)) missing = lock;
    if (!missing) return true;
    for (lochi_lock *lock = fork_locks[rank]; lock; lock = lock->next)
        if ((uintptr_t)lock > (uintptr_t)missing) fork_let_go(lock);
    fork_let_all_go((lochi_rank)(rank + 1));
    for (lochi_lock *lock = fork_locks[LOCHI_RANK_NONE]; lock; lock = lock->next)
        fork_let_go(lock);
    return false;
}

static bool fork_take_all(void)
{
    fork_is_inside = false;
    if (!fork_take_unordered()) return false;
    for (unsigned rank = LOCHI_RANK_NONE + 1; rank < LOCHI_RANK_COUNT; rank++)
        if (!fork_take_rank((lochi_rank)rank)) return false;
    return true;
}

/* Takes all locks that are free and skips the rest. The last resort of a thread that forks while it holds a lock. */
static void fork_take_some(void)
{
    for (unsigned rank = LOCHI_RANK_NONE; rank < LOCHI_RANK_COUNT; rank++)
        for (lochi_lock *lock = fork_locks[rank]; lock; lock = lock->next)
            (void)fork_take(lock);
}

/* Returns whether the calling thread holds a lock. */
static bool fork_find_own(void)
{
    for (unsigned rank = LOCHI_RANK_NONE; rank < LOCHI_RANK_COUNT; rank++)
        for (const lochi_lock *lock = fork_locks[rank]; lock; lock = lock->next)
            if (lochi_lock_is_mine(lock)) return true;
    return false;
}

/* --- the handlers --- */

static uint64_t fork_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&fork_turn);
    const uint64_t start_ns = fork_now_ns();
    pthread_mutex_lock(&fork_mutex);
    for (unsigned turn = LOCHI_BACKOFF_AWAKE / 2; !fork_take_all();) { /* the attempts have spun */
        const bool is_own = fork_find_own();
        if (is_own && fork_now_ns() - start_ns > FORK_PATIENCE_NS) {
            fork_take_some();
            fork_is_inside = true;
            break;
        }
        pthread_mutex_unlock(&fork_mutex);
        lochi_backoff(&turn);
        pthread_mutex_lock(&fork_mutex);
    }
    for (const lochi_fork_part *part = fork_parts; part; part = part->next)
        if (part->prepare) part->prepare();
}

static void fork_parent(void)
{
    for (const lochi_fork_part *part = fork_parts; part; part = part->next)
        if (part->parent) part->parent();
    fork_let_all_go(LOCHI_RANK_NONE);
    pthread_mutex_unlock(&fork_mutex);
    pthread_mutex_unlock(&fork_turn);
}

/* Initialises a lock again whose holder does not exist in the child. */
static void fork_mend(lochi_lock *lock)
{
    if (lock->is_kept || lochi_lock_is_mine(lock)) return;
    pthread_mutex_init(&lock->mutex, NULL);
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
}

static void fork_child(void)
{
    lochi_fence_forked();
    for (const lochi_fork_part *part = fork_parts; part; part = part->next)
        if (part->child) part->child();
    for (unsigned rank = LOCHI_RANK_NONE; rank < LOCHI_RANK_COUNT; rank++)
        for (lochi_lock *lock = fork_locks[rank]; lock; lock = lock->next)
            fork_mend(lock);
    fork_let_all_go(LOCHI_RANK_NONE);
    const bool is_inside = fork_is_inside;
    pthread_mutex_unlock(&fork_mutex);
    pthread_mutex_unlock(&fork_turn);
    for (const lochi_fork_part *part = fork_parts; part && !is_inside; part = part->next)
        if (part->settle) part->settle();
}

static void fork_register(void)
{
    /* Without memory for the handlers, forks run without them; no caller could handle that failure. */
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* --- the lists --- */

void lochi_fork_list(lochi_lock *lock)
{
    pthread_once(&fork_once, fork_register);
    pthread_mutex_lock(&fork_mutex);
    if (!atomic_load_explicit(&lock->is_listed, memory_order_relaxed)) {
        lochi_lock **list = &fork_locks[lock->rank];
        lock->is_kept = lock->is_ending = false;
        lock->next = *list;
        lock->link = list;
        if (lock->next) lock->next->link = &lock->next;
        *list = lock;
        atomic_store_explicit(&lock->is_listed, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&fork_mutex);
}

void lochi_fork_unlist(lochi_lock *lock)
{
    if (!atomic_load_explicit(&lock->is_listed, memory_order_relaxed)) return; /* part of a half-built object */
    pthread_mutex_lock(&fork_mutex);
    for (unsigned turn = 0; lock->is_kept;) {
        lock->is_ending = true;
        pthread_mutex_unlock(&fork_mutex);
        lochi_backoff(&turn);
        pthread_mutex_lock(&fork_mutex);
    }
    *lock->link = lock->next;
    if (lock->next) lock->next->link = lock->link;
    atomic_store_explicit(&lock->is_listed, false, memory_order_relaxed);
    pthread_mutex_unlock(&fork_mutex);
}

void lochi_fork_add(lochi_fork_part *part)
{
    if (atomic_load_explicit(&part->is_added, memory_order_relaxed)) return;
    pthread_once(&fork_once, fork_register);
    pthread_mutex_lock(&fork_mutex);
    if (!atomic_load_explicit(&part->is_added, memory_order_relaxed)) {
        lochi_fork_part **end = &fork_parts;
        while (*end && !part->is_first)
            end = &(*end)->next;
        part->next = *end;
        *end = part;
        atomic_store_explicit(&part->is_added, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&fork_mutex);
}

void lochi_fork_enter(lochi_fork_part *part, lochi_fork_item *item)
{
    lochi_fork_add(part);
    pthread_mutex_lock(&fork_mutex);
    item->next = part->items;
    item->link = &part->items;
    if (item->next) item->next->link = &item->next;
    part->items = item;
    pthread_mutex_unlock(&fork_mutex);
}

void lochi_fork_leave(lochi_fork_item *item)
{
    pthread_mutex_lock(&fork_mutex); /* neighbours in the list write `link` */
    if (item->link) *item->link = item->next;
    if (item->link && item->next) item->next->link = item->link;
    item->link = NULL;
    pthread_mutex_unlock(&fork_mutex);
}
