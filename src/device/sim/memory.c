/* SPDX-License-Identifier: MIT */
/* Memory of simulated devices: physical objects, and the kinds of memory that are one block (raw, pinned, managed,
 * registered, stream-ordered). virtual.c has the mappings of handles.
 *
 * On a backed device every object has contents, and every span has addresses of the process (backing.c). Pinned and
 * managed memory is real on unbacked devices too, because it is host memory. */
#include "device/sim/memory.h"
#include "base/checked.h"
#include "base/heap.h"
#include "kit/text.h"
#include "device/sim/backing.h"
#include "device/sim/call.h"
#include "device/sim/check.h"
#include "device/sim/clock.h"
#include "device/sim/fail.h"
#include "device/sim/object.h"
#include "device/sim/op.h"
#include "device/sim/order.h"
#include "device/sim/span.h"
#include "device/sim/stream.h"
#include <errno.h>
#include <sys/mman.h>

/* --- physical memory --- */

/* Returns the queued stream-ordered free that ends first; NULL if no free is queued. */
static lochi_sim_op *memory_next_free(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_op *found = NULL;
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        for (lochi_sim_op *op = stream->first; op; op = op->next)
            if (op->kind == LOCHI_SIM_FREE && (!found || lochi_sim_key_before(op->key, found->key))) found = op;
    return found;
}

static loch_status memory_charge(lochi_sim *sim, size_t bytes)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    while (bytes > sim->capacity - sim->used) {
        const lochi_sim_op *op = memory_next_free(sim);
        if (!op)
            return SIM_FAIL(DEVICE_MEMORY, "%s do not fit: the simulated device has %s (%s in use)", LOCHI_SIZE(bytes),
                            LOCHI_SIZE(sim->capacity), LOCHI_SIZE(sim->used));
        LOCH_TRY_RETURN(lochi_sim_wait(sim, op->key));
    }
    sim->used += bytes;
    if (sim->used > sim->used_peak) sim->used_peak = sim->used;
    return LOCH_OK;
}

loch_status lochi_sim_object_create(lochi_sim *sim, size_t bytes, size_t charged, lochi_sim_object **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(memory_charge(sim, charged));
    lochi_sim_object *object = lochi_zalloc(sizeof *object);
    if (!object) {
        sim->used -= charged;
        return SIM_FAIL(HOST_MEMORY, "no host memory to record %s of simulated memory", LOCHI_SIZE(bytes));
    }
    *object = (lochi_sim_object){.owner = sim,
                                 .bytes = bytes,
                                 .charged = charged,
                                 .references = 1,
                                 .token = -1,
                                 .is_backed = charged && sim->is_backed};
    object->next = sim->objects;
    if (sim->objects) sim->objects->prev = object;
    sim->objects = object;
    *out = object;
    return LOCH_OK;
}

/* --- blocks --- */

/* Computes how much of the capacity a block of `bytes` takes; false on overflow. */
static bool memory_rounded(const lochi_sim *sim, size_t bytes, size_t *out)
{
    return lochi_round_up(bytes, bytes < LOCHI_SIM_RAW_LARGE ? LOCHI_SIM_RAW_UNIT : sim->granule, out);
}

/* Finds addresses for a block. Host memory can be used there at once. */
static loch_status memory_place(lochi_sim *sim, lochi_sim_span *span, size_t alignment)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_sim_object *object = span->object;
    const bool is_host = span->kind != LOCH_MEMORY_DEVICE;
    if (!is_host && !object->is_backed) {
        LOCH_TRY_RETURN(lochi_sim_space_take(&sim->space, object->charged, alignment, &span->extent));
        span->node.key = span->extent->by_address.key;
        return LOCH_OK;
    }
    size_t host_bytes;
    if (!lochi_round_up(is_host ? span->bytes : object->charged, lochi_sim_page_bytes(), &host_bytes))
        return SIM_FAIL(OVERFLOW, "%zu bytes do not fit the address space", span->bytes);
    void *at = lochi_sim_host_reserve(host_bytes, alignment);
    if (!at || (is_host && mprotect(at, host_bytes, PROT_READ | PROT_WRITE) != 0)) {
        const int code = errno;
        if (at) munmap(at, host_bytes);
        if (!is_host)
            return SIM_FAIL_CODE(DEVICE_MEMORY, code, "the system has no %s left to back the device",
                                 LOCHI_SIZE(host_bytes));
        return SIM_FAIL_CODE(HOST_MEMORY, code, "the system has no %s of host memory left", LOCHI_SIZE(host_bytes));
    }
    span->node.key = (uintptr_t)at;
    span->host_bytes = host_bytes;
    span->is_real = true;
    span->is_mapped = is_host;
    return LOCH_OK;
}

