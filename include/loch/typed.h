/* SPDX-License-Identifier: MIT */
/** @file typed.h
 *  Typed arrays: arrays whose elements are initialised after allocation and finished before the free. The host must
 *  be able to access the memory.
 */
#ifndef LOCH_TYPED_H
#define LOCH_TYPED_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** The type of an element. */
typedef struct loch_type {
    size_t size;  /**< sizeof(loch_type) */
    size_t bytes; /**< size of one element in bytes, not 0 */
    /** Alignment of one element: a power of two, or 0 for the allocator's own. */
    size_t alignment;
    loch_status (*init)(void *element, void *user); /**< initialises one element; NULL leaves the memory as it is */
    void (*fini)(void *element, void *user);        /**< finishes one element; may be NULL */
    void *user;                                     /**< passed to both functions; borrowed */
} loch_type;

/** Allocates `count` elements and initialises them in order. If one initialisation fails, the elements before it are
 *  finished in reverse order, the memory is freed, and the status of the failure is returned. E_INVALID: the type is
 *  not valid. E_OVERFLOW: the size does not fit the address space. E_UNSUPPORTED: the type has `init` or `fini` and
 *  the host cannot access the memory.
 *  @param request  stream, tag and flags; may be NULL
 *  @param out      owned by the caller; free it with loch_free_typed. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_alloc_typed(loch_allocator *allocator, const loch_type *type, size_t count,
                                                    const loch_request *request, void **out);

/** Finishes `count` elements in reverse order and frees their memory. NULL succeeds. The address is checked before
 *  the first element is finished: E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN if it is not a live block, E_INVALID if the
 *  block does not have `count` elements. */
LOCH_API LOCH_MUST_USE loch_status loch_free_typed(loch_allocator *allocator, void *address, const loch_type *type,
                                                   size_t count);

LOCH_END_DECLS

#endif
