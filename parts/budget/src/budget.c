/* SPDX-License-Identifier: MIT */
/* Opening and closing. Processes race to make the file and to remove it: one that opens it takes the lock, and tries
 * again if the file was removed meanwhile. */
#include "member.h"
#include "sweep.h"
#include "text.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET_TRIES 1000 /* to open a file that others make and remove at the same time */
#define BUDGET_WAIT_NS 200000000u
#define BUDGET_WAIT_MAX_NS (UINT64_MAX / 4) /* deadlines do not overflow */
#define BUDGET_CHUNK_PART 64
#define BUDGET_CHUNK_MAX ((uint64_t)1 << 30)
#define BUDGET_CHUNK_MIN ((uint64_t)64 << 10)

static budget_head budget_make_head(const budget_file *file, const loch_budget_options *options)
{
    budget_head head = {.version = BUDGET_VERSION,
                        .slot_bytes = sizeof(budget_slot),
                        .total = options->total_bytes,
                        .chunk = options->chunk_bytes,
                        .state = BUDGET_FILE_LIVE};
    memcpy(head.magic, BUDGET_MAGIC, sizeof head.magic);
    memcpy(head.name, file->name, sizeof head.name);
    if (!head.chunk) head.chunk = head.total / BUDGET_CHUNK_PART;
    if (head.chunk > BUDGET_CHUNK_MAX && !options->chunk_bytes) head.chunk = BUDGET_CHUNK_MAX;
    if (head.chunk < BUDGET_CHUNK_MIN) head.chunk = BUDGET_CHUNK_MIN;
    return head;
}

/* Makes the file. E_EXISTS: it is there already, or its folder went meanwhile. */
static loch_status budget_make(budget_file *file, const loch_budget_options *options)
{
    const budget_head head = budget_make_head(file, options);
    if (file->is_placed) lochi_budget_sweep(file->name);
    return lochi_budget_file_make(file, &head);
}

static void budget_fill_seat(const loch_budget *budget, budget_slot *slot)
{
    *slot = (budget_slot){.kind = BUDGET_SLOT_SEAT,
                          .pid = budget->self.pid,
                          .start = budget->self.start,
                          .space = budget->self.space,
                          .image = budget->self.image};
    snprintf(slot->program, sizeof slot->program, "%.15s", program_invocation_short_name);
}

/* Takes a seat in a file that is open. With its lock. E_EXISTS: the file was removed; it has no name any more. */
static loch_status budget_sit_in(loch_budget *budget, const loch_budget_options *options, budget_table *table)
{
    const budget_file *file = &budget->file;
    budget_slot seat;
    loch_status status = lochi_budget_table_read(file, table);
    if (status != LOCH_OK) return status;
    if (table->head.state == BUDGET_FILE_REMOVED || !lochi_budget_file_is_named(file)) {
        if (table->head.state == BUDGET_FILE_REMOVED)
            lochi_budget_file_unlink(file); /* its last process died meanwhile */
        return LOCH_E_EXISTS;
    }
    (void)lochi_budget_table_reap(file, &budget->self, table);
    if (!lochi_budget_table_is_taken(table)) { /* all have died: this process may make a new one */
        if (options->access == LOCH_BUDGET_LOOK) return LOCH_OK;
        if (options->total_bytes != table->head.total && options->total_bytes) {
            lochi_budget_table_remove(file);
            return LOCH_E_EXISTS;
        }
    }
    if (options->total_bytes && options->total_bytes != table->head.total)
        return LOCH_FAIL(EXISTS, "budget \"%s\" has %s, not %s", table->head.name, LOCHI_SIZE(table->head.total),
                         LOCHI_SIZE(options->total_bytes));
    if (options->access == LOCH_BUDGET_LOOK) return LOCH_OK;
    budget_fill_seat(budget, &seat);
    return lochi_budget_table_enter(file, table, &seat, &budget->seat);
}

