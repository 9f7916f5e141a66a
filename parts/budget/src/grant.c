/* SPDX-License-Identifier: MIT */
/* Grants go up in the file first and in the pool afterwards, and down in the pool first: so the pool may never hold
 * more than the file says, whenever the process dies. */
#include "member.h"
#include "text.h"
#include "kit/fail.h"
#include "kit/now.h"
#include <stdlib.h>
#include <string.h>

#define GRANT_LOOK_NS 10000000u /* a waiting request looks again after this time */
#define GRANT_RECENT_NS 100000000u
#define GRANT_KEPT_NS 10000000u /* a grant is kept so long for the request that it was raised for */
#define GRANT_HOLDERS_BYTES 160

loch_status lochi_budget_grant_look(const loch_budget_member *member, loch_pool_info *info)
{
    *info = (loch_pool_info){.size = sizeof *info};
    return loch_pool_get_info(member->pool, info);
}

static uint64_t grant_age(const loch_budget_member *member)
{
    return lochi_now_ns() - atomic_load_explicit(&member->raised_ns, memory_order_relaxed);
}

bool lochi_budget_grant_is_recent(const loch_budget_member *member)
{
    return grant_age(member) < GRANT_RECENT_NS;
}

static loch_status grant_limit(const loch_budget_member *member, uint64_t bytes)
{
    return loch_pool_set_grant(member->pool, (size_t)bytes, (size_t)(bytes > member->limit ? bytes : member->limit));
}

loch_status lochi_budget_grant_apply(const loch_budget_member *member)
{
    return grant_limit(member, member->granted);
}

/* --- the slot --- */

/* Reads the file, and checks that the slot is still this member's. What only this member writes is taken from
 * memory. */
static loch_status grant_read(const loch_budget_member *member, budget_table *table)
{
    const budget_process *self = &member->budget->self;
    const loch_status status = lochi_budget_table_read(&member->budget->file, table);
    if (status != LOCH_OK) return status;
    budget_slot *slot = &table->slots[member->index];
    if (member->index >= table->head.high || slot->kind != BUDGET_SLOT_MEMBER || slot->pid != self->pid ||
        slot->start != self->start || slot->image != self->image)
        return LOCH_FAIL(CORRUPT, "budget file %s is damaged: member \"%s\" is not in it", member->budget->file.path,
                         member->name);
    slot->minimum = member->minimum;
    slot->limit = member->limit;
    slot->granted = member->granted;
    slot->held = member->held;
    return LOCH_OK;
}

static loch_status grant_put(loch_budget_member *member, uint64_t granted)
{
    const loch_status status =
        lochi_budget_table_put(&member->budget->file, BUDGET_PLACE(member->index, granted), granted);
    if (status == LOCH_OK) member->granted = granted;
    return status;
}

void lochi_budget_grant_tell(loch_budget_member *member, const loch_pool_info *info)
{
    const uint64_t figures[2] = {info->reserved_bytes, info->used_bytes};
    if (figures[0] == member->held && figures[1] == member->used) return;
    if (lochi_budget_file_write(&member->budget->file, BUDGET_PLACE(member->index, held), figures, sizeof figures) !=
        LOCH_OK)
        return;
    member->held = figures[0];
    member->used = figures[1];
}

_Static_assert(offsetof(budget_slot, used) == offsetof(budget_slot, held) + 8, "held and used are written together");
_Static_assert(offsetof(budget_slot, level) == offsetof(budget_slot, asked) + 8,
               "asked and level are written together");

/* --- up --- */

static loch_status grant_fail(const loch_budget_member *member, const budget_table *table, uint64_t need)
{
    char holders[GRANT_HOLDERS_BYTES];
    const uint64_t more = need > member->granted ? need - member->granted : 0;
    if (need > member->limit)
        return LOCH_FAIL(LIMIT, "member \"%.24s\" is at its limit of %s in budget \"%.24s\" (%s more)", member->name,
                         LOCHI_SIZE(member->limit), table->head.name, LOCHI_SIZE(more));
    lochi_budget_text_holders(table, holders, sizeof holders);
    return LOCH_FAIL(LIMIT, "budget \"%.24s\" of %s has no %s for \"%.24s\": %s", table->head.name,
                     LOCHI_SIZE(table->head.total), LOCHI_SIZE(more), member->name, holders);
}

