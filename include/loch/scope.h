/* SPDX-License-Identifier: MIT */
/** @file scope.h
 *  Objects that are released at the end of a block, for C.
 *
 *      LOCH_AUTO(tensor) weights = NULL;               // GCC and Clang: released on every way out of the block
 *      LOCH_WITH(buffer, scratch, status = loch_buffer_create(pool, bytes, NULL, &scratch)) {
 *          ...                                          // any compiler: released at the end, and by break
 *      }
 *
 *  The kind is one with a loch_<kind>_clear: buffer, tensor, device, allocator, stream, event, buffer_pool,
 *  workspace. loch_buffer_take and loch_tensor_take move
 *  the object out, to a caller or a longer life.
 */
#ifndef LOCH_SCOPE_H
#define LOCH_SCOPE_H

#include <loch/scratch.h>
#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** Releases what `*slot` holds and sets it to NULL; NULL and an empty slot do nothing. */
static inline void loch_device_clear(loch_device **slot)
{
    if (!slot) return;
    loch_device_release(*slot);
    *slot = NULL;
}

/** The same for an allocator. */
static inline void loch_allocator_clear(loch_allocator **slot)
{
    if (!slot) return;
    loch_allocator_release(*slot);
    *slot = NULL;
}

/** The same for a stream, which is destroyed. */
static inline void loch_stream_clear(loch_stream **slot)
{
    if (!slot) return;
    loch_stream_close(*slot);
    *slot = NULL;
}

/** The same for an event, which is destroyed. */
static inline void loch_event_clear(loch_event **slot)
{
    if (!slot) return;
    loch_event_destroy(*slot);
    *slot = NULL;
}

/** The same for a pool of buffers, which is destroyed. */
static inline void loch_buffer_pool_clear(loch_buffer_pool **slot)
{
    if (!slot) return;
    loch_buffer_pool_destroy(*slot);
    *slot = NULL;
}

/** The same for a workspace, which is destroyed. */
static inline void loch_workspace_clear(loch_workspace **slot)
{
    if (!slot) return;
    loch_workspace_destroy(*slot);
    *slot = NULL;
}

LOCH_END_DECLS

/** Declares `loch_<kind> *`, released when its block is left in whatever way. To be initialised, with NULL at least. Only where the
 *  compiler has the cleanup attribute. */
#if defined(__GNUC__)
#define LOCH_AUTO(kind) __attribute__((cleanup(loch_##kind##_clear))) loch_##kind *
#endif

/** Declares `name`, evaluates `make`, and runs the block behind it if that was LOCH_OK; releases `name` at the end of the
 *  block and at a `break` or `continue` in it, which leave that block alone and no loop around it; but not at a `return` or `goto` out
 *  of it. */
#define LOCH_WITH(kind, name, make)                                                                                    \
    for (loch_##kind *name = NULL, *loch_with_##name = (loch_##kind *)&loch_with_##name; loch_with_##name;             \
         loch_##kind##_clear(&name), loch_with_##name = NULL)                                                          \
        for (int loch_in_##name = (make) == LOCH_OK; loch_in_##name; loch_in_##name = 0)

#endif
