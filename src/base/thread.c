/* SPDX-License-Identifier: MIT */
/* Numbers and slots of threads. Slots are taken and given back under a lock, which orders the writes of an old owner
 * before the reads of a new owner. A thread-specific destructor gives a slot back. The main thread keeps its slot
 * until the process ends. */
#include "base/thread.h"
#include "base/fork.h"
#include "base/hazard_marks.h"
#include "base/lock.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

#define THREAD_ENDS 2 /* functions of lochi_thread_at_end */

static lochi_lock thread_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_THREADS);
static uint64_t thread_free_slots[LOCHI_SLOT_COUNT / 64] = {
    ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0, ~(uint64_t)0 >> 1}; /* under thread_lock; without the shared slot */
_Atomic uint32_t lochi_thread_slots_top;                          /* written with the lock held */
static uint64_t thread_lost_slots[LOCHI_SLOT_COUNT / 64];         /* written only in the child of a fork */
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool thread_has_key;
static atomic_uint_fast64_t thread_last_number;
static void (*_Atomic thread_at_end[THREAD_ENDS])(uint32_t slot);

void lochi_thread_at_end(void (*function)(uint32_t slot))
{
    for (size_t i = 0; i < THREAD_ENDS; i++) {
        void (*seen)(uint32_t) = NULL;
        if (atomic_compare_exchange_strong_explicit(&thread_at_end[i], &seen, function, memory_order_release,
                                                    memory_order_relaxed) ||
            seen == function)
            return;
    }
    assert(!"THREAD_ENDS is too small");
}

static void thread_give_slot_back(void *value)
{
    const uint32_t slot = (uint32_t)(uintptr_t)value - 1;
    for (size_t i = 0; i < THREAD_ENDS; i++) {
        void (*function)(uint32_t) = atomic_load_explicit(&thread_at_end[i], memory_order_acquire);
        if (function) function(slot);
    }
    lochi_thread_slot_plus_one = LOCHI_SLOT_SHARED + 1; /* later destructors use the shared slot */
    lochi_lock_take(&thread_lock);
    thread_free_slots[slot / 64] |= (uint64_t)1 << (slot % 64);
    lochi_lock_drop(&thread_lock);
}

static void thread_make_key(void)
{
    thread_has_key = pthread_key_create(&thread_key, thread_give_slot_back) == 0;
}

/* Forgets the other threads in the child of a fork: their marks, then their slots. */
static void thread_forked(void)
{
    lochi_hazard_forked();
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++) {
        const uint64_t bit = (uint64_t)1 << (slot % 64);
        thread_lost_slots[slot / 64] &= ~bit;
        if (slot + 1 == lochi_thread_slot_plus_one || thread_free_slots[slot / 64] & bit) continue;
        thread_lost_slots[slot / 64] |= bit;
        thread_free_slots[slot / 64] |= bit;
    }
}

/* First, so that the other parts find the slots of the child. */
static lochi_fork_part thread_part = {.child = thread_forked, .is_first = true};

/* Takes the lowest free slot; the shared slot if none is free. */
static uint32_t thread_find_slot(void)
{
    lochi_lock_assert_held(&thread_lock);
    for (uint32_t word = 0; word < LOCHI_SLOT_COUNT / 64; word++) {
        if (!thread_free_slots[word]) continue;
        const uint32_t bit = (uint32_t)__builtin_ctzll(thread_free_slots[word]);
        thread_free_slots[word] &= thread_free_slots[word] - 1;
        const uint32_t slot = word * 64 + bit;
        if (slot >= atomic_load_explicit(&lochi_thread_slots_top, memory_order_relaxed))
            atomic_store_explicit(&lochi_thread_slots_top, slot + 1, memory_order_relaxed);
        return slot;
    }
    return LOCHI_SLOT_SHARED;
}

uint32_t lochi_thread_slot_take(void)
{
    lochi_fork_add(&thread_part);
    pthread_once(&thread_once, thread_make_key);
    uint32_t slot = LOCHI_SLOT_SHARED;
    if (thread_has_key) {
        lochi_lock_take(&thread_lock);
        slot = thread_find_slot();
        lochi_lock_drop(&thread_lock);
    }
    if (slot != LOCHI_SLOT_SHARED && pthread_setspecific(thread_key, (void *)(uintptr_t)(slot + 1)) != 0) {
        thread_give_slot_back((void *)(uintptr_t)(slot + 1));
        return LOCHI_SLOT_SHARED;
    }
    lochi_thread_slot_plus_one = slot + 1;
    return slot;
}

void lochi_thread_visit_lost(void (*function)(uint32_t slot))
{
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++)
        if (thread_lost_slots[slot / 64] >> (slot % 64) & 1) function(slot);
}

uint64_t lochi_thread_number_take(void)
{
    lochi_thread_own_number = atomic_fetch_add_explicit(&thread_last_number, 1, memory_order_relaxed) + 1;
    return lochi_thread_own_number;
}
