/* SPDX-License-Identifier: MIT */
#include "text.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEXT_REST_BYTES 32 /* room for ", N more" */

/* Finds the member with the largest grant that is not `done`; BUDGET_SLOTS for none. */
static size_t text_find_next(const budget_table *table, const bool *done)
{
    size_t found = BUDGET_SLOTS;
    for (size_t i = 0; i < table->head.high; i++) {
        const budget_slot *slot = &table->slots[i];
        if (done[i] || slot->kind != BUDGET_SLOT_MEMBER) continue;
        if (found == BUDGET_SLOTS || slot->granted > table->slots[found].granted) found = i;
    }
    return found;
}

void lochi_budget_text_holders(const budget_table *table, char *text, size_t bytes)
{
    bool done[BUDGET_SLOTS] = {false};
    size_t length = 0, left = 0;
    *text = '\0';
    for (size_t i = 0; i < table->head.high; i++)
        left += table->slots[i].kind == BUDGET_SLOT_MEMBER;
    for (size_t i; left && (i = text_find_next(table, done)) != BUDGET_SLOTS; left--) {
        char one[128];
        const budget_slot *slot = &table->slots[i];
        const size_t add = (size_t)snprintf(one, sizeof one, "%s\"%.24s\" (pid %lld) %s", length ? ", " : "",
                                            slot->name, (long long)slot->pid, LOCHI_SIZE(slot->granted));
        if (length + add + TEXT_REST_BYTES > bytes) break;
        memcpy(text + length, one, add + 1);
        length += add;
        done[i] = true;
    }
    if (left) snprintf(text + length, bytes - length, "%s%zu more", length ? ", " : "", left);
}
