/* SPDX-License-Identifier: MIT */
/** @file scope.h
 *  Objects that are released at the end of a block, for C.
 *
 *      LOCH_AUTO(tensor) weights = NULL;               // GCC and Clang: released however the block is left
 *      LOCH_WITH(buffer, scratch, status = loch_buffer_create(pool, bytes, NULL, &scratch)) {
 *          ...                                          // any compiler: released at the end and at a break
 *      }
 *
 *  The kinds are those with a function loch_<kind>_clear: buffer, device, allocator, stream, event; tensor (tensor.h);
 *  buffer_pool and workspace (scratch.h). Use loch_buffer_take and loch_tensor_take to keep an object beyond the block.
 */
#ifndef LOCH_SCOPE_H
#define LOCH_SCOPE_H

#include <loch/buffer.h>

LOCH_BEGIN_DECLS

/** Releases the device in `*slot` and sets `*slot` to NULL. A NULL slot and an empty slot do nothing. */
static inline void loch_device_clear(loch_device **slot)
{
    if (!slot) return;
    loch_device_release(*slot);
    *slot = NULL;
}

/** Releases the allocator in `*slot` and sets `*slot` to NULL. A NULL slot and an empty slot do nothing. */
static inline void loch_allocator_clear(loch_allocator **slot)
{
    if (!slot) return;
    loch_allocator_release(*slot);
    *slot = NULL;
}

/** Closes the stream in `*slot` and sets `*slot` to NULL. A NULL slot and an empty slot do nothing. */
static inline void loch_stream_clear(loch_stream **slot)
{
    if (!slot) return;
    loch_stream_close(*slot);
    *slot = NULL;
}

/** Destroys the event in `*slot` and sets `*slot` to NULL. A NULL slot and an empty slot do nothing. */
static inline void loch_event_clear(loch_event **slot)
{
    if (!slot) return;
    loch_event_destroy(*slot);
    *slot = NULL;
}

LOCH_END_DECLS

/** Declares a `loch_<kind> *` that is released when its block is left, in any way. Initialise it, at least with NULL.
 *  Needs a compiler with the cleanup attribute (GCC, Clang). */
#if defined(__GNUC__)
#define LOCH_AUTO(kind) __attribute__((cleanup(loch_##kind##_clear))) loch_##kind *
#endif

/** Declares `name`, evaluates `make`, and runs the following block if the result is LOCH_OK. Releases `name` at the
 *  end of the block, and at a `break` or `continue` inside it; these leave this block only, not a loop around it.
 *  Does not release `name` at a `return` or `goto` out of the block. */
#define LOCH_WITH(kind, name, make)                                                                                    \
    for (loch_##kind *name = NULL, *loch_with_##name = (loch_##kind *)&loch_with_##name; loch_with_##name;             \
         loch_##kind##_clear(&name), loch_with_##name = NULL)                                                          \
        for (int loch_in_##name = (make) == LOCH_OK; loch_in_##name; loch_in_##name = 0)

#endif
