/* SPDX-License-Identifier: MIT */
#include "source.h"
#include "beneath.h"
#include "classes.h"
#include "front.h"
#include <errno.h>
#include <loch/device.h>
#include <loch/host.h>
#include <loch/pool.h>

#define SOURCE_IDLE ((size_t)1 << 60)         /* no cap: free memory decays (decay.h) */
#define SOURCE_PAUSED_MAX ((size_t)256 << 10) /* larger requests may fail although the pool has memory */
#define SOURCE_PAUSE_MAX 4096

loch_allocator *_Atomic front_pool;

typedef struct source_thread {
    void *later;     /* blocks to free after the thread has left, linked by their first word */
    unsigned inside; /* nested calls */
    int error;       /* errno before the outermost call */
} source_thread;

static _Thread_local source_thread source_own __attribute__((tls_model("initial-exec")));

/* --- inside --- */

bool front_source_is_inside(void)
{
    return source_own.inside || !atomic_load_explicit(&front_pool, memory_order_acquire);
}

void front_source_enter(void)
{
    if (!source_own.inside++) source_own.error = errno;
}

void front_source_leave(void)
{
    if (source_own.inside > 1) {
        source_own.inside--;
        return;
    }
    errno = source_own.error;
    source_own.inside = 0;
    while (source_own.later) {
        void *address = source_own.later;
        source_own.later = *(void **)address;
        front_free(address);
    }
}

void front_source_postpone(void *address)
{
    *(void **)address = source_own.later;
    source_own.later = address;
}

/* --- start --- */

#ifndef FRONT_TESTED_ALONE
static void *source_host_alloc(size_t bytes, size_t alignment, void *user)
{
    (void)user;
    return alignment <= 2 * sizeof(void *) ? beneath_malloc(bytes) : beneath_memalign(alignment, bytes);
}

static void source_host_free(void *address, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    beneath_free(address);
}

/* Sends the bookkeeping of Loch to the allocator beneath. */
static loch_status source_set_host(void)
{
    const loch_host_allocator host = {sizeof host, source_host_alloc, source_host_free, NULL};
    return loch_host_set_allocator(&host);
}
#else
static loch_status source_set_host(void)
{
    return LOCH_OK;
}
#endif

bool front_source_start(void)
{
    loch_device *device = NULL;
    loch_allocator *pool = NULL;
    const loch_pool_options options = {.size = sizeof options, .idle_bytes = SOURCE_IDLE};
    front_source_enter();
    if (source_set_host() == LOCH_OK && loch_device_open("cpu", &device) == LOCH_OK &&
        loch_pool_create(device, "malloc", &options, &pool) != LOCH_OK)
        pool = NULL;
    loch_device_release(device); /* the pool keeps it open */
    atomic_store_explicit(&front_pool, pool, memory_order_release);
    front_source_leave();
    return pool != NULL;
}

/* --- a pool without memory --- */

/* A pool that has no memory left tries everything before it refuses, which takes time. A process with a limit on its
 * addresses may live long after that, on the allocator beneath. So after a refusal of a request that is not large, the
 * pool is not asked for a number of such requests, and for twice as many after each further refusal. A block that is
 * freed ends the pause: the pool has memory again. Both are relaxed: a thread that misses a change asks once too often
 * or too seldom. */
static atomic_uint source_pause;       /* requests for which the pool is not asked */
static atomic_uint source_pauses_next; /* length of the next pause */

static bool source_is_paused(size_t bytes)
{
    const unsigned left = atomic_load_explicit(&source_pause, memory_order_relaxed);
    if (!left || bytes > SOURCE_PAUSED_MAX) return false;
    atomic_store_explicit(&source_pause, left - 1, memory_order_relaxed);
    return true;
}

static void source_note(size_t bytes, bool is_refused)
{
    unsigned next = atomic_load_explicit(&source_pauses_next, memory_order_relaxed);
    if (bytes > SOURCE_PAUSED_MAX || (!is_refused && !next)) return;
    if (is_refused) {
        next = next ? 2 * next : 16;
        if (next > SOURCE_PAUSE_MAX) next = SOURCE_PAUSE_MAX;
        atomic_store_explicit(&source_pause, next, memory_order_relaxed);
    }
    atomic_store_explicit(&source_pauses_next, is_refused ? next : 0, memory_order_relaxed);
}

/* --- blocks --- */

static loch_allocator *source_pool(void)
{
    return atomic_load_explicit(&front_pool, memory_order_acquire);
}

void *front_source_alloc(size_t bytes, size_t alignment)
{
    if (source_is_paused(bytes)) return NULL;
    loch_allocator *pool = source_pool();
    const loch_request request = {.size = sizeof request, .bytes = bytes, .alignment = alignment};
    void *address = NULL;
    front_source_enter();
    /* The pool's fast path serves requests without an alignment. All sizes are multiples of a page, so the pool cuts at
     * pages, and the second request is for alignments above a page. */
    loch_status status = loch_alloc(pool, bytes, &address);
    if (status == LOCH_OK && ((uintptr_t)address & (alignment - 1))) {
        status = loch_free(pool, address);
        if (status == LOCH_OK) status = loch_allocator_alloc(pool, &request, &address);
    }
    front_source_leave();
    source_note(bytes, status != LOCH_OK);
    return status == LOCH_OK ? address : NULL;
}

void *front_source_realloc(void *address, size_t bytes)
{
    void *moved = NULL;
    front_source_enter();
    if (loch_allocator_realloc(source_pool(), address, bytes, NULL, &moved) != LOCH_OK) moved = NULL;
    front_source_leave();
    return moved;
}

void front_source_free(void *address)
{
    front_source_enter();
    const loch_status status = loch_free(source_pool(), address);
    (void)status; /* the page map had the block, so the pool has it */
    front_source_leave();
    if (atomic_load_explicit(&source_pause, memory_order_relaxed))
        atomic_store_explicit(&source_pause, 0, memory_order_relaxed);
}

size_t front_source_trim(size_t keep_bytes)
{
    size_t released = 0;
    front_source_enter();
    if (loch_allocator_trim(source_pool(), keep_bytes, &released) != LOCH_OK) released = 0;
    front_source_leave();
    return released;
}