/* Asks the other members to give back, so that the grant can become `need`. Sets which of them have to be woken. */
static void grant_ask(const loch_budget_member *member, const budget_table *table, uint64_t need, bool *is_rung)
{
    for (size_t i = 0; i < table->head.high; i++) {
        const budget_slot *slot = &table->slots[i];
        const budget_wish wish = lochi_budget_rules_ask(table, member->index, need, i);
        if (!wish.bytes) continue;
        uint64_t asked[2] = {wish.bytes, wish.level};
        if (slot->asked > asked[0]) asked[0] = slot->asked;
        if (slot->level > asked[1]) asked[1] = slot->level;
        is_rung[i] =
            lochi_budget_file_write(&member->budget->file, BUDGET_PLACE(i, asked), asked, sizeof asked) == LOCH_OK;
    }
}

/* Publishes that a request waits for a grant of `need`. */
static void grant_want(loch_budget_member *member, uint64_t need)
{
    if (need && need <= member->wanted) return;
    if (lochi_budget_table_put(&member->budget->file, BUDGET_PLACE(member->index, wanted), need) == LOCH_OK)
        member->wanted = need;
}

/* Raises the grant in the file. With the file's lock. */
static loch_status grant_raise_in(loch_budget_member *member, budget_table *table, uint64_t need, uint64_t wish,
                                  bool is_asking, bool is_told, bool *is_rung)
{
    const budget_file *file = &member->budget->file;
    loch_status status = grant_read(member, table);
    if (status != LOCH_OK) return status;
    uint64_t most = lochi_budget_rules_most(table, member->index);
    if (most < need && lochi_budget_table_reap(file, &member->budget->self, table))
        most = lochi_budget_rules_most(table, member->index);
    if (most < need) {
        if (is_asking && need <= member->limit) {
            grant_want(member, need);
            grant_ask(member, table, need, is_rung);
        }
        return is_told ? grant_fail(member, table, need) : LOCH_E_LIMIT;
    }
    uint64_t aim = need;
    if (wish > need && !lochi_budget_rules_has_waiting(table, member->index)) aim = wish < most ? wish : most;
    return aim > member->granted ? grant_put(member, aim) : LOCH_OK;
}

loch_status lochi_budget_grant_raise(loch_budget_member *member, uint64_t need, uint64_t wish, bool is_asking,
                                     bool is_told)
{
    budget_file *file = &member->budget->file;
    bool is_rung[BUDGET_SLOTS] = {false};
    budget_table *table = malloc(sizeof *table);
    const uint64_t before = member->granted;
    if (!table) return LOCH_FAIL(HOST_MEMORY, "no host memory to read a budget");
    loch_status status = lochi_budget_file_lock(file, BUDGET_PATIENCE_NS);
    if (status == LOCH_OK) {
        status = grant_raise_in(member, table, need, wish, is_asking, is_told, is_rung);
        lochi_budget_file_unlock(file);
    }
    free(table);
    for (size_t i = 0; i < BUDGET_SLOTS; i++)
        if (is_rung[i]) lochi_budget_file_ring(file, BUDGET_PLACE(i, bell));
    if (status == LOCH_OK && member->granted > before) {
        status = grant_limit(member, member->granted);
        atomic_store_explicit(&member->raised_ns, lochi_now_ns(), memory_order_relaxed);
    }
    return status;
}

/* Notes that a request begins or ceases to wait. */
static void grant_count(loch_budget_member *member, bool is_waiting)
{
    pthread_mutex_lock(&member->mutex);
    member->waiting += is_waiting ? 1 : (size_t)-1;
    if (!member->waiting && member->wanted &&
        lochi_budget_file_lock(&member->budget->file, BUDGET_PATIENCE_NS) == LOCH_OK) {
        grant_want(member, 0);
        lochi_budget_file_unlock(&member->budget->file);
        lochi_budget_file_ring(&member->budget->file,
                               offsetof(budget_head, bell)); /* others may have waited for that */
    }
    pthread_mutex_unlock(&member->mutex);
}

loch_status lochi_budget_grant_get(loch_budget_member *member, uint64_t need, uint64_t wish, uint64_t deadline_ns)
{
    const budget_file *file = &member->budget->file;
    loch_status status;
    grant_count(member, true);
    for (;;) {
        const uint32_t heard = lochi_budget_file_hear(file, offsetof(budget_head, bell));
        const uint64_t now = lochi_now_ns();
        const bool is_last = now >= deadline_ns || need > member->limit;
        pthread_mutex_lock(&member->mutex);
        status = lochi_budget_grant_raise(member, need, wish, !is_last, is_last);
        pthread_mutex_unlock(&member->mutex);
        if (status != LOCH_E_LIMIT || is_last) break;
        const uint64_t left = deadline_ns - now;
        lochi_budget_file_sleep(file, offsetof(budget_head, bell), heard, left < GRANT_LOOK_NS ? left : GRANT_LOOK_NS);
    }
    const loch_error saved = *loch_error_get();
    grant_count(member, false);
    if (status != LOCH_OK) return loch_error_set(status, saved.driver, saved.driver_code, "%s", saved.sentence);
    return LOCH_OK;
}

