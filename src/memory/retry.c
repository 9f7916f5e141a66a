/* SPDX-License-Identifier: MIT */
/* Retries when memory is short: first the pressure functions, then waiting for memory that others free (waiting.c).
 *
 * Only the outermost request is retried, so there is one level of retries whatever wraps what. It asks the functions of
 * its allocator, of the allocators that this one wraps, of those that had no memory inside the attempt (failure.h), and
 * of the parents of child pools, in this order. A function is called again while it frees something and the request
 * does not fit. Nothing is asked where freeing cannot help: above the pool whose limit is reached, and for a request
 * that can never be served.
 *
 * While a request waits, the functions are asked again from time to time: what they had to keep before may be free
 * now, and a budget may have been given memory by another process. */
#include "memory/retry.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/room.h"
#include "memory/account.h"
#include "memory/failure.h"
#include "memory/pool/pool.h"
#include "memory/snapshot/snapshot.h"
#include "memory/waiting.h"
#include <loch/host.h>
#include <string.h>

#define RETRY_LEVELS 32          /* allocators whose functions are asked, at most */
#define RETRY_IDLE_CALLS 4       /* in a row */
#define RETRY_VAIN_CALLS 65536   /* in a row, that free something and leave no more memory than there was before */
#define RETRY_VAIN_OTHERS 1024   /* of these, one call counts as, if only other threads have freed something */
#define RETRY_ROUND_NS 200000000 /* a waiting request asks the functions again after this time */

/* An allocator whose pressure functions are asked. */
typedef struct retry_level {
    loch_allocator *allocator; /* retained */
    lochi_pool *child;         /* the pool below it, if it is a parent; otherwise NULL */
    bool is_below;             /* a wrapper above it refused by a limit of its own */
} retry_level;

/* A request that is retried. */
typedef struct retry {
    loch_allocator *allocator;
    lochi_attempt *attempt;
    const loch_request *request;
    uint32_t mark, attempts;
    uint64_t start_ns, timeout_ns;
    char said[LOCH_ERROR_SENTENCE_MAX]; /* by a function that could free nothing, in the last round; "": nothing */
    retry_level levels[RETRY_LEVELS];
    size_t levels_count;
    void **out;
} retry;

static bool retry_is_short(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED ||
           status == LOCH_E_MOVING_FORBIDDEN; /* a move would help, and so would a free */
}

static bool retry_is_worth_it(loch_status status)
{
    return retry_is_short(status) && !lochi_error_is_final(status);
}

/* Retries once, and counts the retry. Drops the failure notes of the attempt before. */
static loch_status retry_once_more(retry *self)
{
    lochi_lock_take(&self->allocator->lock);
    self->allocator->retries++;
    lochi_lock_drop(&self->allocator->lock);
    lochi_failure_drop(self->mark);
    const loch_status status = self->attempt(self->allocator, self->request, self->out);
    self->attempts++;
    if (retry_is_short(status)) lochi_error_note_attempts(self->attempts);
    return status;
}

/* --- whom to ask --- */

static void retry_add_level(retry *self, loch_allocator *allocator, lochi_pool *child, bool is_below)
{
    for (size_t i = 0; i < self->levels_count; i++)
        if (self->levels[i].allocator == allocator) return;
    if (self->levels_count == RETRY_LEVELS) return;
    self->levels[self->levels_count++] = (retry_level){loch_allocator_retain(allocator), child, is_below};
}

/* Adds an allocator, and those that it wraps. */
static void retry_add_stack(retry *self, loch_allocator *allocator)
{
    bool is_below = false;
    for (; allocator; allocator = allocator->wrapped) {
        retry_add_level(self, allocator, NULL, is_below);
        is_below |= lochi_failure_is_refused_by(allocator);
    }
}

