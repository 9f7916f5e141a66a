/* SPDX-License-Identifier: MIT */
/* Memory of contexts: the stacks of pools, and the tensors made from them. */
#include "engine/context/memory.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "engine/context/copies.h"
#include "engine/context/seat.h"
#include "engine/context/thread.h"
#include "memory/buffer/buffer.h"
#include <loch/wrapper.h>
#include <string.h>

/* --- out of memory --- */

static bool memory_is_short(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED ||
           status == LOCH_E_MOVING_FORBIDDEN;
}

/* Drops kept copies on the device of a seat after an allocation failed. Other seats may share that device. Returns
 * whether a retry may succeed. */
static bool memory_make_room(loch_context *context, unsigned seat, loch_status status)
{
    return memory_is_short(status) && lochi_copies_drop(context, lochi_context_place(context, seat)->device);
}

/* --- pools --- */

loch_allocator *lochi_context_allocator(const loch_context *context, unsigned seat)
{
    const lochi_context_seat *own = &context->seats[seat];
    return own->uses_pools && own->pools ? own->pools->allocator : lochi_context_place(context, seat)->allocator;
}

loch_allocator *loch_context_get_allocator(const loch_context *context)
{
    return lochi_context_check(context) == LOCH_OK ? lochi_context_allocator(context, context->current) : NULL;
}

/* Makes the child allocator where the parent is not a pool: an allocator with a limit, or the parent itself if there is
 * no limit. */
static loch_status memory_make_limit(loch_allocator *parent, const char *name, const loch_child_options *options,
                                     loch_allocator **out)
{
    if ((unsigned)options->kind > LOCH_CHILD_RANGE)
        return LOCH_FAIL(INVALID, "%d is not a kind of child pool", (int)options->kind);
    if (options->limit_bytes) {
        const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = options->limit_bytes};
        return loch_limit_create(parent, name, &limit, out);
    }
    *out = loch_allocator_retain(parent);
    return LOCH_OK;
}

static loch_status memory_make_child(loch_context *context, const char *name, const loch_child_options *given,
                                     loch_allocator **out)
{
    loch_child_options options = {.size = sizeof options};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of child options", given, &options, sizeof options));
    loch_allocator *parent = lochi_context_place(context, context->current)->allocator;
    if (!name) name = "child";
    if (context->engine->is_direct) return memory_make_limit(parent, name, &options, out);
    if (!options.stream && options.kind == LOCH_CHILD_RANGE)
        LOCH_TRY_RETURN(lochi_context_stream(context, context->current, &options.stream));
    return loch_pool_create_child(parent, name, &options, out);
}

loch_status loch_context_push_pool(loch_context *context, const char *name, const loch_child_options *options,
                                   loch_allocator **child)
{
    if (child) *child = NULL;
    LOCH_TRY_RETURN(lochi_context_check(context));
    lochi_context_seat *seat = &context->seats[context->current];
    lochi_context_pool *pool = lochi_zalloc(sizeof *pool);
    if (!pool) return LOCH_FAIL(HOST_MEMORY, "no host memory to push a pool");
    const loch_error saved = lochi_error_save();
    loch_status status = memory_make_child(context, name, options, &pool->allocator);
    if (memory_make_room(context, context->current, status)) {
        lochi_error_restore(&saved);
        status = memory_make_child(context, name, options, &pool->allocator);
    }
    if (status != LOCH_OK) {
        lochi_free(pool);
        return status;
    }
    pool->below = seat->pools;
    pool->was_using_pools = seat->uses_pools;
    seat->pools = pool;
    seat->uses_pools = true;
    if (child) *child = pool->allocator;
    return LOCH_OK;
}

loch_status loch_context_use_pool(loch_context *context, loch_context_pool pool)
{
    LOCH_TRY_RETURN(lochi_context_check(context));
    if ((unsigned)pool > LOCH_CONTEXT_POOL_STACK)
        return LOCH_FAIL(INVALID, "%d is not a loch_context_pool value", (int)pool);
    context->seats[context->current].uses_pools = pool == LOCH_CONTEXT_POOL_STACK;
    return LOCH_OK;
}

static void memory_pop(lochi_context_seat *seat)
{
    lochi_context_pool *pool = seat->pools;
    seat->pools = pool->below;
    seat->uses_pools = pool->was_using_pools;
    loch_allocator_release(pool->allocator);
    lochi_free(pool);
}

loch_status loch_context_pop_pool(loch_context *context)
{
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!context->seats[context->current].pools)
        return LOCH_FAIL(NOT_FOUND, "the stack of pools of seat %u is empty: there is no pool to pop",
                         context->current);
    memory_pop(&context->seats[context->current]);
    return LOCH_OK;
}

void lochi_context_pop_all(lochi_context_seat *seat)
{
    while (seat->pools)
        memory_pop(seat);
}

/* --- tensors --- */

loch_status lochi_context_alloc(loch_context *context, const lochi_context_wish *wish, loch_dtype dtype,
                                size_t dimensions, const int64_t *shape, loch_tensor **out)
{
    const loch_tensor_options options = {
        .size = sizeof options,
        .allocator = wish->allocator,
        .stream = wish->stream,
        .tag = wish->tag ? wish->tag : context->tag,
        .flags = context->engine->is_direct ? wish->flags & ~(uint32_t)LOCH_ALLOC_MOVABLE : wish->flags,
        .name = wish->name,
        .round_bytes = context->round_bytes};
    const loch_error saved = lochi_error_save();
    const loch_status status = loch_tensor_create(dtype, dimensions, shape, &options, out);
    if (!memory_make_room(context, wish->seat, status)) return status;
    lochi_error_restore(&saved);
    return loch_tensor_create(dtype, dimensions, shape, &options, out);
}

void lochi_context_count(loch_context *context, const loch_tensor *tensor)
{
    lochi_buffer_set_meter(loch_tensor_get_buffer(tensor), context->meter);
}

/* Makes a tensor with the options of the context, without `not_flags`, and counts it. */
static loch_status memory_create(loch_context *context, uint32_t not_flags, loch_dtype dtype, size_t dimensions,
                                 const int64_t *shape, const char *name, loch_tag tag, loch_tensor **out)
{
    if (out) *out = NULL;
    LOCH_TRY_RETURN(lochi_context_check(context));
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the tensor is NULL");
    lochi_context_wish wish = {.allocator = lochi_context_allocator(context, context->current),
                               .seat = context->current,
                               .flags = context->flags & ~not_flags,
                               .tag = tag,
                               .name = name};
    LOCH_TRY_RETURN(lochi_context_stream(context, context->current, &wish.stream));
    LOCH_TRY_RETURN(lochi_context_alloc(context, &wish, dtype, dimensions, shape, out));
    lochi_context_count(context, *out);
    return LOCH_OK;
}

loch_status loch_context_create_tensor(loch_context *context, loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                       const char *name, loch_tag tag, loch_tensor **out)
{
    return memory_create(context, 0, dtype, dimensions, shape, name, tag, out);
}

loch_status loch_context_create_from(loch_context *context, loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                     const void *data, const char *name, loch_tag tag, loch_tensor **out)
{
    /* not zeroed: every byte is written */
    LOCH_TRY_RETURN(memory_create(context, LOCH_ALLOC_ZEROED, dtype, dimensions, shape, name, tag, out));
    loch_stream *stream;
    loch_status status = lochi_context_stream(context, context->current, &stream);
    if (status == LOCH_OK) status = loch_tensor_write(*out, data, loch_tensor_get_bytes(*out), stream);
    if (status != LOCH_OK) loch_tensor_clear(out);
    return status;
}
