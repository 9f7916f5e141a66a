/* SPDX-License-Identifier: MIT */
/* The table of every range that the process took from a driver, by address.
 *
 * Three ordered maps under one lock: memory (raw blocks and mappings; disjoint), reservations (mappings lie inside
 * them), registrations (of callers' memory, which may lie over CPU memory). What is committed without a handle is a
 * bit for each granule of its reservation, made with the first commit, so that decommitting needs no memory. Raw
 * blocks, reservations and registrations hold a reference on their device; mappings live inside a reservation, which
 * cannot go before them. No driver is called under the lock. */
#ifndef LOCHI_RANGES_H
#define LOCHI_RANGES_H

#include "base/tree.h"
#include "device/device.h"
#include <loch/observer.h>

typedef enum lochi_range_type {
    LOCHI_RANGE_RAW,
    LOCHI_RANGE_MAPPING,
    LOCHI_RANGE_RESERVATION,
    LOCHI_RANGE_REGISTRATION
} lochi_range_type;

/* Who hands out parts of a range: a pool. Asked by copies and fills whether bytes lie in one part that is handed out;
 * any thread, without a lock, so `check` must take none. Lives as long as the range. */
typedef struct lochi_tenant lochi_tenant;
struct lochi_tenant {
    /* LOCH_OK, or E_OUT_OF_RANGE with a sentence, in which `what` names the bytes. */
    loch_status (*check)(const lochi_tenant *tenant, uintptr_t start, size_t bytes, const char *what);
};

typedef struct lochi_range {
    lochi_tree_node node; /* key: the first address */
    size_t bytes;
    loch_device *device;
    lochi_range_type type;
    loch_memory_kind kind;
    loch_handle *handle;        /* LOCHI_RANGE_MAPPING */
    uint64_t *committed;        /* LOCHI_RANGE_RESERVATION: a bit for each granule; NULL before the first commit */
    size_t committed_count;     /* bits that are set */
    const lochi_tenant *tenant; /* NULL: whoever took it has all of it */
    bool is_hidden;             /* not usable yet, or no longer: visitors do not hear of it */
    bool is_going;              /* somebody is giving it back */
} lochi_range;

static inline uintptr_t lochi_range_start(const lochi_range *range)
{
    return range->node.key;
}

static inline uintptr_t lochi_range_end(const lochi_range *range)
{
    return range->node.key + range->bytes;
}

/* Guards the table; LOCHI_RANK_RANGES. What is declared below needs it held, unless it says otherwise. */
extern lochi_lock lochi_ranges_mutex;

void lochi_ranges_lock(void);
void lochi_ranges_unlock(void);

/* Find the range of a map that holds `address`, or NULL. */
lochi_range *lochi_ranges_find_memory(uintptr_t address);
lochi_range *lochi_ranges_find_reservation(uintptr_t address);
lochi_range *lochi_ranges_find_registration(uintptr_t address);

/* Finds the first raw block or mapping that overlaps [start, end), or NULL. */
lochi_range *lochi_ranges_first_memory(uintptr_t start, uintptr_t end);

/* Finds the first run of committed granules of a reservation in [*start, *end), which lies in it: narrows the two to the run,
 * or returns false. */
bool lochi_ranges_first_committed(const lochi_range *reservation, uintptr_t *start, uintptr_t *end);

/* Finds the first run of granules that are not committed, in a reservation that has its bits: narrows the two to the
 * run, or returns false. */
bool lochi_ranges_first_uncommitted(const lochi_range *reservation, uintptr_t *start, uintptr_t *end);

/* Marks [start, end) of a reservation, whose bits exist. */
void lochi_ranges_set_committed(lochi_range *reservation, uintptr_t start, uintptr_t end, bool is_committed);

/* Enters a range, by its type; false, and nothing entered, when it overlaps another of its map. */
bool lochi_ranges_insert(lochi_range *range);

void lochi_ranges_remove(lochi_range *range);

/* Gives the reservation or raw block at `address` a tenant, before anybody else knows the address, or takes it away (NULL);
 * takes the lock itself. Mappings in a reservation have its tenant. */
void lochi_ranges_let(const void *address, const lochi_tenant *tenant);

/* Lists what is usable now: raw blocks, mappings and runs of committed granules, of one device or of all with NULL.
 * Returns how many there are; the first `capacity` are in `out`. */
size_t lochi_ranges_list(const loch_device *device, loch_range *out, size_t capacity);

/* What the table or a driver knows of [address, address + bytes). */
typedef struct lochi_place {
    loch_device *device;        /* NULL for plain host memory */
    loch_memory_kind kind;      /* of the first byte */
    bool is_apart;              /* a block by itself: what touches it behind its end is another's */
    uintptr_t start;            /* of the piece with the first byte; `address` when unknown */
    size_t bytes;               /* its length; 0 when unknown */
    const lochi_tenant *tenant; /* who says which bytes of the piece may be touched; NULL: all */
} lochi_place;

/* Finds where a range lies; takes the lock itself. E_OUT_OF_RANGE when part of it is not memory though its start or
 * reservation is known, E_NOT_FOUND when its start is reserved and nothing is there. */
loch_status lochi_ranges_locate(const void *address, size_t bytes, lochi_place *out);

#endif