static void retry_gather(retry *self)
{
    const lochi_room *room = lochi_room_own;
    retry_add_stack(self, self->allocator);
    for (uint32_t i = room ? room->failures.dry_count : 0; i--;) /* the innermost is first there */
        retry_add_stack(self, room->failures.dry[i]);
    for (size_t i = 0; i < self->levels_count; i++) {
        lochi_pool *pool = self->levels[i].allocator->pool;
        lochi_pool *parent = pool ? lochi_pool_get_parent(pool) : NULL;
        if (parent) retry_add_level(self, parent->allocator, pool, self->levels[i].is_below);
    }
    if (room && room->failures.timeout_ns > self->timeout_ns) self->timeout_ns = room->failures.timeout_ns;
}

static void retry_forget_levels(retry *self)
{
    while (self->levels_count)
        loch_allocator_release(self->levels[--self->levels_count].allocator);
}

/* --- pressure functions --- */

/* Tells whether a function may be called: it is not being removed, by another thread or from inside it. */
static bool retry_may_call(loch_allocator *allocator, const lochi_pressure *asked)
{
    lochi_lock_take(&allocator->lock);
    const bool may_call = !asked->is_leaving;
    lochi_lock_drop(&allocator->lock);
    return may_call;
}

/* Returns when the request gives up; 0 if it does not wait. */
static uint64_t retry_find_until(const retry *self)
{
    if (!self->timeout_ns) return 0;
    return self->timeout_ns < UINT64_MAX - self->start_ns ? self->start_ns + self->timeout_ns : UINT64_MAX;
}

/* Sets when the request gives up whose functions the thread calls. Returns what was set before. */
static uint64_t retry_set_until(uint64_t until_ns)
{
    if (!lochi_room_own) return 0;
    const uint64_t before = lochi_room_own->pressure_until_ns;
    lochi_room_own->pressure_until_ns = until_ns;
    return before;
}

/* Calls a function. The error record is that of the request afterwards: what fails inside the function is its own. One
 * that frees nothing may say why by loch_error_set, which names no owner of the memory; requests that fail do. */
static size_t retry_call(retry *self, lochi_pressure *asked, loch_allocator *allocator)
{
    loch_error error = lochi_error_save();
    const uint32_t paused = lochi_failure_pause();
    const uint64_t outer_ns = retry_set_until(retry_find_until(self));
    const size_t freed = asked->function(allocator, self->request->bytes, asked->user);
    (void)retry_set_until(outer_ns);
    lochi_failure_resume(paused);
    const loch_error *now = loch_error_get();
    const bool is_said = !freed && now->status == error.status && !now->owner[0];
    if (is_said && strcmp(error.sentence, now->sentence) != 0) {
        memcpy(error.sentence, now->sentence, sizeof error.sentence);
        memcpy(self->said, now->sentence, sizeof self->said);
    }
    lochi_error_restore(&error);
    return freed;
}

/* Reads how many blocks of an allocator were freed so far, and its limit. */
static loch_stats retry_read(loch_allocator *allocator)
{
    loch_stats stats = {.size = sizeof stats};
    const loch_error saved = lochi_error_save();
    if (lochi_allocator_read_stats(allocator, 0, &stats) != LOCH_OK) lochi_error_restore(&saved);
    return stats;
}

/* Returns what the device has left; 0 if that is memory of the host, which other programs change all the time. */
static uint64_t retry_read_device(loch_device *device)
{
    loch_memory_info info = {.size = sizeof info};
    if (loch_device_can(device, LOCH_CAN_HOST_ACCESS)) return 0;
    const loch_error saved = lochi_error_save();
    if (loch_device_calculate_memory(device, &info) == LOCH_OK) return info.free_bytes;
    lochi_error_restore(&saved);
    return 0;
}

/* Calls a function, and tells in `*has_freed` whether the thread has freed a block in it, of whatever allocator. */
static size_t retry_watch(retry *self, lochi_pressure *asked, loch_allocator *allocator, bool *has_freed)
{
    const int64_t before = lochi_room_own ? lochi_room_own->freed_blocks : 0;
    lochi_pool_mark_frees();
    const size_t freed = retry_call(self, asked, allocator);
    *has_freed = (lochi_room_own && lochi_room_own->freed_blocks > before) || lochi_pool_has_frees();
    return freed;
}

