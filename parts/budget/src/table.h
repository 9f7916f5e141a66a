/* SPDX-License-Identifier: MIT */
/* The slots of a budget's file. All functions are called with the file's lock (table.c). */
#ifndef BUDGET_TABLE_H
#define BUDGET_TABLE_H

#include "file.h"
#include "process.h"

/* Reads the file and checks its head. E_CORRUPT, E_UNSUPPORTED, E_IO. */
loch_status lochi_budget_table_read(const budget_file *file, budget_table *table);

/* Frees the slots of processes that have died, in the file and in the table. Returns their number. */
size_t lochi_budget_table_reap(const budget_file *file, const budget_process *self, budget_table *table);

/* Enters a slot in the file and in the table. E_LIMIT: all are taken. */
loch_status lochi_budget_table_enter(const budget_file *file, budget_table *table, const budget_slot *slot,
                                     size_t *index);

/* Frees a slot of this process in the file, and wakes those that wait for memory. */
void lochi_budget_table_leave(const budget_file *file, size_t index);

/* Returns whether any slot is taken. */
bool lochi_budget_table_is_taken(const budget_table *table);

/* Marks the file as removed, and removes its name. */
void lochi_budget_table_remove(const budget_file *file);

/* Writes a number of 8 bytes. */
loch_status lochi_budget_table_put(const budget_file *file, size_t place, uint64_t value);

#endif