static loch_status memory_block(lochi_sim *sim, loch_memory_kind kind, size_t bytes, size_t alignment,
                                lochi_sim_span **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    size_t charged = 0;
    if (kind == LOCH_MEMORY_DEVICE && !memory_rounded(sim, bytes, &charged))
        return SIM_FAIL(OVERFLOW, "%zu bytes do not fit the address space", bytes);
    lochi_sim_object *object;
    LOCH_TRY_RETURN(lochi_sim_object_create(sim, bytes, charged, &object));
    lochi_sim_span *span = lochi_zalloc(sizeof *span);
    loch_status status = LOCH_OK;
    if (!span) {
        status = SIM_FAIL(HOST_MEMORY, "no host memory to record a block of %s", LOCHI_SIZE(bytes));
    } else {
        *span = (lochi_sim_span){.bytes = bytes, .kind = kind, .object = object};
        status = memory_place(sim, span, alignment);
        if (status == LOCH_OK && sim->is_touched) status = lochi_sim_host_map(span);
    }
    if (status != LOCH_OK) {
        if (span && span->host_bytes) munmap((void *)span->node.key, span->host_bytes);
        lochi_free(span);
        lochi_sim_object_release(object);
        return status;
    }
    object->mappings++;
    lochi_tree_insert(&sim->spans, &span->node);
    *out = span;
    return LOCH_OK;
}

/* Finds the block that starts at an address and has that size and kind. */
static loch_status memory_find_block(lochi_sim *sim, loch_memory_kind kind, const void *address, size_t bytes,
                                     lochi_sim_span **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_span *span = lochi_sim_span_find(sim, (uintptr_t)address);
    if (!span || span->node.key != (uintptr_t)address || span->bytes != bytes || span->kind != kind ||
        span->reservation)
        return SIM_FAIL(INVALID, "there is no block of %zu bytes of %s memory at %p", bytes,
                        loch_memory_kind_name(kind), address);
    *out = span;
    return LOCH_OK;
}

static loch_status memory_free_block(lochi_sim *sim, loch_memory_kind kind, const void *address, size_t bytes)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_span *span;
    LOCH_TRY_RETURN(memory_find_block(sim, kind, address, bytes, &span));
    if (span->free_op || span->is_freed)
        return SIM_FAIL(INVALID, "the memory at %p is stream-ordered: free it with ordered_free", address);
    const char *how = kind == LOCH_MEMORY_REGISTERED ? "unregistered" : "freed";
    LOCH_TRY_RETURN(lochi_sim_span_refuse(sim, span, how));
    if (kind == LOCH_MEMORY_PINNED) sim->pinned -= bytes;
    lochi_sim_span_remove(sim, span, how);
    return LOCH_OK;
}

static loch_status memory_raw(lochi_sim *sim, size_t bytes, size_t alignment, void **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const size_t most = bytes < LOCHI_SIM_RAW_LARGE ? LOCHI_SIM_RAW_UNIT : LOCHI_SIM_RAW_LARGE;
    if (alignment > most)
        return SIM_FAIL(UNSUPPORTED, "raw blocks of %zu bytes are aligned to %zu, not to %zu: reserve and map instead",
                        bytes, most, alignment);
    lochi_sim_span *span;
    LOCH_TRY_RETURN(memory_block(sim, LOCH_MEMORY_DEVICE, bytes, most, &span));
    *out = (void *)span->node.key;
    return LOCH_OK;
}

loch_status lochi_sim_memory_info(void *self, loch_memory_info *out)
{
    lochi_sim *sim = self;
    LOCH_TRY_RETURN(lochi_sim_begin(sim, LOCH_CALL_memory_info, 0));
    *out = (loch_memory_info){.total_bytes = sim->capacity, .free_bytes = sim->capacity - sim->used};
    return lochi_sim_end(LOCH_OK);
}

