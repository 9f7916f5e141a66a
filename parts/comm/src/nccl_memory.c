/* SPDX-License-Identifier: MIT */
/* Memory that is registered with NCCL: ranges of pools, and windows.
 *
 * A range is what a pool holds around a tensor, without a gap: one registration serves all tensors in it. It is found
 * by a walk over the pool when a call first uses memory that lies in no registered range. An observer of the device
 * ends registrations before their memory goes. If only a part of a range goes, other tensors in it may be in use by
 * work in progress, and the device is waited for first. */
#include "nccl_memory.h"
#include "kit/fail.h"
#include <loch/observer.h>
#include <stdlib.h>

typedef struct memory_range {
    uintptr_t begin, end;
    void *handle; /* of NCCL; may be NULL where NCCL registers nothing */
} memory_range;

typedef struct memory_window {
    loch_buffer *buffer; /* retained and pinned */
    void *native;        /* written by a thread of NCCL until its call has ended */
} memory_window;

struct comm_memory {
    bool is_observing;
    memory_range *ranges; /* guarded by the lock of the engine, like all below */
    size_t ranges_count, ranges_capacity;
    size_t hit;               /* range that was found last */
    uintptr_t miss, miss_end; /* memory for which there is no range */
    uint64_t generation;      /* how often memory of the device went */
    memory_window **windows;
    size_t windows_count, windows_capacity;
    uint64_t registrations, deregistrations;
    _Atomic uint64_t calls_registered;
};

/* --- ranges --- */

static const memory_range *memory_find(comm_memory *memory, uintptr_t begin, uintptr_t end)
{
    if (memory->hit < memory->ranges_count && memory->ranges[memory->hit].begin <= begin &&
        end <= memory->ranges[memory->hit].end)
        return &memory->ranges[memory->hit];
    for (size_t i = 0; i < memory->ranges_count; i++)
        if (memory->ranges[i].begin <= begin && end <= memory->ranges[i].end) {
            memory->hit = i;
            return &memory->ranges[i];
        }
    return NULL;
}

typedef struct memory_search {
    uintptr_t begin, end;
    uintptr_t range_begin, range_end; /* 0 until found */
} memory_search;

static loch_status memory_visit(const loch_memory_piece *piece, void *user)
{
    memory_search *search = user;
    const uintptr_t begin = (uintptr_t)piece->range_address, end = begin + piece->range_bytes;
    if (begin > search->begin || search->end > end) return LOCH_OK;
    search->range_begin = begin;
    search->range_end = end;
    return LOCH_E_CANCELLED; /* found: the walk ends */
}

/* Registers a range. The lock is held. */
static void memory_register(loch_comm *comm, comm_memory *memory, const memory_search *search)
{
    comm_nccl *nccl = comm->below;
    comm_frame frame;
    if (!nccl->native || lochi_comm_frame_enter(comm, &frame) != LOCH_OK) return;
    if (memory->ranges_count == memory->ranges_capacity) {
        const size_t capacity = memory->ranges_capacity ? 2 * memory->ranges_capacity : 8;
        memory_range *ranges = realloc(memory->ranges, capacity * sizeof *ranges);
        if (!ranges) goto end;
        memory->ranges = ranges;
        memory->ranges_capacity = capacity;
    }
    memory_range *range = &memory->ranges[memory->ranges_count];
    *range = (memory_range){.begin = search->range_begin, .end = search->range_end};
    if (nccl->api->ncclCommRegister(nccl->native, (void *)range->begin, range->end - range->begin, &range->handle) ==
        COMM_NCCL_SUCCESS) {
        memory->hit = memory->ranges_count++;
        memory->registrations++;
    }
end:
    lochi_comm_frame_leave(&frame);
}

/* Ends a registration. The lock is held. */
static void memory_deregister(loch_comm *comm, comm_memory *memory, size_t index)
{
    comm_nccl *nccl = comm->below;
    comm_frame frame;
    if (nccl->native && memory->ranges[index].handle && lochi_comm_frame_enter(comm, &frame) == LOCH_OK) {
        nccl->api->ncclCommDeregister(nccl->native, memory->ranges[index].handle);
        lochi_comm_frame_leave(&frame);
    }
    memory->ranges[index] = memory->ranges[--memory->ranges_count];
    memory->deregistrations++;
}