/* The best that was seen while a function is called: the least that is missing or in use, the most that is free. */
typedef struct retry_best {
    uint64_t missing, left, blocks, cached, limit;
} retry_best;

/* Raises the best that was seen. Returns whether anything is better than before. */
static bool retry_raise(retry_best *best, uint64_t missing, uint64_t left, const loch_stats *stats)
{
    const retry_best old = *best;
    if (missing < best->missing) best->missing = missing;
    if (left > best->left) best->left = left;
    if (stats->blocks < best->blocks) best->blocks = stats->blocks;
    if (stats->cached_bytes > best->cached) best->cached = stats->cached_bytes;
    if (stats->limit_bytes > best->limit) best->limit = stats->limit_bytes;
    return memcmp(&old, best, sizeof old) != 0;
}

/* Tells whether the time of the request is over. */
static bool retry_is_late(const retry *self)
{
    return self->timeout_ns && loch_host_now_ns() >= retry_find_until(self);
}

/* Calls a function while it frees something, in whatever allocator, or raises the limit or what the device has left,
 * and the request does not fit. One that says so and changes nothing is called RETRY_IDLE_CALLS times: other threads
 * may use up what it frees. One whose blocks do not count in the limit of a wrapper above it is called once in
 * vain. If others take all that it frees, it is called until the time of the request is over, and not for ever. */
static loch_status retry_press(retry *self, lochi_pressure *asked, const retry_level *level, loch_status status)
{
    loch_device *device = self->allocator->device;
    uint64_t missing = loch_error_get()->missing_bytes;
    loch_stats stats = retry_read(level->allocator);
    retry_best best = {missing, retry_read_device(device), stats.blocks, stats.cached_bytes, stats.limit_bytes};
    unsigned idle = 0, vain = 0;
    while (idle < (level->is_below ? 1 : RETRY_IDLE_CALLS) && vain < RETRY_VAIN_CALLS && retry_is_worth_it(status)) {
        bool has_freed;
        if (!retry_may_call(level->allocator, asked)) return status;
        if (!retry_watch(self, asked, level->allocator, &has_freed)) return status;
        const uint64_t left = retry_read_device(device); /* of the device, before the request takes it */
        status = retry_once_more(self);
        const loch_stats now = retry_read(level->allocator);
        const uint64_t still = loch_error_get()->missing_bytes;
        const bool has_any = has_freed || left > best.left || now.frees != stats.frees;
        const bool is_better = still < missing || now.limit_bytes > stats.limit_bytes || (has_any && !level->is_below);
        idle = is_better ? 0 : idle + 1;
        vain = retry_raise(&best, still, left, &now) ? 0 : vain + (has_freed ? 1 : RETRY_VAIN_OTHERS);
        if (vain && retry_is_late(self)) return status;
        stats = now;
        missing = still;
    }
    return status;
}

/* Calls the functions of one allocator, in order of addition. */
static loch_status retry_ask(retry *self, const retry_level *level, loch_status status)
{
    LOCHI_NOT_CANCELLED;
    loch_allocator *allocator = level->allocator;
    lochi_lock_take(&allocator->lock);
    for (lochi_pressure *asked = allocator->pressure; asked && retry_is_worth_it(status);) {
        if (asked->is_leaving) {
            asked = asked->next;
            continue;
        }
        waiting_call call = {.asked = asked};
        asked->users++; /* keeps the function in the list */
        lochi_waiting_note(&call);
        lochi_lock_drop(&allocator->lock);
        status = retry_press(self, asked, level, status);
        lochi_lock_take(&allocator->lock);
        asked = lochi_waiting_leave(allocator, &call);
    }
    lochi_lock_drop(&allocator->lock);
    return status;
}

