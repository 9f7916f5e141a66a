/* SPDX-License-Identifier: MIT */
/* Members: the pool's pressure function asks for more, an observer of the device tells when the pool took or gave back
 * memory. */
#include "member.h"
#include "text.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include "kit/now.h"
#include <errno.h>
#include <loch/observer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER_STEP_BYTES ((uint64_t)2 << 20) /* by which a pool may round up: more of it with each stage */
#define MEMBER_TRIES 3                        /* for a pool that grows while it joins */
#define MEMBER_ASKS 4                         /* tries of one request that has reached the grant */

/* --- requests that have reached the grant --- */

/* The request that the calling thread has asked for last. The pool calls again after each attempt that has failed, and
 * each call is a further try. */
static _Thread_local struct {
    const loch_budget_member *member;
    uint64_t deadline_ns;
    uint32_t attempts; /* of the request, when the thread asked; 0 if the request has ended */
    unsigned number;   /* of the try */
    bool has_failed;
} member_request;

static uint64_t member_round(const loch_budget_member *member, uint64_t bytes)
{
    return (bytes + member->granule - 1) / member->granule * member->granule;
}

/* Notes that the request fails. The sentence says why the budget gave nothing; the status is the one that the pool
 * returns. */
static size_t member_give_up(loch_status why)
{
    const loch_error saved = *loch_error_get();
    member_request.has_failed = true;
    (void)loch_error_set(why, saved.driver, saved.driver_code, "%s", saved.sentence);
    return 0;
}

/* Answers a request that the grant would allow, if it is the pool's limit that failed it: another thread has raised the
 * grant meanwhile, or was faster to use it. It is tried again, later with more room. Otherwise another limit
 * failed it. */
static size_t member_try_again(loch_budget_member *member, unsigned number, size_t bytes, uint64_t wish,
                               loch_status why)
{
    if (why != LOCH_E_LIMIT && why != LOCH_E_FRAGMENTED) return 0;
    if (!number) return bytes;
    if (!lochi_budget_grant_is_recent(member)) return 0;
    pthread_mutex_lock(&member->mutex);
    (void)lochi_budget_grant_raise(member, member->granted, wish, false, false);
    pthread_mutex_unlock(&member->mutex);
    return bytes;
}

/* The first try takes all that the request needs if that is free; otherwise waits for the bytes that are missing if
 * the pool maps all its free memory where it is needed. Later ones wait for everything. */
static size_t member_ask(loch_budget_member *member, unsigned number, size_t bytes, const loch_pool_info *info,
                         loch_status why)
{
    const uint64_t exact = info->reserved_bytes + member_round(member, bytes);
    const uint64_t rounding = member->granule + number * (MEMBER_STEP_BYTES + member->granule);
    const bool is_over = exact <= member->limit && exact + rounding > member->limit; /* the last bytes of the budget */
    const uint64_t all = is_over ? member->limit : exact + rounding;
    const uint64_t wish = all + member->chunk + 4 * (uint64_t)number * bytes; /* other threads ask too */
    const uint64_t missing = bytes > info->free_bytes ? bytes - info->free_bytes : 0;
    const uint64_t least = info->reserved_bytes + member_round(member, missing);
    pthread_mutex_lock(&member->mutex);
    const uint64_t granted = member->granted;
    loch_status status = LOCH_E_LIMIT;
    if (all > granted) status = lochi_budget_grant_raise(member, all, wish, false, false);
    pthread_mutex_unlock(&member->mutex);
    if (all <= granted) return member_try_again(member, number, bytes, wish, why);
    if (status == LOCH_OK) return bytes;
    if (status != LOCH_E_LIMIT) return member_give_up(why);
    if (!number && least <= granted) return 0; /* the pool cannot use its free memory: the next try asks */
    const uint64_t need = number ? all : least;
    status = lochi_budget_grant_get(member, need, need, member_request.deadline_ns);
    return status == LOCH_OK ? bytes : member_give_up(why);
}

/* Tells whether the thread asks again for the request that it has asked for last: right after one more attempt. */
static bool member_asks_again(const loch_budget_member *member, const loch_error *why)
{
    return member_request.member == member && member_request.attempts && why->attempts == member_request.attempts + 1;
}

static size_t member_pressure(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator;
    loch_budget_member *member = user;
    const loch_error why = *loch_error_get();
    size_t freed = 0;
    if (lochi_budget_state_is_forked(member->budget) || bytes > UINT64_MAX / 64) return 0;
    if (member_asks_again(member, &why)) {
        member_request.number++;
    } else {
        const uint64_t wait_ns = member->budget->wait_ns, left_ns = loch_pressure_get_left_ns();
        member_request.deadline_ns = lochi_now_ns() + (left_ns < wait_ns ? left_ns : wait_ns);
        member_request.number = 0;
    }
    member_request.member = member;
    member_request.has_failed = false;
    for (; !freed && !member_request.has_failed && member_request.number < MEMBER_ASKS; member_request.number++) {
        loch_pool_info info;
        if (lochi_budget_grant_look(member, &info) != LOCH_OK) break;
        freed = member_ask(member, member_request.number, bytes, &info, why.status);
        if (freed) break;
    }
    member_request.attempts = freed ? why.attempts : 0;
    if (!freed && !member_request.has_failed && why.status != LOCH_OK)
        (void)loch_error_set(why.status, why.driver, why.driver_code, "%s", why.sentence);
    return freed;
}

