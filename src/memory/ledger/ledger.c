/* SPDX-License-Identifier: MIT */
/* Entries of a ledger: adding, taking out, finding. These functions run at every allocation and free, so rare cases
 * are in functions of their own. */
#include "memory/ledger/ledger.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "memory/ledger/directory.h"
#include "memory/ledger/figures.h"
#include "memory/ledger/slot.h"
#include "memory/ledger/stop.h"

/* --- creating and destroying --- */

loch_status lochi_ledger_create(lochi_ledger **out)
{
    *out = NULL;
    void *memory;
    lochi_fence_prepare();
    lochi_ledger *ledger = lochi_ledger_alloc_aligned(sizeof *ledger, &memory);
    if (ledger && !lochi_ledger_directory_init(ledger)) {
        lochi_free(memory);
        ledger = NULL;
    }
    if (!ledger) return LOCH_FAIL(HOST_MEMORY, "no host memory to keep account of blocks");
    ledger->memory = memory;
    ledger->shared.is_shared = true;
    atomic_flag_clear_explicit(&ledger->shared.is_locked, memory_order_relaxed);
    lochi_lock_init(&ledger->lock, LOCHI_RANK_NONE);
    lochi_ledger_enter_forks(ledger);
    *out = ledger;
    return LOCH_OK;
}

void lochi_ledger_set_owner(lochi_ledger *ledger, const void *owner)
{
    ledger->owner = owner;
}

void lochi_ledger_destroy(lochi_ledger *ledger)
{
    if (!ledger) return;
    lochi_fork_leave(&ledger->in_forks);
    lochi_ledger_directory_fini(ledger);
    lochi_ledger_slots_fini(ledger);
    for (size_t i = 0; i < LOCH_TAG_COUNT_MAX / LOCHI_LEDGER_TAG_CHUNK; i++)
        lochi_free(atomic_load_explicit(&ledger->tags[i], memory_order_relaxed));
    lochi_lock_fini(&ledger->lock);
    lochi_free(ledger->memory);
}

/* --- coming in --- */

static uint64_t ledger_next_id(lochi_ledger *ledger)
{
    return atomic_fetch_add_explicit(&ledger->last_id, 1, memory_order_relaxed) + 1;
}

/* Finds the place for a new entry: an empty place, or the mark of a freed block. E_DRIVER: a live entry is there.
 * The group is locked. */
static inline loch_status ledger_find_room(lochi_group *group, uint32_t key, size_t *at)
{
    for (;;) {
        *at = lochi_group_seek(group, key);
        const uint32_t word = group->words[*at];
        if (LOCHI_LIKELY(word & LOCHI_WORD_FREED)) return LOCH_OK;
        if (word) return LOCH_E_DRIVER;
        if (lochi_group_has_room(group, key, *at)) return LOCH_OK;
        if (!lochi_group_rebuild(group)) return LOCH_E_HOST_MEMORY;
    }
}

/* Writes an entry to a place that ledger_find_room found. The group is locked. */
static inline loch_status ledger_write(lochi_group *group, size_t at, uint32_t key, const lochi_entry *entry,
                                       uint64_t id)
{
    const bool was_empty = !group->words[at];
    if (LOCHI_LIKELY(!id && lochi_group_is_simple(group, entry)))
        lochi_group_write_simple(group, at, key, entry->requested);
    else if (!lochi_group_write(group, at, entry, id))
        return LOCH_E_HOST_MEMORY;
    group->used += was_empty;
    return LOCH_OK;
}

/* Creates the group for a new block and enters the ledger again. Returns NULL without memory; the thread is then not
 * inside. */
static LOCHI_RARE lochi_ledger_slot *ledger_enter_with_group(lochi_ledger *ledger, lochi_ledger_slot *slot,
                                                             uintptr_t address, uint16_t tag, lochi_group **group)
{
    while (!*group) { /* a new group may be dropped again while it has no live block */
        lochi_ledger_leave(slot);
        if (!lochi_ledger_make_group(ledger, address, tag)) return NULL;
        slot = lochi_ledger_enter(ledger);
        *group = lochi_ledger_group_of(ledger, address);
    }
    return slot;
}