/* --- down --- */

void lochi_budget_grant_lower(loch_budget_member *member, uint64_t aim, bool is_trimming)
{
    budget_file *file = &member->budget->file;
    loch_pool_info info;
    if (lochi_budget_grant_look(member, &info) != LOCH_OK) return;
    if (!is_trimming && aim < info.reserved_bytes) aim = info.reserved_bytes;
    if (aim >= member->granted || grant_limit(member, aim) != LOCH_OK) return; /* children may have minima */
    if (lochi_budget_grant_look(member, &info) != LOCH_OK) return;
    if (info.reserved_bytes > aim) {
        aim = info.reserved_bytes < member->granted ? info.reserved_bytes : member->granted;
        if (grant_limit(member, aim) != LOCH_OK) return;
    }
    if (lochi_budget_file_lock(file, BUDGET_PATIENCE_NS) != LOCH_OK) return;
    if (grant_put(member, aim) != LOCH_OK) (void)grant_limit(member, member->granted);
    lochi_budget_grant_tell(member, &info);
    lochi_budget_file_unlock(file);
    lochi_budget_file_ring(file, offsetof(budget_head, bell));
}

/* --- the thread's work --- */

/* Reads the table for the thread, which cannot report a failure. */
static bool grant_load(loch_budget_member *member, budget_table *table, const loch_pool_info *info)
{
    budget_file *file = &member->budget->file;
    if (lochi_budget_file_lock(file, BUDGET_PATIENCE_NS) != LOCH_OK) return false;
    const bool is_good = grant_read(member, table) == LOCH_OK;
    if (is_good) lochi_budget_grant_tell(member, info);
    lochi_budget_file_unlock(file);
    return is_good;
}

void lochi_budget_grant_answer(loch_budget_member *member)
{
    budget_file *file = &member->budget->file;
    static const uint64_t nothing[2] = {0, 0};
    loch_pool_info info;
    budget_table *table = malloc(sizeof *table);
    if (table && lochi_budget_grant_look(member, &info) == LOCH_OK && grant_load(member, table, &info)) {
        budget_slot *slot = &table->slots[member->index];
        const budget_level level = slot->level <= BUDGET_LEVEL_MINIMUM ? (budget_level)slot->level : BUDGET_LEVEL_SLACK;
        slot->held = member->held;
        const bool is_kept = level == BUDGET_LEVEL_SLACK && grant_age(member) < GRANT_KEPT_NS;
        if (slot->asked && !is_kept) { /* a member that waits asks again */
            const uint64_t floor = lochi_budget_rules_floor(table, member->index, level);
            const uint64_t aim = slot->asked < member->granted ? member->granted - slot->asked : 0;
            lochi_budget_grant_lower(member, aim > floor ? aim : floor, level != BUDGET_LEVEL_SLACK);
            if (lochi_budget_file_lock(file, BUDGET_PATIENCE_NS) == LOCH_OK) {
                (void)lochi_budget_file_write(file, BUDGET_PLACE(member->index, asked), nothing, sizeof nothing);
                lochi_budget_file_unlock(file);
            }
        }
    }
    free(table);
}

void lochi_budget_grant_settle(loch_budget_member *member)
{
    loch_pool_info info;
    if (lochi_budget_grant_look(member, &info) != LOCH_OK) return;
    const uint64_t held = info.reserved_bytes, chunk = member->chunk;
    uint64_t keep = held + 2 * chunk > member->minimum ? held + 2 * chunk : member->minimum;
    if (held + chunk >= member->prepared || member->granted < member->prepared) member->prepared = 0; /* used or lent */
    if (keep < member->prepared) keep = member->prepared;
    if (member->granted > keep && member->granted - keep >= chunk) {
        if (!lochi_budget_grant_is_recent(member)) lochi_budget_grant_lower(member, keep, false);
    } else if (member->granted < member->limit &&
               (member->granted < held + chunk || member->granted < member->minimum)) {
        (void)lochi_budget_grant_raise(member, member->granted, keep < member->limit ? keep : member->limit, false,
                                       false);
    }
}
