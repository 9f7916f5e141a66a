/* SPDX-License-Identifier: MIT */
/* Engines: open, close, and access to their parts.
 *
 * Opening starts with the steps that take no memory: read the table, open devices, compute limits, connect peers. Then
 * it creates pools, streams and last threads. Every failure leaves through the ordinary destroy function. Closing goes
 * in reverse: nothing is given back before the last thread was joined. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/options.h"
#include "kit/sized.h"
#include "engine/engine_each.h"
#include "engine/engine_fork.h"
#include "engine/engine_limits.h"
#include "engine/engine_lock.h"
#include "engine/engine_workers.h"
#include "engine/nccl.h"
#include "memory/pool/pool.h"
#include <limits.h>
#include <loch/buffer.h>
#include <loch/direct.h>
#include <loch/driver.h>
#include <stdio.h>

#define ENGINE_NAME_MAX 64       /* for names of the engine's parts */
#define ENGINE_THREAD_NAME_MAX 9 /* a thread's name has 15 characters and ends with seat and number: "-12-34" */

/* --- opening --- */

/* The options that one engine is opened with. */
typedef struct engine_plan {
    loch_engine_options options;
    loch_engine_device *wishes; /* one entry for each seat */
} engine_plan;

static loch_status engine_read_wish(const void *given, size_t stride, loch_engine_device *out)
{
    out->size = sizeof *out;
    LOCH_TRY_RETURN(lochi_sized_read("an entry of the table", given, out, sizeof *out));
    if (*(const size_t *)given != stride)
        return LOCH_FAIL(INVALID, "the entries of the device table have different values of `size`");
    return lochi_engine_check_wish(out);
}

/* Reads the table of devices. The caller's entries may be shorter than ours: the size in the first entry is the
 * distance between them. */
static loch_status engine_read_table(engine_plan *plan)
{
    const loch_engine_options *options = &plan->options;
    if (!options->devices || !options->devices_count || options->devices_count > UINT_MAX)
        return LOCH_FAIL(INVALID, "an engine needs a table of at least one device");
    const size_t stride = options->devices->size;
    if (stride < sizeof stride || stride % _Alignof(loch_engine_device))
        return LOCH_FAIL(INVALID, "seat 0: the entry of the device table has no size set");
    plan->wishes = lochi_alloc_array(options->devices_count, sizeof *plan->wishes);
    if (!plan->wishes) return LOCH_FAIL(HOST_MEMORY, "no host memory for %zu seats", options->devices_count);
    memset(plan->wishes, 0, options->devices_count * sizeof *plan->wishes);
    for (unsigned i = 0; i < options->devices_count; i++) {
        const loch_status status =
            engine_read_wish((const char *)options->devices + i * stride, stride, &plan->wishes[i]);
        if (status != LOCH_OK) return lochi_engine_fail_at(i, status);
    }
    return LOCH_OK;
}

static loch_status engine_read_options(engine_plan *plan, const loch_engine_options *given)
{
    plan->options.size = sizeof plan->options;
    LOCH_TRY_RETURN(lochi_sized_read("a struct of engine options", given, &plan->options, sizeof plan->options));
    if ((unsigned)plan->options.memory > LOCH_ENGINE_DIRECT)
        return LOCH_FAIL(INVALID, "%d is not a loch_engine_memory value", (int)plan->options.memory);
    return engine_read_table(plan);
}

static loch_status engine_open_devices(loch_engine *engine, const engine_plan *plan)
{
    for (unsigned i = 0; i < engine->count; i++) {
        const loch_status status = loch_device_open(plan->wishes[i].name, &engine->seats[i].device);
        if (status != LOCH_OK) return lochi_engine_fail_at(i, status);
    }
    return LOCH_OK;
}

/* Finds out whether work of `from` may use memory of `to`. A "no" is not a failure, and leaves the error record
 * unchanged. */
static loch_status engine_connect_pair(loch_device *from, loch_device *to, bool *out)
{
    *out = from == to || (loch_device_can(from, LOCH_CAN_HOST_ACCESS) && loch_device_can(to, LOCH_CAN_HOST_ACCESS));
    if (*out || loch_device_get_driver(from, NULL) != loch_device_get_driver(to, NULL)) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    const loch_status status = loch_device_enable_peer(from, to);
    *out = status == LOCH_OK;
    if (status != LOCH_E_UNSUPPORTED) return status;
    lochi_error_restore(&saved);
    return LOCH_OK;
}

