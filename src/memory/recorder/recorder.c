/* SPDX-License-Identifier: MIT */
/* Starts and stops a recording.
 *
 * An allocator that is recorded has a number in `recorded`, and no `fast_pool`: so its calls leave the fast path
 * at its first test, find the number, and take a fast path that records. An allocator that is not recorded costs
 * nothing.
 *
 * Start makes the file or the ring, gives every allocator its number, and then walks the live blocks, which are
 * recorded as present. Other threads allocate and free meanwhile: a block that is present after its allocation was
 * recorded is known already, and one that is present after its free was recorded was live until then. */
#include "memory/recorder/recorder.h"
#include "kit/backoff.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/fence.h"
#include "base/fork.h"
#include "base/logging.h"
#include "base/options.h"
#include "kit/parse.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/calls.h"
#include "memory/owner.h"
#include "memory/pool/pool.h"
#include "memory/recorder/chunk.h"
#include "memory/recorder/clock.h"
#include "memory/recorder/names.h"
#include "memory/recorder/write.h"
#include <loch/observer.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORDER_RING_DEFAULT ((size_t)64 << 20)
#define RECORDER_RING_MIN ((size_t)1 << 20)
#define RECORDER_RING_MAX ((size_t)1 << 40)

/* --- single allocators --- */

/* Returns whether an allocator is to be recorded now. */
static bool recorder_concerns(const loch_allocator *allocator)
{
    const recorder_state *all = &lochi_recorder_all;
    return all->is_on && !allocator->wrapped && (!all->only || all->only == allocator) &&
           all->allocators <= RECORDER_NUMBER_MAX;
}

void lochi_recorder_apply(loch_allocator *allocator, struct lochi_pool *pool)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_take(&all->lock);
    if (pool) allocator->pool = pool;
    uint32_t recorded = atomic_load_explicit(&allocator->recorded, memory_order_relaxed);
    if (!recorder_concerns(allocator))
        recorded = 0;
    else if (!recorded)
        recorded = lochi_recorder_name_allocator(allocator) + 1;
    atomic_store_explicit(&allocator->recorded, recorded, memory_order_relaxed);
    atomic_store_explicit(&allocator->fast_pool, recorded ? NULL : allocator->pool, memory_order_relaxed);
    lochi_lock_drop(&all->lock);
}

/* Begins to record an allocator, or ends it. Calls that are on the other fast path have left it on return. */
static void recorder_visit(loch_allocator *allocator, void *user)
{
    (void)user;
    lochi_recorder_apply(allocator, NULL);
    if (!allocator->pool || !lochi_recorder_of(allocator)) return;
    lochi_pool_shut(allocator->pool);
    lochi_pool_go(allocator->pool);
}

static loch_status recorder_see_block(const loch_block *block, void *user)
{
    const loch_allocator *allocator = user;
    const uint64_t own = allocator->device->default_stream.id;
    lochi_growth growth = {.max_bytes = 0};
    if (allocator->pool) (void)lochi_pool_get_growth(allocator->pool, block->address, &growth);
    lochi_recorder_write_present(lochi_recorder_of(allocator), block, block->stream_id == own ? 0 : block->stream_id,
                                 growth.max_bytes);
    return LOCH_OK;
}

/* Records the live blocks of an allocator as present. */
static void recorder_see(loch_allocator *allocator, void *user)
{
    (void)user;
    if (!lochi_recorder_of(allocator) || !lochi_owner_may_ask(allocator)) return;
    const loch_error saved = lochi_error_save();
    if (loch_allocator_walk(allocator, recorder_see_block, allocator) != LOCH_OK)
        LOCHI_LOG(WARNING, "the live blocks of \"%s\" are not recorded: %s", allocator->name,
                  loch_error_get()->sentence);
    lochi_error_restore(&saved);
}

/* --- devices --- */

static bool recorder_concerns_device(const loch_device *device)
{
    return !lochi_recorder_all.only || lochi_recorder_all.only->device == device;
}

static void recorder_see_range(loch_range_event event, const loch_range *range, void *user)
{
    (void)user;
    if (recorder_concerns_device(range->device)) lochi_recorder_write_range(event, range);
}

