/* SPDX-License-Identifier: MIT */
/* Figures of budgets and members, from a copy of the file without the slots of dead processes. */
#include "member.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include <stdlib.h>
#include <string.h>

/* Reads the file. A process that only looks reads without the lock if it cannot have it soon: the figures may be of two
 * moments then. */
static loch_status figures_read(loch_budget *budget, budget_table *table)
{
    budget_file *file = &budget->file;
    if (lochi_budget_state_is_forked(budget)) return lochi_budget_state_refuse();
    loch_status status =
        lochi_budget_file_lock(file, budget->is_looking ? BUDGET_PATIENCE_NS / 10 : BUDGET_PATIENCE_NS);
    const bool is_locked = status == LOCH_OK;
    if (status == LOCH_E_BUSY && budget->is_looking) status = LOCH_OK;
    if (status == LOCH_OK) status = lochi_budget_table_read(file, table);
    if (status == LOCH_OK && is_locked) (void)lochi_budget_table_reap(file, &budget->self, table);
    if (is_locked) lochi_budget_file_unlock(file);
    return status;
}

/* Reads the file into memory that the caller frees. */
static loch_status figures_take(loch_budget *budget, budget_table **out)
{
    LOCHI_NOT_CANCELLED;
    budget_table *table = calloc(1, sizeof *table);
    loch_status status =
        table ? figures_read(budget, table) : LOCH_FAIL(HOST_MEMORY, "no host memory to read a budget");
    if (status != LOCH_OK) {
        free(table);
        table = NULL;
    }
    *out = table;
    return status;
}

static loch_status figures_refuse(const char *what)
{
    return LOCH_FAIL(INVALID, "%s", what);
}

loch_status loch_budget_get_info(loch_budget *budget, loch_budget_info *out)
{
    budget_table *table;
    if (!budget || !out || !out->size) return figures_refuse("loch_budget_info.size is not set, or there is no budget");
    const loch_status status = figures_take(budget, &table);
    if (status != LOCH_OK) return status;
    const budget_sums sums = lochi_budget_rules_sum(table);
    loch_budget_info info = {.size = out->size,
                             .total_bytes = table->head.total,
                             .chunk_bytes = table->head.chunk,
                             .granted_bytes = sums.granted,
                             .promised_bytes = sums.promised,
                             .free_bytes = lochi_budget_rules_room(table)};
    memcpy(info.name, table->head.name, sizeof info.name);
    for (size_t i = 0; i < table->head.high; i++) {
        const budget_slot *slot = &table->slots[i];
        info.processes += slot->kind == BUDGET_SLOT_SEAT;
        if (slot->kind != BUDGET_SLOT_MEMBER) continue;
        info.members++;
        info.waiting += slot->wanted != 0;
        info.held_bytes = slot->held > UINT64_MAX - info.held_bytes ? UINT64_MAX : info.held_bytes + slot->held;
    }
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
    free(table);
    return LOCH_OK;
}

static loch_budget_member_info figures_of(const budget_table *table, size_t index)
{
    const budget_slot *slot = &table->slots[index];
    loch_budget_member_info info = {
        .size = sizeof info,
        .pid = slot->pid,
        .minimum_bytes = slot->minimum,
        .limit_bytes = slot->limit,
        .share_bytes = lochi_budget_rules_share(table, index),
        .granted_bytes = slot->granted,
        .held_bytes = slot->held,
        .used_bytes = slot->used,
        .borrowed_bytes = slot->granted > slot->minimum ? slot->granted - slot->minimum : 0,
        .wanted_bytes = slot->wanted,
        .asked_bytes = slot->asked,
        .weight = slot->weight,
    };
    memcpy(info.name, slot->name, sizeof info.name);
    memcpy(info.program, slot->program, sizeof info.program);
    memcpy(info.device, slot->device, sizeof info.device);
    return info;
}

loch_status loch_budget_member_get_info(loch_budget_member *member, loch_budget_member_info *out)
{
    budget_table *table;
    if (!member || !out || !out->size)
        return figures_refuse("loch_budget_member_info.size is not set, or there is no member");
    const loch_status status = figures_take(member->budget, &table);
    if (status != LOCH_OK) return status;
    loch_budget_member_info info = {.size = 0};
    if (member->index < table->head.high) info = figures_of(table, member->index);
    const size_t bytes = out->size;
    info.size = bytes;
    memcpy(out, &info, bytes < sizeof info ? bytes : sizeof info);
    free(table);
    return LOCH_OK;
}

loch_status loch_budget_walk_members(loch_budget *budget, loch_budget_member_visitor *visitor, void *user)
{
    budget_table *table;
    if (!budget || !visitor) return figures_refuse("a walk needs a budget and a visitor");
    loch_status status = figures_take(budget, &table);
    if (status != LOCH_OK) return status;
    for (size_t i = 0; status == LOCH_OK && i < table->head.high; i++) {
        if (table->slots[i].kind != BUDGET_SLOT_MEMBER) continue;
        const loch_budget_member_info info = figures_of(table, i);
        status = visitor(&info, user);
    }
    free(table);
    return status;
}