static loch_status engine_connect(loch_engine *engine)
{
    for (unsigned from = 0; from < engine->count; from++)
        for (unsigned to = 0; to < engine->count; to++) {
            const loch_status status = engine_connect_pair(engine->seats[from].device, engine->seats[to].device,
                                                           &engine->reaches[(size_t)from * engine->count + to]);
            if (status != LOCH_OK) return lochi_engine_fail_at(from, status);
        }
    return LOCH_OK;
}

/* Opens the memory of a seat's pool to every device that can reach it. Each mapping is opened separately. */
static loch_status engine_open_to_peers(const loch_engine *engine, unsigned number)
{
    const lochi_seat *seats = engine->seats, *seat = &seats[number];
    loch_device **peers = lochi_alloc_array(engine->count, sizeof(loch_device *));
    if (!peers) return LOCH_FAIL(HOST_MEMORY, "no host memory for a list of %u devices", engine->count);
    size_t count = 0;
    for (unsigned i = 0; i < engine->count; i++) {
        bool is_new = engine->reaches[(size_t)i * engine->count + number] && seats[i].device != seat->device &&
                      loch_device_can(seat->device, LOCH_CAN_PEER);
        for (size_t k = 0; k < count; k++)
            is_new &= peers[k] != seats[i].device;
        if (is_new) peers[count++] = seats[i].device;
    }
    const loch_status status = lochi_pool_open_to(seat->allocator, peers, count);
    lochi_free(peers);
    return status;
}

static loch_status engine_open_memory(loch_engine *engine, lochi_seat *seat, const loch_engine_device *wish,
                                      const char *name)
{
    loch_pool_options pool = {.size = sizeof pool};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of pool options", wish->pool, &pool, sizeof pool));
    pool.limit_bytes = seat->limit_bytes;
    if (!engine->is_direct) return loch_pool_create(seat->device, name, &pool, &seat->allocator);
    const loch_direct_options direct = {.size = sizeof direct, .kind = pool.kind, .limit_bytes = seat->limit_bytes};
    return loch_direct_create(seat->device, name, &direct, &seat->allocator);
}

static loch_status engine_open_seat(loch_engine *engine, const engine_plan *plan, unsigned number)
{
    lochi_seat *seat = &engine->seats[number];
    const loch_engine_device *wish = &plan->wishes[number];
    char name[ENGINE_NAME_MAX];
    snprintf(name, sizeof name, "%.24s-%u %.24s", engine->name, number, loch_device_get_name(seat->device));
    LOCH_TRY_RETURN(engine_open_memory(engine, seat, wish, name));
    if (!engine->is_direct) LOCH_TRY_RETURN(engine_open_to_peers(engine, number));
    const loch_stream_pool_options streams = {.size = sizeof streams, .kept_streams = plan->options.kept_streams};
    return loch_stream_pool_create(seat->device, &streams, &seat->streams);
}

static loch_status engine_open_seats(loch_engine *engine, const engine_plan *plan)
{
    for (unsigned i = 0; i < engine->count; i++) {
        const loch_status status = engine_open_seat(engine, plan, i);
        if (status != LOCH_OK) return lochi_engine_fail_at(i, status);
    }
    const loch_timeline_options silent = {.size = sizeof silent, .level = -1};
    LOCH_TRY_RETURN(loch_timeline_create(plan->options.timeline ? plan->options.timeline : &silent, &engine->timeline));
    for (unsigned i = 0; i < engine->count; i++) {
        char name[ENGINE_NAME_MAX];
        snprintf(name, sizeof name, "%.*s-%u", ENGINE_THREAD_NAME_MAX, engine->name, i);
        const loch_status status = lochi_engine_open_workers(&engine->seats[i], &plan->wishes[i], name);
        if (status != LOCH_OK) return lochi_engine_fail_at(i, status);
    }
    return LOCH_OK;
}

/* Makes an engine with empty tables. */
static loch_engine *engine_make(const engine_plan *plan)
{
    const size_t count = plan->options.devices_count;
    size_t pairs, bytes;
    if (!lochi_mul(count, count, &pairs) || !lochi_mul(count, sizeof(lochi_seat), &bytes)) return NULL;
    loch_engine *engine = lochi_zalloc(sizeof *engine);
    if (!engine) return NULL;
    lochi_lock_init(&engine->lock, LOCHI_RANK_ENGINE);
    lochi_engine_each_init(engine);
    lochi_engine_enter_forks(engine);
    engine->name = lochi_strdup(plan->options.name ? plan->options.name : "engine");
    engine->reaches = lochi_zalloc(pairs * sizeof *engine->reaches);
    engine->seats = lochi_zalloc(bytes);
    if (!engine->seats) return engine;
    engine->count = (unsigned)count;
    for (unsigned i = 0; i < engine->count; i++)
        lochi_seat_lock_init(&engine->seats[i].lock);
    return engine;
}