static void member_observe(loch_range_event event, const loch_range *range, void *user)
{
    (void)event;
    (void)range;
    lochi_budget_service_note(user);
}

/* --- create --- */

static loch_status member_read_options(loch_budget_member *member, const loch_budget_member_options *options,
                                       const budget_head *head, const loch_pool_info *info, uint32_t *weight)
{
    loch_budget_member_options given = {.size = sizeof given};
    LOCH_RETURN(lochi_sized_read("loch_budget_member_options", options, &given, sizeof given));
    member->minimum = given.minimum_bytes;
    member->old_limit = info->limit_bytes;
    member->limit = given.limit_bytes ? given.limit_bytes : head->total;
    if (info->limit_bytes && member->limit > info->limit_bytes) member->limit = info->limit_bytes;
    if (member->limit > head->total) member->limit = head->total;
    member->chunk = head->chunk;
    *weight = given.weight ? given.weight : 1;
    if (*weight > BUDGET_WEIGHT_MAX)
        return LOCH_FAIL(INVALID, "a weight of %u is more than %d", *weight, BUDGET_WEIGHT_MAX);
    if (member->minimum > member->limit)
        return LOCH_FAIL(INVALID, "a minimum of %s is more than the limit of %s", LOCHI_SIZE(member->minimum),
                         LOCHI_SIZE(member->limit));
    return LOCH_OK;
}

static void member_fill_slot(const loch_budget_member *member, uint32_t weight, budget_slot *slot)
{
    const budget_process *self = &member->budget->self;
    *slot = (budget_slot){.kind = BUDGET_SLOT_MEMBER,
                          .pid = self->pid,
                          .start = self->start,
                          .space = self->space,
                          .image = self->image,
                          .minimum = member->minimum,
                          .limit = member->limit,
                          .weight = weight};
    snprintf(slot->name, sizeof slot->name, "%s", member->name);
    snprintf(slot->program, sizeof slot->program, "%.15s", program_invocation_short_name);
    snprintf(slot->device, sizeof slot->device, "%.31s", loch_device_get_name(loch_allocator_get_device(member->pool)));
}

/* Enters the member in the file, without a grant. With the file's lock. */
static loch_status member_enter_in(loch_budget_member *member, const loch_budget_member_options *options,
                                   const loch_pool_info *info, budget_table *table)
{
    const budget_file *file = &member->budget->file;
    uint32_t weight = 1;
    budget_slot slot;
    char holders[128];
    loch_status status = lochi_budget_table_read(file, table);
    if (status == LOCH_OK) status = member_read_options(member, options, &table->head, info, &weight);
    if (status != LOCH_OK) return status;
    (void)lochi_budget_table_reap(file, &member->budget->self, table);
    const uint64_t promised = lochi_budget_rules_sum(table).promised;
    if (promised > table->head.total || member->minimum > table->head.total - promised) {
        lochi_budget_text_holders(table, holders, sizeof holders);
        return LOCH_FAIL(LIMIT, "budget \"%.24s\" of %s has promised %s, and has no minimum of %s: %s",
                         table->head.name, LOCHI_SIZE(table->head.total), LOCHI_SIZE(promised),
                         LOCHI_SIZE(member->minimum), holders);
    }
    member_fill_slot(member, weight, &slot);
    return lochi_budget_table_enter(file, table, &slot, &member->index);
}

static loch_status member_enter(loch_budget_member *member, const loch_budget_member_options *options,
                                const loch_pool_info *info)
{
    budget_file *file = &member->budget->file;
    budget_table *table = malloc(sizeof *table);
    if (!table) return LOCH_FAIL(HOST_MEMORY, "no host memory to read a budget");
    loch_status status = lochi_budget_file_lock(file, BUDGET_PATIENCE_NS);
    if (status == LOCH_OK) {
        status = member_enter_in(member, options, info, table);
        lochi_budget_file_unlock(file);
    }
    free(table);
    return status;
}