/* Tells whether memory is registered, or known to be in no range: `is_over` says that there is nothing to look for. */
static bool memory_know(comm_nccl *nccl, const memory_search *search, bool *is_over, uint64_t *generation)
{
    comm_memory *memory = nccl->memory;
    pthread_mutex_lock(&nccl->lock);
    const bool is_found = memory_find(memory, search->begin, search->end);
    *is_over = is_found || (search->begin >= memory->miss && search->end <= memory->miss_end);
    *generation = memory->generation;
    pthread_mutex_unlock(&nccl->lock);
    return is_found;
}

/* Registers what a walk has found, unless memory went meanwhile: the walk may have seen what is no longer there. */
static bool memory_note(loch_comm *comm, comm_nccl *nccl, const memory_search *search, uint64_t generation)
{
    comm_memory *memory = nccl->memory;
    pthread_mutex_lock(&nccl->lock);
    const bool is_current = memory->generation == generation;
    if (is_current && search->range_end && !memory_find(memory, search->begin, search->end))
        memory_register(comm, memory, search);
    const bool is_found = memory_find(memory, search->begin, search->end);
    if (is_current && !is_found) {
        memory->miss = search->begin;
        memory->miss_end = search->end;
    }
    pthread_mutex_unlock(&nccl->lock);
    return is_found;
}

/* Finds the range around a tensor in its pool, and registers it. Returns whether the tensor's memory is registered. The
 * walk takes the pool's lock, which the pool holds when it calls the observer: the engine's lock is not held here. */
static bool memory_need_one(loch_comm *comm, comm_nccl *nccl, const comm_use *use)
{
    void *address;
    uint64_t generation;
    bool is_over;
    const size_t bytes = loch_tensor_get_bytes(use->tensor);
    if (!bytes || loch_tensor_get_address(use->tensor, &address) != LOCH_OK) return true;
    memory_search search = {.begin = (uintptr_t)address, .end = (uintptr_t)address + bytes};
    const bool is_known = memory_know(nccl, &search, &is_over, &generation);
    if (is_over) return is_known;
    loch_allocator *allocator = loch_buffer_get_allocator(loch_tensor_get_buffer(use->tensor));
    const loch_error before = *loch_error_get();
    const loch_status walked = allocator ? loch_pool_walk_memory(allocator, memory_visit, &search) : LOCH_OK;
    if (walked != LOCH_OK && before.status != LOCH_OK) lochi_comm_error_restore(&before);
    return memory_note(comm, nccl, &search, generation);
}

void lochi_comm_memory_need(loch_comm *comm, const comm_use *uses, size_t count)
{
    comm_nccl *nccl = comm->below;
    if (comm->registration == LOCH_COMM_REGISTER_NOTHING || !nccl->api->ncclCommRegister) return;
    bool is_all = true;
    for (size_t i = 0; i < count; i++)
        is_all = memory_need_one(comm, nccl, &uses[i]) && is_all;
    atomic_fetch_add_explicit(&nccl->memory->calls_registered, is_all, memory_order_relaxed);
}

/* --- the observer --- */

/* Returns whether a registered range overlaps, and whether it reaches beyond. The lock is held. */
static bool memory_overlaps(const comm_memory *memory, uintptr_t begin, uintptr_t end, bool *is_beyond)
{
    bool is_found = false;
    for (size_t i = 0; i < memory->ranges_count; i++) {
        const memory_range *range = &memory->ranges[i];
        if (range->begin >= end || begin >= range->end) continue;
        is_found = true;
        *is_beyond = *is_beyond || range->begin < begin || range->end > end;
    }
    return is_found;
}