/* Tells whether memory that is freed in a level can help. */
static bool retry_can_help(const retry *self, const retry_level *level, loch_status status)
{
    if (!level->child || status != LOCH_E_LIMIT) return true;
    return lochi_pool_is_short_of(level->child, level->allocator->pool, self->request->bytes);
}

static loch_status retry_under_pressure(retry *self, loch_status status)
{
    self->said[0] = '\0';
    retry_gather(self);
    for (size_t i = 0; i < self->levels_count && retry_is_worth_it(status); i++)
        if (retry_can_help(self, &self->levels[i], status)) status = retry_ask(self, &self->levels[i], status);
    retry_forget_levels(self);
    return status;
}

/* --- waiting --- */

/* Retries whenever memory was freed, and after a nap, until it succeeds or the time is over. */
static loch_status retry_waiting(retry *self, uint64_t until_ns, loch_status status)
{
    waiting_call call = {.allocator = self->allocator};
    lochi_waiting_note(&call);
    lochi_waiting_begin(self->allocator);
    while (retry_is_worth_it(status)) {
        const uint64_t generation = lochi_waiting_get_generation();
        status = retry_once_more(self);
        const uint64_t now_ns = loch_host_now_ns();
        if (!retry_is_worth_it(status) || now_ns >= until_ns) break;
        lochi_waiting_sleep(generation, until_ns - now_ns);
    }
    lochi_waiting_end(self->allocator);
    lochi_waiting_forget(&call);
    return status;
}

/* Waits until the request fits or its time is over, and asks the functions again after each RETRY_ROUND_NS. Tries once
 * if the functions have used up the time: memory may have been freed meanwhile. */
static loch_status retry_rounds(retry *self, loch_status status)
{
    const uint64_t until_ns = retry_find_until(self);
    uint64_t now_ns = loch_host_now_ns();
    do {
        const uint64_t left_ns = now_ns < until_ns ? until_ns - now_ns : 0;
        status = retry_waiting(self, now_ns + (left_ns < RETRY_ROUND_NS ? left_ns : RETRY_ROUND_NS), status);
        now_ns = loch_host_now_ns();
        if (now_ns < until_ns) status = retry_under_pressure(self, status);
    } while (retry_is_worth_it(status) && now_ns < until_ns);
    return status;
}

/* Asks the functions, and waits. The sentence of a failure is what a function said, or that of the last attempt. */
static loch_status retry_all(retry *self, loch_status status)
{
    self->start_ns = loch_host_now_ns();
    status = retry_under_pressure(self, status);
    if (!retry_is_worth_it(status) || !self->timeout_ns) return status;
    status = retry_rounds(self, status);
    const uint64_t waited_ns = loch_host_now_ns() - self->start_ns;
    if (retry_is_short(status)) {
        if (self->said[0] && retry_is_worth_it(status)) lochi_error_say(self->said);
        lochi_error_append("; waited %.2f s", (double)waited_ns / 1e9);
        if (!self->said[0]) lochi_error_append(" for memory of \"%s\"", loch_error_get()->owner);
    }
    lochi_lock_take(&self->allocator->lock);
    self->allocator->waits_ns += waited_ns;
    lochi_lock_drop(&self->allocator->lock);
    return status;
}

loch_status lochi_retry(loch_allocator *allocator, lochi_attempt *attempt, const loch_request *request, uint32_t mark,
                        loch_status status, bool is_inner, void **out)
{
    if (!retry_is_short(status)) return status;
    if (is_inner) {
        lochi_failure_note_dry(allocator, request);
        return status;
    }
    if (!(request->flags & LOCH_ALLOC_NO_RETRY) && retry_is_worth_it(status)) {
        retry self = {.allocator = allocator,
                      .attempt = attempt,
                      .request = request,
                      .mark = mark,
                      .attempts = 1,
                      .timeout_ns = request->timeout_ns,
                      .out = out};
        status = retry_all(&self, status);
    }
    if (retry_is_short(status)) lochi_snapshot_note_failure(allocator, request, status);
    return status;
}
