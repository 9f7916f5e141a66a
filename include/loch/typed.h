/* SPDX-License-Identifier: MIT */
/** @file typed.h
 *  Arrays of things that have to be initialised and finished, in memory that the host can reach.
 */
#ifndef LOCH_TYPED_H
#define LOCH_TYPED_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** A type of element. */
typedef struct loch_type {
    size_t size;                                    /**< sizeof(loch_type) */
    size_t bytes;                                   /**< of one element, not 0 */
    size_t alignment;                               /**< of one element: a power of two, or 0 */
    loch_status (*init)(void *element, void *user); /**< makes one; NULL leaves them as they are */
    void (*fini)(void *element, void *user);        /**< ends one; may be NULL */
    void *user;                                     /**< handed to both; borrowed */
} loch_type;

/** Allocates `count` elements and initialises them in order. When one fails, those before it are finished in reverse
 *  order, the memory goes back, and its status is returned. E_OVERFLOW, E_INVALID; E_UNSUPPORTED when the type has
 *  init or fini and the host cannot reach the memory. `request` (may be NULL) says the rest. */
LOCH_API LOCH_MUST_USE loch_status loch_alloc_typed(loch_allocator *allocator, const loch_type *type, size_t count,
                                                    const loch_request *request, void **out);

/** Finishes `count` elements in reverse order and frees them. NULL succeeds. The address is checked before the first
 *  element is finished: errors as for loch_allocator_free, E_INVALID when the block has not that many elements. */
LOCH_API LOCH_MUST_USE loch_status loch_free_typed(loch_allocator *allocator, void *address, const loch_type *type,
                                                   size_t count);

LOCH_END_DECLS

#endif