/* Gets a grant for what the pool holds already, which may grow until it has its limit. */
static loch_status member_cover(loch_budget_member *member)
{
    const uint64_t deadline = lochi_now_ns() + member->budget->wait_ns;
    for (int i = 0; i < MEMBER_TRIES; i++) {
        loch_pool_info info;
        loch_status status = lochi_budget_grant_look(member, &info);
        if (status != LOCH_OK) return status;
        if (i && info.reserved_bytes <= member->granted) return LOCH_OK;
        const uint64_t ahead = info.reserved_bytes + member->chunk;
        status = lochi_budget_grant_get(member, info.reserved_bytes, ahead > member->minimum ? ahead : member->minimum,
                                        deadline);
        if (status == LOCH_OK) status = lochi_budget_grant_apply(member);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}

static loch_status member_hook(loch_budget_member *member)
{
    loch_status status = loch_allocator_add_pressure(member->pool, member_pressure, member);
    member->has_pressure = status == LOCH_OK;
    if (status == LOCH_OK) status = loch_observer_add(loch_allocator_get_device(member->pool), member_observe, member);
    member->has_observer = status == LOCH_OK;
    return status == LOCH_OK ? lochi_budget_service_start(member) : status;
}

static loch_status member_build(loch_budget_member *member, loch_allocator *pool, const char *name,
                                const loch_budget_member_options *options)
{
    loch_device_properties properties = {.size = sizeof properties};
    loch_pool_info info = {.size = sizeof info};
    loch_status status = loch_pool_get_info(pool, &info); /* E_INVALID: not a pool */
    if (status != LOCH_OK) return status;
    while (loch_allocator_get_wrapped(pool))
        pool = loch_allocator_get_wrapped(pool);
    member->pool = loch_allocator_retain(pool);
    snprintf(member->name, sizeof member->name, "%.*s", BUDGET_NAME_BYTES - 1,
             name ? name : loch_allocator_get_name(pool));
    status = loch_device_get_properties(loch_allocator_get_device(pool), &properties);
    if (status != LOCH_OK) return status;
    member->granule = properties.granule_bytes ? properties.granule_bytes : (size_t)64 << 10;
    status = member_enter(member, options, &info);
    if (status == LOCH_OK) status = member_cover(member);
    return status == LOCH_OK ? member_hook(member) : status;
}

loch_status loch_budget_member_create(loch_budget *budget, loch_allocator *pool, const char *name,
                                      const loch_budget_member_options *options, loch_budget_member **out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the member is NULL");
    *out = NULL;
    if (!budget || !pool) return LOCH_FAIL(INVALID, "a member needs a budget and a pool");
    if (lochi_budget_state_is_forked(budget)) return lochi_budget_state_refuse();
    if (budget->is_looking)
        return LOCH_FAIL(UNSUPPORTED, "budget \"%s\" is open to look, not to join", budget->file.name);
    loch_budget_member *member = calloc(1, sizeof *member);
    if (!member) return LOCH_FAIL(HOST_MEMORY, "no host memory for a member of a budget");
    LOCHI_NOT_CANCELLED;
    pthread_mutex_init(&member->mutex, NULL);
    member->budget = budget;
    member->index = BUDGET_SLOTS;
    atomic_init(&member->is_awake, true); /* the thread looks by itself when it starts */
    atomic_fetch_add_explicit(&budget->references, 1, memory_order_relaxed);
    const loch_status status = member_build(member, pool, name, options);
    if (status == LOCH_OK) {
        *out = member;
    } else {
        const loch_error saved = *loch_error_get();
        loch_budget_member_destroy(member);
        (void)loch_error_set(status, saved.driver, saved.driver_code, "%s", saved.sentence);
    }
    return status;
}

void loch_budget_member_destroy(loch_budget_member *member)
{
    if (!member) return;
    LOCHI_NOT_CANCELLED;
    const bool is_forked = lochi_budget_state_is_forked(member->budget);
    budget_file *file = &member->budget->file;
    if (member->has_pressure) (void)!loch_allocator_remove_pressure(member->pool, member_pressure, member);
    if (member->has_observer)
        (void)!loch_observer_remove(loch_allocator_get_device(member->pool), member_observe, member);
    if (!is_forked) {
        lochi_budget_service_stop(member);
        if (member->index < BUDGET_SLOTS) (void)!loch_pool_set_limit(member->pool, (size_t)member->old_limit);
        if (member->index < BUDGET_SLOTS && lochi_budget_file_lock(file, BUDGET_PATIENCE_NS) == LOCH_OK) {
            lochi_budget_table_leave(file, member->index);
            lochi_budget_file_unlock(file);
        }
        pthread_mutex_destroy(&member->mutex);
    }
    loch_allocator_release(member->pool);
    loch_budget_close(member->budget);
    free(member);
}

/* --- further calls --- */

loch_status loch_budget_member_prepare(loch_budget_member *member, size_t bytes)
{
    loch_pool_info info;
    if (!member) return LOCH_FAIL(INVALID, "no member");
    if (lochi_budget_state_is_forked(member->budget)) return lochi_budget_state_refuse();
    LOCHI_NOT_CANCELLED;
    loch_status status = lochi_budget_grant_look(member, &info);
    if (status == LOCH_OK && bytes > SIZE_MAX - info.reserved_bytes)
        status = LOCH_FAIL(OVERFLOW, "more bytes than there are addresses");
    const uint64_t need = info.reserved_bytes + bytes;
    if (status == LOCH_OK) status = lochi_budget_grant_get(member, need, 0, lochi_now_ns() + member->budget->wait_ns);
    if (status == LOCH_OK) {
        pthread_mutex_lock(&member->mutex);
        if (member->prepared < need) member->prepared = need;
        pthread_mutex_unlock(&member->mutex);
    }
    return status;
}