static void memory_observe(loch_range_event event, const loch_range *range, void *user)
{
    if (event != LOCH_RANGE_GOING) return;
    loch_comm *comm = user;
    comm_nccl *nccl = comm->below;
    comm_memory *memory = nccl->memory;
    const uintptr_t begin = (uintptr_t)range->address, end = begin + range->bytes;
    bool is_beyond = false;
    pthread_mutex_lock(&nccl->lock);
    memory->generation++;
    memory->miss = memory->miss_end = 0;
    const bool is_found = memory_overlaps(memory, begin, end, &is_beyond);
    if (is_found && is_beyond && nccl->native) {
        const loch_status waited = loch_device_sync(comm->device);
        (void)waited; /* a device that is lost has no work in progress */
    }
    for (size_t i = memory->ranges_count; i-- > 0;)
        if (memory->ranges[i].begin < end && begin < memory->ranges[i].end) memory_deregister(comm, memory, i);
    pthread_mutex_unlock(&nccl->lock);
}

/* --- windows --- */

static memory_window **memory_find_window(comm_memory *memory, const loch_buffer *buffer)
{
    for (size_t i = 0; i < memory->windows_count; i++)
        if (memory->windows[i]->buffer == buffer) return &memory->windows[i];
    return NULL;
}

static loch_status memory_make_window(loch_comm *comm, memory_window *window, void *address)
{
    comm_nccl *nccl = comm->below;
    comm_frame frame;
    LOCH_RETURN(lochi_comm_failure_get(comm));
    LOCH_RETURN(lochi_comm_frame_enter(comm, &frame));
    const size_t bytes = loch_buffer_get_bytes(window->buffer);
    const loch_status status = lochi_comm_native_settle(
        comm,
        nccl->api->ncclCommWindowRegister(nccl->native, address, bytes, &window->native, COMM_NCCL_WIN_COLL_SYMMETRIC),
        "ncclCommWindowRegister");
    lochi_comm_frame_leave(&frame);
    if (status == LOCH_OK && !window->native)
        return LOCH_FAIL(UNSUPPORTED,
                         "NCCL makes no window of this memory: the ranks need a fast connection, and the pool "
                         "LOCH_SHARE_FD");
    return status;
}

static loch_status memory_take_window(loch_comm *comm, memory_window *window, loch_buffer *buffer)
{
    comm_nccl *nccl = comm->below;
    void *address;
    LOCH_RETURN(loch_buffer_pin(buffer, NULL, &address));
    window->buffer = loch_buffer_retain(buffer);
    if ((uintptr_t)address % COMM_NCCL_WINDOW_ALIGNMENT)
        return LOCH_FAIL(INVALID, "a window begins at a multiple of %d bytes: give the buffer that alignment",
                         COMM_NCCL_WINDOW_ALIGNMENT);
    pthread_mutex_lock(&nccl->lock);
    const loch_status status = memory_make_window(comm, window, address);
    pthread_mutex_unlock(&nccl->lock);
    return status;
}

static void memory_drop_window(memory_window *window)
{
    if (window->buffer) {
        const loch_status ended = loch_buffer_unpin(window->buffer, NULL);
        (void)ended; /* it was pinned here */
        loch_buffer_release(window->buffer);
    }
    free(window);
}

loch_status lochi_comm_memory_add_window(loch_comm *comm, loch_buffer *buffer)
{
    comm_nccl *nccl = comm->below;
    comm_memory *memory = nccl->memory;
    if (!nccl->api->ncclCommWindowRegister || !nccl->api->ncclCommWindowDeregister)
        return LOCH_FAIL(UNSUPPORTED, "NCCL %s has no windows: 2.27 has", comm->version);
    if (loch_buffer_get_device(buffer) != comm->device)
        return LOCH_FAIL(INVALID, "the buffer of a window is not on the device of its communicator");
    if (memory_find_window(memory, buffer)) return LOCH_FAIL(EXISTS, "the buffer has a window already");
    if (memory->windows_count == memory->windows_capacity) {
        const size_t capacity = memory->windows_capacity ? 2 * memory->windows_capacity : 4;
        memory_window **windows = realloc(memory->windows, capacity * sizeof *windows);
        if (!windows) return LOCH_FAIL(HOST_MEMORY, "no host memory for a window");
        memory->windows = windows;
        memory->windows_capacity = capacity;
    }
    memory_window *window = calloc(1, sizeof *window);
    if (!window) return LOCH_FAIL(HOST_MEMORY, "no host memory for a window");
    const loch_status status = memory_take_window(comm, window, buffer);
    if (status != LOCH_OK) {
        const loch_error error = *loch_error_get();
        memory_drop_window(window);
        return lochi_comm_error_restore(&error);
    }
    pthread_mutex_lock(&nccl->lock); /* figures are read by any thread */
    memory->windows[memory->windows_count++] = window;
    pthread_mutex_unlock(&nccl->lock);
    return LOCH_OK;
}