static void recorder_see_call(const loch_device *device, loch_driver_call call, uint64_t ns)
{
    if (recorder_concerns_device(device)) lochi_recorder_write_call(device, call, ns);
}

/* --- stopping --- */

/* Keeps all threads out, and returns when none is recording. */
static void recorder_calm(void)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_lock_take(&all->lock);
    all->is_on = false;
    atomic_store_explicit(&all->is_full, false, memory_order_relaxed);
    for (size_t i = 0; i < LOCHI_SLOT_COUNT; i++)
        atomic_store_explicit(&lochi_recorder_threads[i].end, NULL, memory_order_relaxed);
    lochi_lock_drop(&all->lock);
    lochi_fence_heavy(); /* a thread that records sees the NULL, or this thread sees that it is busy */
    for (size_t i = 0; i < LOCHI_SLOT_COUNT; i++)
        for (unsigned turn = 0; atomic_load_explicit(&lochi_recorder_threads[i].busy, memory_order_acquire);)
            lochi_backoff(&turn);
}

static void recorder_reset_thread(recorder_thread *thread)
{
    thread->ticks = 0;
    thread->lost = thread->events = 0;
    memset(thread->streams, 0, sizeof thread->streams);
}

/* Ends a recording that was started, completely or in part. */
static void recorder_finish(void)
{
    recorder_state *all = &lochi_recorder_all;
    const loch_error saved = lochi_error_save();
    lochi_calls_listen(NULL);
    const loch_status removed = loch_observer_remove(NULL, recorder_see_range, NULL);
    (void)removed; /* a start that failed has added none */
    lochi_error_restore(&saved);
    recorder_calm();
    lochi_owner_visit(recorder_visit, NULL);
    lochi_lock_take(&all->lock);
    for (size_t i = 0; i < LOCHI_SLOT_COUNT; i++)
        lochi_recorder_give_up(&lochi_recorder_threads[i]);
    lochi_lock_drop(&all->lock);
    lochi_recorder_names_close();
    lochi_recorder_close();
    for (size_t i = 0; i < LOCHI_SLOT_COUNT; i++)
        recorder_reset_thread(&lochi_recorder_threads[i]);
    loch_device_release(all->clock);
    loch_allocator_release(all->only);
    all->clock = NULL;
    all->only = NULL;
    atomic_store_explicit(&all->phase, RECORDER_OFF, memory_order_release);
}

