/* SPDX-License-Identifier: MIT */
/* Batches between threads: src/memory/pool/front/transfer.c.
 *
 * Givers leave batches, takers take them, one thread with the lock held drops single batches while the others go on,
 * and another one stops the gate and gives all batches back. Labels change by compare and exchange to HELD, and by a
 * store from there. The gate is that of gate.pml, with full fences. Promise: every batch is in one place only, what is
 * taken is complete, and no batch is held while the gate is stopped.
 *
 * mutations: NO_EXCHANGE NO_STOP LABEL_FIRST */
#define PLACES 2
#define GIVERS 2
#define TAKERS 1
#define BATCHES GIVERS

mtype = { EMPTY, HELD, FULL };
mtype label[PLACES] = EMPTY;
byte contents[PLACES]; /* number of a batch */
byte owners[BATCHES];  /* how many have each batch: threads, places, the pool */
byte gate;
bool busy[GIVERS + TAKERS];
bool is_locked;

inline take_lock() { atomic { !is_locked -> is_locked = true } }
inline drop_lock() { is_locked = false }

/* Sets `is_held` if the label was `old`, and is HELD now. */
#ifdef NO_EXCHANGE
#define HOLD(place, old) \
    is_held = label[place] == old; \
    if \
    :: is_held -> label[place] = HELD \
    :: else \
    fi
#else
#define HOLD(place, old) \
    atomic { \
        is_held = label[place] == old; \
        if \
        :: is_held -> label[place] = HELD \
        :: else \
        fi \
    }
#endif

/* Takes what is in a place that is held. */
inline empty_place(place, batch)
{
    batch = contents[place];
    assert(batch > 0);
    contents[place] = 0;
    label[place] = EMPTY;
    assert(owners[batch - 1] == 1)
}

inline give(batch)
{
    byte place;
    for (place : 0 .. PLACES - 1) {
        if
        :: batch > 0 ->
            HOLD(place, EMPTY);
            if
            :: is_held ->
#ifdef LABEL_FIRST
                label[place] = FULL;
                contents[place] = batch;
#else
                assert(contents[place] == 0);
                contents[place] = batch;
                label[place] = FULL;
#endif
                batch = 0
            :: else
            fi
        :: else
        fi
    }
}

inline take(batch)
{
    byte at;
    for (at : 0 .. PLACES - 1) {
        if
        :: batch == 0 ->
            HOLD(at, FULL);
            if
            :: is_held -> empty_place(at, batch)
            :: else
            fi
        :: else
        fi
    }
}

/* A thread with the lock held that has a batch gives it back to the pool. */
inline end_batch(batch)
{
    if
    :: batch > 0 ->
        owners[batch - 1]--;
        assert(owners[batch - 1] == 0);
        batch = 0
    :: else
    fi
}

inline enter(i, is_in)
{
    busy[i] = true;
    is_in = gate == 0;
    if
    :: !is_in -> busy[i] = false
    :: else
    fi
}

proctype giver(byte i)
{
    bool is_in, is_held;
    byte mine = i + 1;
    owners[i] = 1;
    enter(i, is_in);
    if
    :: is_in -> give(mine); busy[i] = false
    :: else
    fi;
    take_lock(); /* without a place, the batch goes back to the pool */
    end_batch(mine);
    drop_lock()
}

proctype taker(byte i)
{
    bool is_in, is_held;
    byte mine;
    enter(i, is_in);
    if
    :: is_in -> take(mine); busy[i] = false
    :: else
    fi;
    take_lock();
    end_batch(mine);
    drop_lock()
}

/* Gives one batch back, with the gate open: lochi_pool_open_transfer. */
proctype dropper()
{
    bool is_held;
    byte mine;
    take_lock();
    take(mine);
    end_batch(mine);
    drop_lock()
}

/* Gives all batches back, with the gate stopped: lochi_pool_flush_transfers. */
proctype flusher()
{
    bool is_held;
    byte mine, i;
    take_lock();
    gate++;
#ifndef NO_STOP
    for (i : 0 .. GIVERS + TAKERS - 1) {
        !busy[i]
    }
#endif
    for (i : 0 .. PLACES - 1) {
        assert(label[i] != HELD);
        if
        :: label[i] == FULL ->
            label[i] = HELD;
            empty_place(i, mine);
            end_batch(mine)
        :: else
        fi
    }
    for (i : 0 .. PLACES - 1) {
        assert(label[i] == EMPTY)
    }
    gate--;
    drop_lock()
}

init
{
    byte i;
    atomic {
        for (i : 0 .. GIVERS - 1) {
            run giver(i)
        }
        for (i : GIVERS .. GIVERS + TAKERS - 1) {
            run taker(i)
        }
        run dropper();
        run flusher()
    }
}