/* Ends a window with NCCL. */
static loch_status memory_end_window(loch_comm *comm, const memory_window *window)
{
    comm_nccl *nccl = comm->below;
    comm_frame frame;
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&nccl->lock);
    if (nccl->native && lochi_comm_frame_enter(comm, &frame) == LOCH_OK) {
        status = lochi_comm_native_settle(comm, nccl->api->ncclCommWindowDeregister(nccl->native, window->native),
                                          "ncclCommWindowDeregister");
        lochi_comm_frame_leave(&frame);
    }
    pthread_mutex_unlock(&nccl->lock);
    return status;
}

loch_status lochi_comm_memory_remove_window(loch_comm *comm, loch_buffer *buffer)
{
    comm_nccl *nccl = comm->below;
    comm_memory *memory = nccl->memory;
    memory_window **found = memory_find_window(memory, buffer);
    if (!found) return LOCH_FAIL(NOT_FOUND, "the buffer has no window");
    memory_window *window = *found;
    pthread_mutex_lock(&nccl->lock);
    *found = memory->windows[--memory->windows_count];
    pthread_mutex_unlock(&nccl->lock);
    const loch_status status = memory_end_window(comm, window);
    const loch_error error = *loch_error_get();
    memory_drop_window(window);
    return status == LOCH_OK ? LOCH_OK : lochi_comm_error_restore(&error);
}

/* --- creation --- */

loch_status lochi_comm_memory_create(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    nccl->memory = calloc(1, sizeof *nccl->memory);
    if (!nccl->memory) return LOCH_FAIL(HOST_MEMORY, "no host memory for registrations");
    LOCH_RETURN(loch_observer_add(comm->device, memory_observe, comm));
    nccl->memory->is_observing = true;
    return LOCH_OK;
}

void lochi_comm_memory_destroy(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    comm_memory *memory = nccl->memory;
    if (!memory) return;
    if (memory->is_observing) {
        const loch_status removed = loch_observer_remove(comm->device, memory_observe, comm);
        (void)removed; /* it was added */
    }
    while (memory->windows_count) {
        memory_window *window = memory->windows[--memory->windows_count];
        const loch_status ended = memory_end_window(comm, window);
        (void)ended; /* the communicator is destroyed anyway */
        memory_drop_window(window);
    }
    pthread_mutex_lock(&nccl->lock);
    while (memory->ranges_count)
        memory_deregister(comm, memory, memory->ranges_count - 1);
    pthread_mutex_unlock(&nccl->lock);
    free(memory->ranges);
    free(memory->windows);
    free(memory);
    nccl->memory = NULL;
}

void lochi_comm_memory_describe(const loch_comm *comm, loch_comm_info *out)
{
    comm_nccl *nccl = comm->below;
    const comm_memory *memory = nccl->memory;
    pthread_mutex_lock(&nccl->lock);
    out->registered_ranges = memory->ranges_count;
    for (size_t i = 0; i < memory->ranges_count; i++)
        out->registered_bytes += memory->ranges[i].end - memory->ranges[i].begin;
    out->registrations = memory->registrations;
    out->deregistrations = memory->deregistrations;
    out->windows = memory->windows_count;
    out->calls_registered = atomic_load_explicit(&memory->calls_registered, memory_order_relaxed);
    pthread_mutex_unlock(&nccl->lock);
}