loch_status loch_recorder_stop(void)
{
    recorder_state *all = &lochi_recorder_all;
    unsigned phase = RECORDER_ON;
    if (!atomic_compare_exchange_strong_explicit(&all->phase, &phase, RECORDER_STOPPING, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return LOCH_FAIL(NOT_FOUND, "nothing is being recorded");
    char path[sizeof all->path];
    memcpy(path, all->path, sizeof path);
    recorder_finish();
    if (!all->full_error) return LOCH_OK;
    return LOCH_FAIL(IO, "recording to %.100s ended early: %s; %llu events are missing", path,
                     strerror(all->full_error), (unsigned long long)all->lost);
}

/* --- threads and forks --- */

/* Gives up the chunk of a thread that ends. */
static void recorder_thread_ends(uint32_t slot)
{
    recorder_state *all = &lochi_recorder_all;
    recorder_thread *thread = &lochi_recorder_threads[slot];
    atomic_store_explicit(&thread->busy, true, memory_order_relaxed);
    lochi_fence_light();
    lochi_lock_take(&all->lock);
    if (all->is_on) lochi_recorder_give_up(thread); /* otherwise the thread that stops does it */
    lochi_lock_drop(&all->lock);
    atomic_store_explicit(&thread->busy, false, memory_order_release);
}

static void recorder_forget(loch_allocator *allocator)
{
    atomic_store_explicit(&allocator->recorded, 0, memory_order_relaxed);
    atomic_store_explicit(&allocator->fast_pool, allocator->pool, memory_order_relaxed);
}

/* Ends the recording in the child of a fork, without writing: the file is the parent's. */
static void recorder_forked(void)
{
    recorder_state *all = &lochi_recorder_all;
    if (atomic_load_explicit(&all->phase, memory_order_relaxed) == RECORDER_OFF) return;
    all->is_on = false;
    lochi_calls_listen(NULL);
    lochi_owner_visit_forked(recorder_forget);
    for (size_t i = 0; i < LOCHI_SLOT_COUNT; i++) {
        recorder_thread *thread = &lochi_recorder_threads[i];
        lochi_recorder_abandon(thread);
        recorder_reset_thread(thread);
        atomic_store_explicit(&thread->busy, false, memory_order_relaxed);
    }
    lochi_recorder_names_close();
    lochi_recorder_drop();
    atomic_store_explicit(&all->phase, RECORDER_FORKED, memory_order_relaxed);
}

/* Gives back what the recording of the parent held. */
static void recorder_settle(void)
{
    recorder_state *all = &lochi_recorder_all;
    if (atomic_load_explicit(&all->phase, memory_order_relaxed) != RECORDER_FORKED) return;
    const loch_error saved = lochi_error_save();
    const loch_status removed = loch_observer_remove(NULL, recorder_see_range, NULL);
    (void)removed;
    lochi_error_restore(&saved);
    loch_device_release(all->clock);
    loch_allocator_release(all->only);
    all->clock = NULL;
    all->only = NULL;
    atomic_store_explicit(&all->phase, RECORDER_OFF, memory_order_release);
}

static lochi_fork_part recorder_part = {.child = recorder_forked, .settle = recorder_settle};

/* --- starting --- */

static loch_status recorder_read_options(const loch_recorder_options *given, loch_recorder_options *out)
{
    LOCH_TRY_RETURN(lochi_sized_read("a struct of recorder options", given, out, sizeof *out));
    if (out->path && !*out->path) return LOCH_FAIL(INVALID, "the path of a recording is empty");
    if (out->stack_depth > LOCH_RECORDER_STACK_MAX)
        return LOCH_FAIL(INVALID, "call stacks of %u frames are more than the %d that a recording can have",
                         (unsigned)out->stack_depth, LOCH_RECORDER_STACK_MAX);
    if (out->reserved) return LOCH_FAIL(INVALID, "the reserved member of the recorder options is not 0");
    if (!out->ring_bytes) out->ring_bytes = RECORDER_RING_DEFAULT;
    if (out->ring_bytes < RECORDER_RING_MIN || out->ring_bytes > RECORDER_RING_MAX)
        return LOCH_FAIL(OUT_OF_RANGE, "a ring of %s is not between %s and %s", LOCHI_SIZE(out->ring_bytes),
                         LOCHI_SIZE(RECORDER_RING_MIN), LOCHI_SIZE(RECORDER_RING_MAX));
    return LOCH_OK;
}

/* Copies a path and replaces "%p" by the process id. */
static loch_status recorder_expand(const char *path, char out[sizeof lochi_recorder_all.path])
{
    lochi_text text = lochi_text_begin(out, sizeof lochi_recorder_all.path);
    for (; *path; path++) {
        if (path[0] != '%' || path[1] != 'p') {
            lochi_text_write(&text, "%c", *path);
            continue;
        }
        lochi_text_write(&text, "%ld", (long)getpid());
        path++;
    }
    if (text.length >= sizeof lochi_recorder_all.path)
        return LOCH_FAIL(INVALID, "the path of a recording has more than %zu bytes",
                         sizeof lochi_recorder_all.path - 1);
    return LOCH_OK;
}

static loch_status recorder_begin(const loch_recorder_options *options)
{
    recorder_state *all = &lochi_recorder_all;
    all->path[0] = 0;
    all->full_error = 0;
    all->lost = all->sequence = all->file_chunks = all->file_bytes = 0;
    atomic_store_explicit(&all->is_full, false, memory_order_relaxed);
    atomic_store_explicit(&all->has_said_full, false, memory_order_relaxed);
    if (options->path) LOCH_TRY_RETURN(recorder_expand(options->path, all->path));
    all->depth = options->stack_depth;
    all->only = loch_allocator_retain(options->allocator);
    while (all->only && all->only->wrapped) {
        loch_allocator *inner = loch_allocator_retain(all->only->wrapped);
        loch_allocator_release(all->only);
        all->only = inner;
    }
    LOCH_TRY_RETURN(lochi_recorder_open(options->path ? all->path : NULL, options->ring_bytes));
    LOCH_TRY_RETURN(lochi_recorder_names_open());
    lochi_recorder_clock_open(loch_device_retain(options->clock));
    lochi_lock_take(&all->lock);
    all->is_on = true;
    all->generation++;
    lochi_lock_drop(&all->lock);
    lochi_owner_visit(recorder_visit, NULL);
    lochi_owner_visit(recorder_see, NULL);
    LOCH_TRY_RETURN(loch_observer_add(NULL, recorder_see_range, NULL));
    lochi_calls_listen(recorder_see_call);
    return LOCH_OK;
}

loch_status loch_recorder_start(const loch_recorder_options *options)
{
    LOCHI_NOT_CANCELLED;
    recorder_state *all = &lochi_recorder_all;
    loch_recorder_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(recorder_read_options(options, &read));
    unsigned phase = RECORDER_OFF;
    if (!atomic_compare_exchange_strong_explicit(&all->phase, &phase, RECORDER_STARTING, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return LOCH_FAIL(BUSY, "there is a recording already: stop it first");
    lochi_fence_prepare();
    lochi_fork_add(&recorder_part);
    lochi_thread_at_end(recorder_thread_ends);
    const loch_status status = recorder_begin(&read);
    if (status == LOCH_OK)
        atomic_store_explicit(&all->phase, RECORDER_ON, memory_order_release);
    else
        recorder_finish();
    return status;
}

/* --- by options --- */

static atomic_bool recorder_is_asked;     /* the options were read */
static atomic_bool recorder_is_by_option; /* the recording ends with the process */

static loch_status recorder_start_by_option(const char *path)
{
    loch_recorder_options options = {.size = sizeof options, .path = path};
    uint64_t depth = 0;
    LOCH_TRY_RETURN(lochi_option_number("trace_stacks", &depth));
    if (depth > LOCH_RECORDER_STACK_MAX)
        return LOCH_FAIL(INVALID, "LOCH_TRACE_STACKS is %llu: a recorded call stack has at most %d frames",
                         (unsigned long long)depth, LOCH_RECORDER_STACK_MAX);
    options.stack_depth = (uint32_t)depth;
    loch_status status = loch_recorder_start(&options);
    if (status == LOCH_E_BUSY &&
        atomic_load_explicit(&lochi_recorder_all.phase, memory_order_relaxed) == RECORDER_OFF) {
        /* A process that started this one writes to the file: take a file beside it. */
        char own[LOCH_OPTION_VALUE_MAX + 32];
        snprintf(own, sizeof own, "%s.%ld", path, (long)getpid());
        options.path = own;
        status = loch_recorder_start(&options);
    }
    if (status == LOCH_OK) atomic_store_explicit(&recorder_is_by_option, true, memory_order_relaxed);
    return status;
}

loch_status lochi_recorder_start_by_option(void)
{
    if (LOCHI_LIKELY(atomic_load_explicit(&recorder_is_asked, memory_order_relaxed))) return LOCH_OK;
    if (atomic_exchange_explicit(&recorder_is_asked, true, memory_order_relaxed)) return LOCH_OK;
    char path[LOCH_OPTION_VALUE_MAX];
    loch_status status = lochi_option_text("trace", path);
    if (status == LOCH_OK && path[0]) {
        if (atomic_load_explicit(&lochi_recorder_all.phase, memory_order_relaxed) == RECORDER_OFF)
            status = recorder_start_by_option(path);
        else
            LOCHI_LOG(WARNING, "LOCH_TRACE is ignored: the program records already");
    }
    /* A wrong value fails every allocator until it is corrected. */
    if (status != LOCH_OK) atomic_store_explicit(&recorder_is_asked, false, memory_order_relaxed);
    return status;
}

/* Ends the recording of LOCH_TRACE with the process. */
static __attribute__((destructor)) void recorder_at_exit(void)
{
    if (!atomic_load_explicit(&recorder_is_by_option, memory_order_relaxed)) return;
    const loch_status status = loch_recorder_stop();
    if (status != LOCH_OK && status != LOCH_E_NOT_FOUND) LOCHI_LOG(ERROR, "%s", loch_error_get()->sentence);
}
