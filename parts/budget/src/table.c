/* SPDX-License-Identifier: MIT */
/* Each change of the file has one write that commits it. A process may die between any two writes: a slot is free until
 * its kind is written, and a file without a taken slot is as good as none. */
#include "table.h"
#include "kit/fail.h"
#include <string.h>

loch_status lochi_budget_table_read(const budget_file *file, budget_table *table)
{
    loch_status status = lochi_budget_file_read_head(file, &table->head);
    if (status == LOCH_OK && table->head.high)
        status =
            lochi_budget_file_read(file, sizeof table->head, table->slots, table->head.high * sizeof *table->slots);
    for (size_t i = 0; status == LOCH_OK && i < table->head.high; i++) { /* texts of a broken process may not end */
        budget_slot *slot = &table->slots[i];
        slot->name[sizeof slot->name - 1] = slot->program[sizeof slot->program - 1] =
            slot->device[sizeof slot->device - 1] = '\0';
    }
    return status;
}

loch_status lochi_budget_table_put(const budget_file *file, size_t place, uint64_t value)
{
    return lochi_budget_file_write(file, place, &value, sizeof value);
}

static bool table_is_dead(const budget_file *file, const budget_process *self, const budget_slot *slot, size_t index)
{
    const budget_process owner = {slot->pid, slot->start, slot->space, slot->image};
    const budget_life life = lochi_budget_process_look(self, &owner);
    if (life == BUDGET_UNKNOWN || life == BUDGET_RUNNING) return !lochi_budget_file_is_marked(file, index);
    return life == BUDGET_DEAD;
}

static bool table_free(const budget_file *file, size_t index)
{
    const uint32_t kind = BUDGET_SLOT_FREE;
    return lochi_budget_file_write(file, BUDGET_PLACE(index, kind), &kind, sizeof kind) == LOCH_OK;
}

size_t lochi_budget_table_reap(const budget_file *file, const budget_process *self, budget_table *table)
{
    size_t count = 0;
    for (size_t i = 0; i < table->head.high; i++) {
        budget_slot *slot = &table->slots[i];
        if (slot->kind == BUDGET_SLOT_FREE || !table_is_dead(file, self, slot, i)) continue;
        if (!table_free(file, i)) continue;
        slot->kind = BUDGET_SLOT_FREE;
        count++;
    }
    if (count) lochi_budget_file_ring(file, offsetof(budget_head, bell));
    return count;
}

/* Finds a free slot. The mark of a free slot can still be held by a copy of its old owner. */
static size_t table_find_free(const budget_file *file, const budget_table *table)
{
    for (size_t i = 0; i < BUDGET_SLOTS; i++)
        if ((i >= table->head.high || table->slots[i].kind == BUDGET_SLOT_FREE) &&
            !lochi_budget_file_is_marked(file, i))
            return i;
    return BUDGET_SLOTS;
}

loch_status lochi_budget_table_enter(const budget_file *file, budget_table *table, const budget_slot *slot,
                                     size_t *index)
{
    const size_t i = table_find_free(file, table);
    budget_slot entry = *slot;
    if (i == BUDGET_SLOTS)
        return LOCH_FAIL(LIMIT, "budget \"%s\" has %d seats and members, and no room for more", table->head.name,
                         BUDGET_SLOTS);
    loch_status status = lochi_budget_file_mark(file, i, true);
    if (status != LOCH_OK) return status;
    entry.kind = BUDGET_SLOT_FREE;
    status = lochi_budget_file_write(file, BUDGET_PLACE(i, kind), &entry, sizeof entry);
    if (status == LOCH_OK && i >= table->head.high) {
        const uint32_t high = (uint32_t)i + 1;
        status = lochi_budget_file_write(file, offsetof(budget_head, high), &high, sizeof high);
        if (status == LOCH_OK) table->head.high = high;
    }
    if (status == LOCH_OK)
        status = lochi_budget_file_write(file, BUDGET_PLACE(i, kind), &slot->kind, sizeof slot->kind);
    if (status != LOCH_OK) {
        (void)lochi_budget_file_mark(file, i, false);
        return status;
    }
    table->slots[i] = *slot;
    *index = i;
    return LOCH_OK;
}

void lochi_budget_table_leave(const budget_file *file, size_t index)
{
    (void)table_free(file, index);
    (void)lochi_budget_file_mark(file, index, false);
    lochi_budget_file_ring(file, offsetof(budget_head, bell));
}

bool lochi_budget_table_is_taken(const budget_table *table)
{
    for (size_t i = 0; i < table->head.high; i++)
        if (table->slots[i].kind != BUDGET_SLOT_FREE) return true;
    return false;
}

void lochi_budget_table_remove(const budget_file *file)
{
    const uint32_t removed = BUDGET_FILE_REMOVED;
    if (lochi_budget_file_write(file, offsetof(budget_head, state), &removed, sizeof removed) == LOCH_OK)
        lochi_budget_file_unlink(file);
}
