/* SPDX-License-Identifier: MIT */
/* The table of all ranges that the process allocated from drivers, by address.
 *
 * Three ordered maps under one lock: memory (raw blocks and mappings; disjoint), reservations (mappings lie inside
 * them), registrations (of callers' memory, which may overlap CPU memory). Raw blocks, reservations and registrations
 * hold a reference on their device; a mapping lies inside a reservation, which cannot end before it. No driver is
 * called under the lock. */
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

/* A pool that hands out parts of a range. Copies and fills ask it whether bytes lie in one allocated block. `check`
 * is called from any thread without a lock and must take no lock. The tenant is valid as long as the range. */
typedef struct lochi_tenant lochi_tenant;
struct lochi_tenant {
    /* Returns LOCH_OK, or E_OUT_OF_RANGE with a sentence in which `what` names the bytes. */
    loch_status (*check)(const lochi_tenant *tenant, uintptr_t start, size_t bytes, const char *what);
    /* Writes what an address belongs to, for people: the block, its tag, the pool. Called with the lock of the table
     * held; it may try locks. */
    void (*describe)(const lochi_tenant *tenant, uintptr_t address, char *text, size_t bytes);
};

typedef struct lochi_range {
    lochi_tree_node node; /* key: the first address */
    size_t bytes;
    loch_device *device;
    lochi_range_type type;
    loch_memory_kind kind;
    loch_handle *handle;        /* of LOCHI_RANGE_MAPPING */
    const lochi_tenant *tenant; /* NULL: the caller that allocated the range uses all of it */
    bool is_hidden;             /* not usable yet, or no longer: visitors do not see it */
    bool is_going;              /* a thread is giving it back */
} lochi_range;

static inline uintptr_t lochi_range_start(const lochi_range *range)
{
    return range->node.key;
}

static inline uintptr_t lochi_range_end(const lochi_range *range)
{
    return range->node.key + range->bytes;
}

/* Guards the table; LOCHI_RANK_RANGES. The functions below need it held unless they say otherwise. */
extern lochi_lock lochi_ranges_mutex;

void lochi_ranges_lock(void);
void lochi_ranges_unlock(void);

/* Find the range of one map that holds `address`; NULL if there is no such range. */
lochi_range *lochi_ranges_find_memory(uintptr_t address);
lochi_range *lochi_ranges_find_reservation(uintptr_t address);
lochi_range *lochi_ranges_find_registration(uintptr_t address);

/* Finds the first raw block or mapping that overlaps [start, end); NULL if there is no such range. */
lochi_range *lochi_ranges_first_memory(uintptr_t start, uintptr_t end);

/* Inserts a range into the map of its type. Returns false and inserts nothing if it overlaps another range of that
 * map. */
bool lochi_ranges_insert(lochi_range *range);

void lochi_ranges_remove(lochi_range *range);

/* Sets the tenant of the reservation or raw block at `address`, before another thread can use the address; NULL
 * removes it. Takes the lock. Mappings in a reservation have its tenant. */
void lochi_ranges_let(const void *address, const lochi_tenant *tenant);

/* Writes what an address belongs to, for people: a block of a pool, or a range of a device; "" if it is not known.
 * Takes the lock, and asks no driver. */
void lochi_ranges_describe(const void *address, char *text, size_t bytes);

/* Lists all usable memory, raw blocks and mappings, of one device, or of all devices if
 * `device` is NULL. Returns their number; the first `capacity` are in `out`. */
size_t lochi_ranges_list(const loch_device *device, loch_range *out, size_t capacity);

/* Location of [address, address + bytes) in the table or in a driver. */
typedef struct lochi_place {
    loch_device *device;        /* NULL for plain host memory */
    loch_memory_kind kind;      /* kind of the first byte */
    bool is_apart;              /* a separate block: memory adjacent to its end belongs to another block */
    uintptr_t start;            /* start of the piece with the first byte; `address` if unknown */
    size_t bytes;               /* length of that piece; 0 if unknown */
    const lochi_tenant *tenant; /* decides which bytes of the piece may be touched; NULL: all */
} lochi_place;

/* A promise of the calling thread, from begin to end: the bytes are plain host memory unless the table has them, so no
 * driver is asked about them. For memory that Loch allocated for itself, and for memory of a caller that drivers were
 * asked about and that the caller holds for Loch since. An answer of a driver must not be kept longer: another library
 * can free the memory and give its addresses to a device. Scopes nest; the struct is the caller's until the end. */
typedef struct lochi_host_scope {
    const struct lochi_host_scope *outer;
    uintptr_t start;
    size_t bytes; /* 0: the scope promises nothing */
} lochi_host_scope;

void lochi_ranges_begin_host(lochi_host_scope *scope, const void *address, size_t bytes);
void lochi_ranges_end_host(const lochi_host_scope *scope);

/* Locates a range. Takes the lock. Asks drivers about memory that is not in the table, each driver once if it answers
 * for all of its devices. E_OUT_OF_RANGE: part of the range is not memory, although its start or its
 * reservation is known. E_NOT_FOUND: its start is reserved and nothing is mapped there. */
loch_status lochi_ranges_locate(const void *address, size_t bytes, lochi_place *out);

#endif