loch_status lochi_sim_raw_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_raw_alloc, bytes));
    return lochi_sim_end(memory_raw(self, bytes, alignment, out));
}

loch_status lochi_sim_raw_free(void *self, void *address, size_t bytes)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_raw_free, bytes));
    return lochi_sim_end(memory_free_block(self, LOCH_MEMORY_DEVICE, address, bytes));
}

/* --- host memory --- */

static loch_status memory_host(lochi_sim *sim, loch_memory_kind kind, size_t bytes, size_t alignment, void **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_span *span;
    LOCH_TRY_RETURN(memory_block(sim, kind, bytes, alignment, &span));
    if (kind == LOCH_MEMORY_PINNED) sim->pinned += bytes;
    *out = (void *)span->node.key;
    return LOCH_OK;
}

loch_status lochi_sim_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_pinned_alloc, bytes));
    return lochi_sim_end(memory_host(self, LOCH_MEMORY_PINNED, bytes, alignment, out));
}

loch_status lochi_sim_pinned_free(void *self, void *address, size_t bytes)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_pinned_free, bytes));
    return lochi_sim_end(memory_free_block(self, LOCH_MEMORY_PINNED, address, bytes));
}

loch_status lochi_sim_managed_alloc(void *self, size_t bytes, size_t alignment, void **out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_managed_alloc, bytes));
    return lochi_sim_end(memory_host(self, LOCH_MEMORY_MANAGED, bytes, alignment, out));
}

loch_status lochi_sim_managed_free(void *self, void *address, size_t bytes)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_managed_free, bytes));
    return lochi_sim_end(memory_free_block(self, LOCH_MEMORY_MANAGED, address, bytes));
}

static loch_status memory_register(lochi_sim *sim, void *address, size_t bytes)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_tree_node *above = lochi_tree_at_or_above(&sim->spans, (uintptr_t)address);
    if (lochi_sim_span_find(sim, (uintptr_t)address) || (above && above->key - (uintptr_t)address < bytes))
        return SIM_FAIL(EXISTS, "the device already knows part of the %s at %p", LOCHI_SIZE(bytes), address);
    lochi_sim_object *object;
    LOCH_TRY_RETURN(lochi_sim_object_create(sim, bytes, 0, &object));
    lochi_sim_span *span = lochi_zalloc(sizeof *span);
    if (!span) {
        lochi_sim_object_release(object);
        return SIM_FAIL(HOST_MEMORY, "no host memory to record a registration");
    }
    *span = (lochi_sim_span){.node.key = (uintptr_t)address,
                             .bytes = bytes,
                             .is_real = true,
                             .is_mapped = true,
                             .kind = LOCH_MEMORY_REGISTERED,
                             .object = object};
    object->mappings++;
    lochi_tree_insert(&sim->spans, &span->node);
    return LOCH_OK;
}

loch_status lochi_sim_host_register(void *self, void *address, size_t bytes)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_host_register, bytes));
    return lochi_sim_end(memory_register(self, address, bytes));
}

loch_status lochi_sim_host_unregister(void *self, void *address, size_t bytes)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_host_unregister, bytes));
    return lochi_sim_end(memory_free_block(self, LOCH_MEMORY_REGISTERED, address, bytes));
}

/* --- stream-ordered memory --- */

/* Checks allocating and freeing as uses of the whole block on their stream: uses on other streams must be ordered
 * with them. */
static void memory_check_ordered(lochi_sim_stream *stream, lochi_sim_span *span, lochi_sim_op *op)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_sim_use all = {.span = span, .bytes = span->bytes, .is_write = true};
    lochi_sim_check_uses(stream, op, &all, 1, lochi_sim_slot_tick(stream));
}