/* Opens or makes the file, and takes a seat. Sets `is_again` if others made or removed it at the same time. */
static loch_status budget_try(loch_budget *budget, const loch_budget_options *options, budget_table *table,
                              bool *is_again)
{
    budget_file *file = &budget->file;
    loch_status status = lochi_budget_file_open(file);
    if (status == LOCH_E_NOT_FOUND && options->total_bytes && options->access == LOCH_BUDGET_JOIN) {
        status = budget_make(file, options);
        *is_again = status == LOCH_E_EXISTS;
    }
    if (status != LOCH_OK) return status;
    status = lochi_budget_file_lock(file, BUDGET_PATIENCE_NS);
    if (status == LOCH_OK) {
        const loch_error *error = loch_error_get();
        loch_error_clear();
        status = budget_sit_in(budget, options, table);
        *is_again = status == LOCH_E_EXISTS && error->status == LOCH_OK; /* a sentence: another total */
        lochi_budget_file_unlock(file);
    }
    if (status != LOCH_OK) lochi_budget_file_close(file);
    return status;
}

static loch_status budget_join(loch_budget *budget, const loch_budget_options *options)
{
    loch_status status = LOCH_E_BUSY;
    bool is_again = true;
    budget_table *table = malloc(sizeof *table);
    if (!table) return LOCH_FAIL(HOST_MEMORY, "no host memory to read a budget");
    for (int i = 0; i < BUDGET_TRIES && is_again; i++) {
        is_again = false;
        status = budget_try(budget, options, table, &is_again);
    }
    free(table);
    if (!is_again) return status;
    return LOCH_FAIL(BUSY, "budget file %s is made and removed without end", budget->file.path);
}

static loch_status budget_read_options(const loch_budget_options *options, loch_budget_options *out)
{
    *out = (loch_budget_options){.size = sizeof *out};
    LOCH_RETURN(lochi_sized_read("loch_budget_options", options, out, sizeof *out));
    if ((unsigned)out->access > LOCH_BUDGET_LOOK)
        return LOCH_FAIL(INVALID, "%d is not an access to a budget", (int)out->access);
    return LOCH_OK;
}

loch_status loch_budget_open(const char *name, const loch_budget_options *options, loch_budget **out)
{
    loch_budget_options given;
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the budget is NULL");
    *out = NULL;
    loch_status status = budget_read_options(options, &given);
    if (status != LOCH_OK) return status;
    loch_budget *budget = calloc(1, sizeof *budget);
    if (!budget) return LOCH_FAIL(HOST_MEMORY, "no host memory for a budget");
    LOCHI_NOT_CANCELLED;
    atomic_init(&budget->references, 1);
    budget->self = lochi_budget_process_self();
    budget->wait_ns = given.wait_ns ? given.wait_ns : BUDGET_WAIT_NS;
    if (budget->wait_ns > BUDGET_WAIT_MAX_NS) budget->wait_ns = BUDGET_WAIT_MAX_NS;
    budget->is_looking = given.access == LOCH_BUDGET_LOOK;
    budget->seat = BUDGET_SLOTS;
    status = lochi_budget_file_begin(&budget->file, name);
    lochi_budget_state_add(budget); /* before the file is open: a fork closes it */
    if (status == LOCH_OK) status = budget_join(budget, &given);
    if (status == LOCH_OK) {
        *out = budget;
    } else {
        const loch_error saved = *loch_error_get();
        loch_budget_close(budget);
        (void)loch_error_set(status, saved.driver, saved.driver_code, "%s", saved.sentence);
    }
    return status;
}

/* Gives the seat up, and removes the file if no other is left. */
static void budget_leave(loch_budget *budget)
{
    budget_file *file = &budget->file;
    budget_table *table = malloc(sizeof *table);
    if (file->fd >= 0 && budget->seat < BUDGET_SLOTS && lochi_budget_file_lock(file, BUDGET_PATIENCE_NS) == LOCH_OK) {
        lochi_budget_table_leave(file, budget->seat);
        if (table && lochi_budget_table_read(file, table) == LOCH_OK) {
            (void)lochi_budget_table_reap(file, &budget->self, table);
            if (!lochi_budget_table_is_taken(table)) lochi_budget_table_remove(file);
        }
        lochi_budget_file_unlock(file);
    }
    free(table);
}

void loch_budget_close(loch_budget *budget)
{
    if (!budget || atomic_fetch_sub_explicit(&budget->references, 1, memory_order_acq_rel) != 1) return;
    LOCHI_NOT_CANCELLED;
    if (!lochi_budget_state_is_forked(budget)) budget_leave(budget);
    lochi_budget_state_remove(budget);
    if (!lochi_budget_state_is_forked(budget)) lochi_budget_file_end(&budget->file);
    free(budget);
}

const char *loch_budget_get_path(const loch_budget *budget)
{
    return budget ? budget->file.path : "";
}