/* Adds an entry. Always inlined, because callers know parts of the entry at compile time. */
static inline __attribute__((always_inline)) loch_status ledger_insert(lochi_ledger *ledger, const lochi_entry *entry,
                                                                       uint64_t id, bool is_new)
{
    lochi_ledger_slot *slot = lochi_ledger_enter(ledger);
    lochi_group *group = lochi_ledger_group_of(ledger, entry->address);
    if (LOCHI_UNLIKELY(!group)) {
        slot = ledger_enter_with_group(ledger, slot, entry->address, entry->tag, &group);
        if (!slot) return LOCH_E_HOST_MEMORY;
    }
    const uint32_t key = lochi_group_key(entry->address);
    size_t at;
    lochi_ledger_lock(&group->is_locked);
    loch_status status = ledger_find_room(group, key, &at);
    if (LOCHI_LIKELY(status == LOCH_OK)) status = ledger_write(group, at, key, entry, id);
    if (LOCHI_LIKELY(status == LOCH_OK)) {
        lochi_ledger_count_in(ledger, slot, entry->requested, entry->allocated, is_new);
        if (entry->tag) lochi_ledger_count_tag(ledger, entry, 1, is_new);
    }
    lochi_ledger_unlock(&group->is_locked);
    lochi_ledger_leave(slot);
    return status;
}

static LOCHI_RARE loch_status ledger_refuse(uintptr_t address, loch_status status)
{
    if (status == LOCH_E_DRIVER) return LOCH_FAIL(DRIVER, "there is a live block at %p already", (void *)address);
    return LOCH_FAIL(HOST_MEMORY, "no host memory to keep account of blocks");
}

loch_status lochi_ledger_add(lochi_ledger *ledger, const lochi_entry *entry, uint64_t *id)
{
    if (id) *id = ledger_next_id(ledger);
    if (entry->allocated != entry->requested && !lochi_ledger_has_slack(ledger)) lochi_ledger_begin_slack(ledger);
    const loch_status status = ledger_insert(ledger, entry, id ? *id : 0, true);
    return LOCHI_LIKELY(status == LOCH_OK) ? LOCH_OK : ledger_refuse(entry->address, status);
}

loch_status lochi_ledger_add_simple(lochi_ledger *ledger, const void *address, size_t bytes, loch_tag tag)
{
    const lochi_entry entry = {
        .address = (uintptr_t)address, .requested = bytes, .allocated = bytes, .tag = (uint16_t)tag};
    const loch_status status = ledger_insert(ledger, &entry, 0, true);
    return LOCHI_LIKELY(status == LOCH_OK) ? LOCH_OK : ledger_refuse((uintptr_t)address, status);
}

/* --- wrong addresses --- */

/* Searches all groups for a live block that contains `address`. Slow; called for wrong addresses only. */
static bool ledger_is_interior(lochi_ledger *ledger, uintptr_t address, lochi_entry *out)
{
    bool is_found = false;
    lochi_lock_take(&ledger->lock);
    for (size_t i = 0; i < lochi_ledger_directory_size(ledger) && !is_found; i++) {
        lochi_group *group = ledger->directory[i].group;
        if (!group) continue;
        lochi_ledger_lock(&group->is_locked);
        for (size_t at = 0; at < group->count && !is_found; at++) {
            if (!lochi_word_is_live(group->words[at])) continue;
            lochi_group_read(group, at, out);
            is_found = address > out->address && address - out->address < out->allocated;
        }
        lochi_ledger_unlock(&group->is_locked);
    }
    lochi_lock_drop(&ledger->lock);
    return is_found;
}

