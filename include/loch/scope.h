/* SPDX-License-Identifier: MIT */
/** @file scope.h
 *  Objects that are released at the end of a block, for C.
 *
 *      LOCH_AUTO(tensor) weights = NULL;               // GCC and Clang: released however the block is left
 *      LOCH_WITH(buffer, scratch, status = loch_buffer_create(pool, bytes, NULL, &scratch)) {
 *          ...                                          // any compiler: released at the end and at a break
 *      }
 *
 *  The kinds are all objects that a program owns or counts: those of this library, of loch/tensor.h, loch/engine.h and
 *  of the parts. Each has a function loch_<kind>_clear beside the function that ends it. Where that function returns
 *  a status, loch_<kind>_clear ignores it: workers and engines run their queued tasks first, sessions free each block
 *  on its own stream. End such an object yourself if its status matters, and set the pointer to NULL. Use
 *  loch_buffer_take and loch_tensor_take to keep an object beyond the block.
 */
#ifndef LOCH_SCOPE_H
#define LOCH_SCOPE_H

#include <loch/buffer.h>

LOCH_BEGIN_DECLS

LOCH_DEFINE_CLEAR(device, loch_device_release(object))

LOCH_DEFINE_CLEAR(allocator, loch_allocator_release(object))

LOCH_DEFINE_CLEAR(stream, loch_stream_close(object))

LOCH_DEFINE_CLEAR(event, loch_event_destroy(object))

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