static loch_status engine_open(loch_engine *engine, const engine_plan *plan)
{
    if (!engine || !engine->name || !engine->reaches || !engine->seats)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for an engine with %zu seats", plan->options.devices_count);
    LOCH_TRY_RETURN(lochi_option_switch("direct_memory", &engine->is_direct));
    engine->is_direct |= plan->options.memory == LOCH_ENGINE_DIRECT;
    LOCH_TRY_RETURN(engine_open_devices(engine, plan));
    LOCH_TRY_RETURN(lochi_engine_set_limits(engine, plan->wishes));
    LOCH_TRY_RETURN(engine_connect(engine));
    return engine_open_seats(engine, plan);
}

/* --- ending --- */

/* Gives back everything that an engine has. No thread of the engine may run any more. */
static void engine_destroy(loch_engine *engine)
{
    if (!engine) return;
    lochi_fork_leave(&engine->in_forks);
    loch_timeline_destroy(engine->timeline);
    for (unsigned i = 0; i < engine->count; i++)
        loch_stream_pool_destroy(engine->seats[i].streams);
    lochi_nccl_destroy(engine->nccl);
    for (unsigned i = 0; i < engine->count; i++) {
        loch_allocator_release(engine->seats[i].allocator);
        loch_device_release(engine->seats[i].device);
        lochi_seat_lock_fini(&engine->seats[i].lock);
    }
    lochi_engine_each_fini(engine);
    lochi_lock_fini(&engine->lock);
    lochi_free(engine->seats);
    lochi_free(engine->reaches);
    lochi_free(engine->name);
    lochi_free(engine);
}

loch_status loch_engine_open(const loch_engine_options *options, loch_engine **out)
{
    if (out) *out = NULL;
    if (!options || !out)
        return LOCH_FAIL(INVALID, "loch_engine_open needs options with a table of devices, and an out pointer");
    engine_plan plan = {.wishes = NULL};
    loch_engine *engine = NULL;
    loch_status status = engine_read_options(&plan, options);
    if (status == LOCH_OK) {
        engine = engine_make(&plan);
        status = engine_open(engine, &plan);
    }
    lochi_free(plan.wishes);
    if (status == LOCH_OK) {
        *out = engine;
        return LOCH_OK;
    }
    const loch_error saved = lochi_error_save();
    if (engine) (void)lochi_engine_end_workers(engine, LOCH_WORKERS_CANCEL, NULL);
    engine_destroy(engine);
    lochi_error_restore(&saved);
    return status;
}

/* Counts the blocks that are live when an engine is closed. */
typedef struct engine_count {
    loch_block_visitor *visitor; /* NULL after it has asked to stop */
    void *user;
    loch_engine_leaks leaks;
} engine_count;

static loch_status engine_count_block(const loch_block *block, void *user)
{
    engine_count *count = user;
    count->leaks.blocks++;
    count->leaks.bytes += block->requested_bytes;
    if (count->visitor && count->visitor(block, count->user) != LOCH_OK) count->visitor = NULL;
    return LOCH_OK;
}

/* Counts leaks. A block that is released but waits for streams is not a leak. */
static loch_status engine_count_leaks(const loch_engine *engine, engine_count *count)
{
    loch_status first = LOCH_OK;
    if (loch_buffer_collect(LOCH_WAIT_END, NULL) != LOCH_OK)
        LOCHI_LOG(WARNING, "released memory could not be given back when the engine closed: %s",
                  loch_error_get()->sentence);
    for (unsigned i = 0; i < engine->count; i++) {
        loch_status status = loch_allocator_walk(engine->seats[i].allocator, engine_count_block, count);
        if (status == LOCH_OK) status = lochi_pool_walk_family(engine->seats[i].allocator, engine_count_block, count);
        if (first == LOCH_OK && status != LOCH_OK) first = lochi_engine_fail_at(i, status);
    }
    return first;
}

/* Closes an engine to all threads except its workers. E_BUSY: a context exists, or a thread holds the lock of a
 * seat. */