/* Returns the error for an address without a live block. */
static LOCHI_RARE loch_status ledger_explain(lochi_ledger *ledger, uintptr_t address, bool is_freed)
{
    lochi_entry around = {.address = 0};
    if (ledger_is_interior(ledger, address, &around))
        return LOCH_FAIL(INTERIOR, "%p lies %zu bytes inside the block of %s at %p", (void *)address,
                         (size_t)(address - around.address), LOCHI_SIZE(around.requested), (void *)around.address);
    if (is_freed) return LOCH_FAIL(DOUBLE_FREE, "the block at %p was freed before", (void *)address);
    return LOCH_FAIL(FOREIGN, "%p was not handed out by this allocator", (void *)address);
}

/* Returns the error for a block that could not be taken out: there is no live block, or its size is different. */
static LOCHI_RARE loch_status ledger_refuse_take(lochi_ledger *ledger, uintptr_t address, uint32_t word, size_t bytes,
                                                 const lochi_entry *found)
{
    if (!lochi_word_is_live(word)) return ledger_explain(ledger, address, word != 0);
    return LOCH_FAIL(INVALID, "the block at %p has %zu bytes, not %zu", (void *)address, found->requested, bytes);
}

/* --- going out --- */

loch_status lochi_ledger_take(lochi_ledger *ledger, const void *address, size_t bytes, lochi_entry *out)
{
    const uintptr_t start = (uintptr_t)address;
    bool is_taken = false;
    uint32_t word = 0;
    lochi_ledger_slot *slot = lochi_ledger_enter(ledger);
    lochi_group *group = lochi_ledger_group_of(ledger, start);
    if (LOCHI_LIKELY(group != NULL)) {
        lochi_ledger_lock(&group->is_locked);
        const size_t at = lochi_group_seek(group, lochi_group_key(start));
        word = group->words[at];
        if (LOCHI_LIKELY(lochi_word_is_live(word))) {
            lochi_group_read(group, at, out);
            is_taken = !bytes || bytes == out->requested;
            if (LOCHI_LIKELY(is_taken)) {
                group->words[at] = word | LOCHI_WORD_FREED;
                lochi_ledger_count_out(ledger, slot, out->requested, out->allocated);
                if (out->tag) lochi_ledger_count_tag(ledger, out, -1, false);
            }
        }
        lochi_ledger_unlock(&group->is_locked);
    }
    lochi_ledger_leave(slot);
    return LOCHI_LIKELY(is_taken) ? LOCH_OK : ledger_refuse_take(ledger, start, word, bytes, out);
}

void lochi_ledger_put_back(lochi_ledger *ledger, const lochi_entry *entry)
{
    const loch_status status = ledger_insert(ledger, entry, entry->id, false);
    (void)status; /* fails only if the mark was dropped, its place was filled since, and there is no memory */
}

/* Takes the block out and puts it back. A larger size counts as a request, for the largest one. */
void lochi_ledger_resize(lochi_ledger *ledger, const void *address, size_t bytes)
{
    lochi_entry entry;
    if (lochi_ledger_take(ledger, address, 0, &entry) != LOCH_OK) return;
    const bool is_larger = bytes > entry.requested;
    entry.requested = entry.allocated = bytes;
    lochi_ledger_put_back(ledger, &entry);
    if (!is_larger) return;
    lochi_ledger_slot *slot = lochi_ledger_enter(ledger);
    lochi_ledger_note_largest(ledger, slot, entry.tag, bytes);
    lochi_ledger_leave(slot);
}

/* --- questions --- */

/* Returns the group of a live block, locked, and the block's place. Returns NULL if no block is live there;
 * `is_freed` then says whether there is a mark. The caller is inside the ledger. */
static lochi_group *ledger_lock_live(lochi_ledger *ledger, uintptr_t address, size_t *at, bool *is_freed)
{
    *is_freed = false;
    lochi_group *group = lochi_ledger_group_of(ledger, address);
    if (!group) return NULL;
    lochi_ledger_lock(&group->is_locked);
    *at = lochi_group_seek(group, lochi_group_key(address));
    if (lochi_word_is_live(group->words[*at])) return group;
    *is_freed = group->words[*at] != 0;
    lochi_ledger_unlock(&group->is_locked);
    return NULL;
}