static loch_status memory_ordered(lochi_sim *sim, size_t bytes, lochi_sim_stream *stream, void **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_ORDERED, "stream-ordered memory"));
    if (stream->capture) return SIM_FAIL(UNSUPPORTED, "stream-ordered memory inside a capture is not simulated");
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    lochi_sim_op *op;
    LOCH_TRY_RETURN(
        lochi_sim_op_create(sim, &(lochi_sim_request){.kind = LOCHI_SIM_FREE, .name = "ordered memory"}, &op));
    lochi_sim_span *span;
    const size_t alignment = bytes < LOCHI_SIM_RAW_LARGE ? LOCHI_SIM_RAW_UNIT : LOCHI_SIM_RAW_LARGE;
    const loch_status status = memory_block(sim, LOCH_MEMORY_DEVICE, bytes, alignment, &span);
    if (status != LOCH_OK) {
        lochi_sim_op_destroy(op);
        return status;
    }
    span->free_op = op;
    memory_check_ordered(stream, span, op);
    *out = (void *)span->node.key;
    return LOCH_OK;
}

loch_status lochi_sim_ordered_alloc(void *self, size_t bytes, void *stream, void **out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_ordered_alloc, bytes));
    return lochi_sim_end(memory_ordered(self, bytes, lochi_sim_stream_of(self, stream), out));
}

static loch_status memory_free_ordered(lochi_sim *sim, const void *address, size_t bytes, lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_span *span;
    LOCH_TRY_RETURN(memory_find_block(sim, LOCH_MEMORY_DEVICE, address, bytes, &span));
    if (span->is_freed) return SIM_FAIL(DOUBLE_FREE, "the block at %p is already freed", address);
    if (!span->free_op) return SIM_FAIL(INVALID, "the memory at %p is not stream-ordered", address);
    if (stream->capture) return SIM_FAIL(UNSUPPORTED, "stream-ordered memory inside a capture is not simulated");
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    lochi_sim_op *op = span->free_op;
    memory_check_ordered(stream, span, op);
    LOCH_TRY_RETURN(lochi_sim_check_refuse(sim));
    span->free_op = NULL;
    span->is_freed = true;
    op->freed = span;
    const loch_status status = lochi_sim_op_queue(stream, op);
    lochi_sim_settle(sim);
    return status;
}

loch_status lochi_sim_ordered_free(void *self, void *address, size_t bytes, void *stream)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_ordered_free, bytes));
    return lochi_sim_end(memory_free_ordered(self, address, bytes, lochi_sim_stream_of(self, stream)));
}

/* --- peers and queries --- */

static loch_status memory_enable_peer(lochi_sim *sim, const lochi_sim *peer)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_PEER, "peers"));
    for (size_t i = 0; i < sim->peers_count; i++)
        if (sim->peers[i] == peer->serial) return LOCH_OK;
    uint64_t *peers = lochi_realloc(sim->peers, (sim->peers_count + 1) * sizeof *peers);
    if (!peers) return SIM_FAIL(HOST_MEMORY, "no host memory to record a peer");
    peers[sim->peers_count++] = peer->serial;
    sim->peers = peers;
    return LOCH_OK;
}

loch_status lochi_sim_peer_enable(void *self, void *peer)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_peer_enable, 0));
    return lochi_sim_end(memory_enable_peer(self, peer));
}

loch_status lochi_sim_address_query(void *self, const void *address, loch_address_info *out)
{
    LOCH_TRY_RETURN(lochi_sim_begin(self, LOCH_CALL_address_query, 0));
    const lochi_sim_span *span = lochi_sim_span_find(self, (uintptr_t)address);
    /* The usual answer, because every device is asked in turn: no sentence. */
    if (!span) return lochi_sim_end(LOCH_E_NOT_FOUND);
    out->kind = span->kind;
    out->base = (void *)span->node.key;
    out->bytes = span->bytes;
    return lochi_sim_end(LOCH_OK);
}

void lochi_sim_memory_close(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    while (sim->spans.root) {
        lochi_sim_span *span = LOCHI_CONTAINER(sim->spans.root, lochi_sim_span, node);
        lochi_sim_span_remove(sim, span, "freed");
    }
    while (sim->objects) { /* imported by another device, or handles that were never released */
        lochi_sim_object *object = sim->objects;
        sim->objects = object->next;
        object->owner = NULL;
        object->prev = object->next = NULL;
    }
    lochi_free(sim->peers);
    lochi_sim_space_fini(&sim->space);
}
