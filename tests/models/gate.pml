/* SPDX-License-Identifier: MIT */
/* The gate of a pool's fast path: src/memory/pool/front/fast.h (enter, exit) and src/memory/pool/front/gate.c (stop, go).
 *
 * A fast thread stores `busy`, crosses the light fence, which orders nothing on the processor, and reads the gate. Its
 * stores wait in a buffer and reach memory in order, at any time. A stopper holds the lock, closes the gate, crosses
 * the heavy fence, which empties the buffers of all threads, and waits until no thread is busy. Promise: a fast thread
 * is never in its cache while a stopper owns the caches, and the stopper sees all that was done there.
 *
 * mutations: NO_FENCE NO_AWAIT READ_FIRST */
#define FAST 2
#define ROUNDS 2
#define STOPS 2

mtype = { BUSY, DATA };

byte gate;
bool busy[FAST];
byte data[FAST]; /* of the caches, in memory */
byte made[FAST]; /* of the caches, as their threads see them */
bool inside[FAST];
bool is_locked, is_stopped;
chan buffer[FAST] = [6] of { mtype, byte };

inline take_lock() { atomic { !is_locked -> is_locked = true } }
inline drop_lock() { is_locked = false }

/* One change of a thread's own cache. */
inline change(i)
{
    assert(!is_stopped);
    made[i]++;
    buffer[i] ! DATA, made[i];
    assert(!is_stopped)
}

proctype drain(byte i)
{
    byte value;
end:
    do
    :: atomic { buffer[i] ? BUSY, value -> busy[i] = value }
    :: atomic { buffer[i] ? DATA, value -> data[i] = value }
    od
}

proctype fast(byte i)
{
    byte round;
    bool is_open;
    for (round : 1 .. ROUNDS) {
#ifdef READ_FIRST
        is_open = gate == 0;
        buffer[i] ! BUSY, 1;
#else
        buffer[i] ! BUSY, 1;
        is_open = gate == 0;
#endif
        if
        :: is_open ->
            inside[i] = true;
            change(i);
            inside[i] = false;
            buffer[i] ! BUSY, 0
        :: else ->
            buffer[i] ! BUSY, 0;
            take_lock();
            len(buffer[i]) == 0; /* taking a lock is a full fence */
            change(i);
            len(buffer[i]) == 0;
            drop_lock()
        fi
    }
}

proctype stopper()
{
    byte stop, i;
    for (stop : 1 .. STOPS) {
        take_lock();
        gate++;
#ifndef NO_FENCE
        for (i : 0 .. FAST - 1) {
            len(buffer[i]) == 0
        }
#endif
#ifndef NO_AWAIT
        for (i : 0 .. FAST - 1) {
            !busy[i]
        }
#endif
        is_stopped = true;
        for (i : 0 .. FAST - 1) {
            assert(!inside[i]);
            assert(data[i] == made[i])
        }
        is_stopped = false;
        gate--;
        drop_lock()
    }
}

init
{
    byte i;
    atomic {
        for (i : 0 .. FAST - 1) {
            run drain(i);
            run fast(i)
        }
        run stopper()
    }
}