/* Reads a live entry, and gives it an id if it has no id yet. Returns false without memory. The group is locked. */
static bool ledger_read_named(lochi_ledger *ledger, lochi_group *group, size_t at, lochi_entry *out)
{
    lochi_group_read(group, at, out);
    if (out->id) return true;
    out->id = ledger_next_id(ledger);
    return lochi_group_write(group, at, out, out->id);
}

loch_status lochi_ledger_find(lochi_ledger *ledger, const void *address, lochi_entry *out)
{
    size_t at;
    bool is_freed, is_named = true;
    lochi_ledger_slot *slot = lochi_ledger_enter(ledger);
    lochi_group *group = ledger_lock_live(ledger, (uintptr_t)address, &at, &is_freed);
    if (group) {
        is_named = ledger_read_named(ledger, group, at, out);
        lochi_ledger_unlock(&group->is_locked);
    }
    lochi_ledger_leave(slot);
    if (!is_named) out->id = 0; /* wrappers call this on the path of a free, which must not need memory */
    return group ? LOCH_OK : ledger_explain(ledger, (uintptr_t)address, is_freed);
}

bool lochi_ledger_has(lochi_ledger *ledger, const void *address)
{
    size_t at;
    bool is_freed;
    lochi_ledger_slot *slot = lochi_ledger_enter(ledger);
    lochi_group *group = ledger_lock_live(ledger, (uintptr_t)address, &at, &is_freed);
    if (group) lochi_ledger_unlock(&group->is_locked);
    lochi_ledger_leave(slot);
    return group != NULL;
}

loch_status lochi_ledger_set_note(lochi_ledger *ledger, const void *address, uint8_t note)
{
    size_t at;
    bool is_freed, is_written = true;
    lochi_ledger_slot *slot = lochi_ledger_enter(ledger);
    lochi_group *group = ledger_lock_live(ledger, (uintptr_t)address, &at, &is_freed);
    if (group) {
        lochi_entry entry;
        lochi_group_read(group, at, &entry);
        entry.note = note;
        is_written = lochi_group_write(group, at, &entry, entry.id);
        lochi_ledger_unlock(&group->is_locked);
    }
    lochi_ledger_leave(slot);
    if (!is_written) return LOCH_FAIL(HOST_MEMORY, "no host memory for a note on the block at %p", address);
    return group ? LOCH_OK : ledger_explain(ledger, (uintptr_t)address, is_freed);
}

static loch_status ledger_walk_group(lochi_ledger *ledger, lochi_group *group,
                                     loch_status (*visit)(const lochi_entry *entry, void *user), void *user)
{
    loch_status status = LOCH_OK;
    lochi_ledger_lock(&group->is_locked);
    for (size_t at = 0; at < group->count && status == LOCH_OK; at++) {
        if (!lochi_word_is_live(group->words[at])) continue;
        lochi_entry entry;
        if (ledger_read_named(ledger, group, at, &entry))
            status = visit(&entry, user);
        else
            status = LOCH_FAIL(HOST_MEMORY, "no host memory to give the block at %p an id", (void *)entry.address);
    }
    lochi_ledger_unlock(&group->is_locked);
    return status;
}

loch_status lochi_ledger_walk(lochi_ledger *ledger, loch_status (*visit)(const lochi_entry *entry, void *user),
                              void *user)
{
    loch_status status = LOCH_OK;
    lochi_lock_take(&ledger->lock);
    for (size_t i = 0; i < lochi_ledger_directory_size(ledger) && status == LOCH_OK; i++)
        if (ledger->directory[i].group) status = ledger_walk_group(ledger, ledger->directory[i].group, visit, user);
    lochi_lock_drop(&ledger->lock);
    return status;
}

void lochi_ledger_to_block(const lochi_entry *entry, loch_block *out)
{
    *out = (loch_block){.size = sizeof *out,
                        .address = (void *)entry->address,
                        .requested_bytes = entry->requested,
                        .allocated_bytes = entry->allocated,
                        .id = entry->id,
                        .tag = entry->tag};
}
