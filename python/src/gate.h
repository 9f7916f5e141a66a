/* SPDX-License-Identifier: MIT */
/* A gate guards the handle of an object that can be closed while other threads use it.
 *
 * A call enters the gate, uses the handle and leaves. Closing lets no further call in. The handle is given up exactly
 * once: by the close if no call is inside, otherwise by the last call that leaves. */
#ifndef LOCHPY_GATE_H
#define LOCHPY_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOCHPY_GATE_CLOSED (UINT64_C(1) << 63)

/* Number of calls inside, and LOCHPY_GATE_CLOSED. A gate with value 0 is open. */
typedef struct lochpy_gate {
    _Atomic uint64_t state;
} lochpy_gate;

/* Enters a gate. Returns false if it is closed. */
static inline bool lochpy_gate_enter(lochpy_gate *gate)
{
    uint64_t seen = atomic_load_explicit(&gate->state, memory_order_relaxed);
    do {
        if (seen & LOCHPY_GATE_CLOSED) return false;
    } while (!atomic_compare_exchange_weak_explicit(&gate->state, &seen, seen + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

/* Leaves a gate. Returns true if the caller has to give up the handle: the gate is closed and the call was the last. */
static inline bool lochpy_gate_leave(lochpy_gate *gate)
{
    return atomic_fetch_sub_explicit(&gate->state, 1, memory_order_acq_rel) == (LOCHPY_GATE_CLOSED | 1);
}

/* Closes a gate. Returns true if the caller has to give up the handle: the gate was open and no call is inside. */
static inline bool lochpy_gate_close(lochpy_gate *gate)
{
    return atomic_fetch_or_explicit(&gate->state, LOCHPY_GATE_CLOSED, memory_order_acq_rel) == 0;
}

/* Closes an open gate with no call inside. Returns false, and changes nothing, otherwise. */
static inline bool lochpy_gate_try_close(lochpy_gate *gate)
{
    uint64_t none = 0;
    return atomic_compare_exchange_strong_explicit(&gate->state, &none, LOCHPY_GATE_CLOSED, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* Opens a gate that lochpy_gate_try_close closed, because the handle could not be given up. */
static inline void lochpy_gate_reopen(lochpy_gate *gate)
{
    atomic_store_explicit(&gate->state, 0, memory_order_release);
}

/* Tells whether a gate is closed now. */
static inline bool lochpy_gate_is_closed(const lochpy_gate *gate)
{
    return atomic_load_explicit(&((lochpy_gate *)gate)->state, memory_order_acquire) & LOCHPY_GATE_CLOSED;
}

#endif
