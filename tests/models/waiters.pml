/* SPDX-License-Identifier: MIT */
/* Threads that wait for memory, and frees that wake them: src/memory/waiting.c, src/memory/life.c (life_take_back) and
 * the gate of a pool (src/memory/pool/front/gate.c, lochi_pool_shut_waiting).
 *
 * One thread frees a block of a pool, on the fast path into its cache if the gate is open, or with the lock. Another
 * one frees a block of an allocator without a lock of its own: the free is a store that may wait in a buffer, followed
 * by the light fence and a read of `waiters`. A third thread needs both blocks. It announces itself, closes the gate,
 * crosses the heavy fence, and sleeps until the generation changes after each attempt that fails. Promise: it does not
 * sleep forever. A model without time-outs ends in a deadlock if a wake-up is lost.
 *
 * mutations: NO_FENCE NO_GATE LATE_GENERATION */
#define NEEDED 2

byte waiters, generation, gate;
bool busy;
byte cached;  /* blocks in the cache of the fast thread */
byte in_pool; /* free blocks of the pool; under the lock */
byte elsewhere; /* free blocks of the other allocator, in memory */
bool is_locked;
chan buffer = [2] of { byte };

inline take_lock() { atomic { !is_locked -> is_locked = true } }
inline drop_lock() { is_locked = false }

/* Wakes threads that wait. A thread that sees the new generation sees the free: the change releases it. */
#define WAKE(is_visible) \
    if \
    :: waiters > 0 -> is_visible; generation++ \
    :: else \
    fi

proctype drain()
{
    byte value;
end:
    do
    :: atomic { buffer ? value -> elsewhere = value }
    od
}

/* The gate's own fences are in gate.pml. */
proctype pool_free()
{
    bool is_in;
    busy = true;
    is_in = gate == 0;
    if
    :: is_in ->
        cached++;
        busy = false
    :: else ->
        busy = false;
        take_lock();
        in_pool++;
        drop_lock();
        WAKE(true)
    fi
}

proctype other_free()
{
    buffer ! 1;
    /* the light fence does not empty the buffer */
    WAKE(len(buffer) == 0)
}

proctype waiter()
{
    byte seen;
    bool is_served = false;
    waiters++;
#ifndef NO_GATE
    take_lock();
    gate++;
    !busy;
    drop_lock();
#endif
#ifndef NO_FENCE
    len(buffer) == 0;
#endif
    do
    :: is_served -> break
    :: else ->
#ifndef LATE_GENERATION
        seen = generation;
#endif
        take_lock();
        in_pool = in_pool + cached; /* an attempt flushes the caches */
        cached = 0;
        is_served = in_pool + elsewhere >= NEEDED;
        drop_lock();
#ifdef LATE_GENERATION
        seen = generation;
#endif
        if
        :: is_served
        :: else -> generation != seen
        fi
    od;
    waiters--
}

init
{
    atomic {
        run drain();
        run pool_free();
        run other_free();
        run waiter()
    }
}