static loch_status engine_begin_end(loch_engine *engine)
{
    if (lochi_engine_find_worker(engine) < engine->count)
        return LOCH_FAIL(BUSY, "engine \"%.80s\" cannot be closed by one of its own workers", engine->name);
    if (lochi_engine_is_locked_outside(engine))
        return LOCH_FAIL(BUSY, "a thread holds the lock of a seat of engine \"%.80s\"", engine->name);
    lochi_lock_take(&engine->lock);
    const size_t contexts = engine->contexts;
    const bool is_ending = engine->is_ending;
    if (!contexts) engine->is_ending = true;
    lochi_lock_drop(&engine->lock);
    if (is_ending) return LOCH_FAIL(BUSY, "another thread is closing engine \"%.80s\"", engine->name);
    if (contexts) return LOCH_FAIL(BUSY, "%zu contexts of engine \"%.80s\" still exist", contexts, engine->name);
    return LOCH_OK;
}

loch_status loch_engine_close(loch_engine *engine, loch_workers_closing how, loch_block_visitor *visitor, void *user,
                              loch_engine_leaks *leaks)
{
    if ((unsigned)how > LOCH_WORKERS_CANCEL)
        return LOCH_FAIL(INVALID, "%d is not a loch_workers_closing value", (int)how);
    if (leaks && !lochi_sized_is_set(leaks)) return LOCH_FAIL(INVALID, "the struct for leaks has no size set");
    engine_count count = {visitor, user, {.size = sizeof *leaks}};
    loch_status status = LOCH_OK;
    if (engine) {
        LOCH_TRY_RETURN(engine_begin_end(engine));
        status = lochi_engine_end_workers(engine, how, &count.leaks.tasks_cancelled);
        if (engine->contexts)
            LOCHI_LOG(WARNING, "%zu contexts were not destroyed by the workers that made them", engine->contexts);
        const loch_error saved = lochi_error_save();
        const loch_status counted = engine_count_leaks(engine, &count);
        const loch_error later = lochi_error_save();
        engine_destroy(engine);
        lochi_error_restore(status == LOCH_OK && counted != LOCH_OK ? &later : &saved);
        if (status == LOCH_OK) status = counted;
    }
    if (leaks) lochi_sized_write(leaks, &count.leaks, sizeof count.leaks);
    return status;
}

/* --- parts of an engine --- */

unsigned loch_engine_count(const loch_engine *engine)
{
    return engine ? engine->count : 0;
}

loch_device *loch_engine_get_device(const loch_engine *engine, loch_seat seat)
{
    const lochi_seat *found = lochi_engine_seat(engine, seat);
    return found ? found->device : NULL;
}

loch_allocator *loch_engine_get_allocator(const loch_engine *engine, loch_seat seat)
{
    const lochi_seat *found = lochi_engine_seat(engine, seat);
    return found ? found->allocator : NULL;
}

loch_workers *loch_engine_get_workers(const loch_engine *engine, loch_seat seat)
{
    const lochi_seat *found = lochi_engine_seat(engine, seat);
    return found ? found->workers : NULL;
}

loch_stream_pool *loch_engine_get_streams(const loch_engine *engine, loch_seat seat)
{
    const lochi_seat *found = lochi_engine_seat(engine, seat);
    return found ? found->streams : NULL;
}

loch_timeline *loch_engine_get_timeline(const loch_engine *engine)
{
    return engine ? engine->timeline : NULL;
}

int loch_engine_can_reach(const loch_engine *engine, loch_seat from, loch_seat to)
{
    return lochi_engine_seat(engine, from) && lochi_engine_seat(engine, to) &&
           engine->reaches[(size_t)from.number * engine->count + to.number];
}

/* Creates the NCCL communicators. The lock is held meanwhile: two threads that create communicators at the same time
 * would deadlock in NCCL. */
static loch_status engine_make_nccl(loch_engine *engine)
{
    lochi_lock_assert_held(&engine->lock);
    loch_device **devices = lochi_alloc_array(engine->count, sizeof(loch_device *));
    if (!devices) return LOCH_FAIL(HOST_MEMORY, "no host memory for a list of %u devices", engine->count);
    for (unsigned i = 0; i < engine->count; i++)
        devices[i] = engine->seats[i].device;
    const loch_status status = lochi_nccl_create(devices, engine->count, &engine->nccl);
    lochi_free(devices);
    return status;
}

loch_status loch_engine_require_nccl(loch_engine *engine, loch_nccl **out)
{
    if (out) *out = NULL;
    if (!engine || !out) return LOCH_FAIL(INVALID, "loch_engine_require_nccl needs an engine and an out pointer");
    loch_status status = LOCH_OK;
    lochi_lock_take(&engine->lock);
    if (!engine->nccl) status = engine_make_nccl(engine);
    *out = engine->nccl;
    lochi_lock_drop(&engine->lock);
    return status;
}
