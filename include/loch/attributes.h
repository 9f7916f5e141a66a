/* SPDX-License-Identifier: MIT */
/** @file attributes.h
 *  Attributes describe the kind of memory that a program wants from a device: a set of bits and a scope. How one
 *  single allocation is done is in loch_request (allocator.h).
 */
#ifndef LOCH_ATTRIBUTES_H
#define LOCH_ATTRIBUTES_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** Bits of loch_attributes. Bits 24 to 31 have a meaning that the device defines. */
typedef enum loch_attribute {
    LOCH_ATTRIBUTE_ON_HOST = 1 << 0,        /**< host memory */
    LOCH_ATTRIBUTE_NIC_COMPATIBLE = 1 << 1, /**< memory that a network card can access */
    LOCH_ATTRIBUTE_GPU_COMPATIBLE = 1 << 2, /**< memory that a GPU can access directly (on the host: pinned) */
    LOCH_ATTRIBUTE_TRACK_SIZES = 1 << 3     /**< sizes and ids of blocks are known */
} loch_attribute;

/** Mask of the eight bits whose meaning the device defines. */
#define LOCH_ATTRIBUTES_OF_DEVICE 0xff000000u

/** A set of attributes. All zero asks for the device's own memory. */
typedef struct loch_attributes {
    uint32_t bits; /**< set of loch_attribute and of bits that the device defines */
    int32_t scope; /**< number that groups allocators (a session, a tenant); 0 for none */
} loch_attributes;

/** Returns non-zero if all of `bits` are set in `attributes`. */
static inline int loch_attributes_has(loch_attributes attributes, uint32_t bits)
{
    return (attributes.bits & bits) == bits;
}

/** Returns `attributes` with `bits` set. */
static inline loch_attributes loch_attributes_with(loch_attributes attributes, uint32_t bits)
{
    attributes.bits |= bits;
    return attributes;
}

/** Returns `attributes` with `bits` cleared. */
static inline loch_attributes loch_attributes_without(loch_attributes attributes, uint32_t bits)
{
    attributes.bits &= ~bits;
    return attributes;
}

/** Combines two sets of attributes: `out` asks for everything that `a` or `b` asks for. E_INVALID: both have a scope
 *  and the scopes differ; `out` is then not changed. */
LOCH_API LOCH_MUST_USE loch_status loch_attributes_merge(loch_attributes a, loch_attributes b, loch_attributes *out);

/** Returns non-zero if `a` asks for nothing that `b` does not ask for, scope included. Memory that serves `b` then
 *  also serves `a`. */
static inline int loch_attributes_at_most_as_strict(loch_attributes a, loch_attributes b)
{
    return (a.bits | b.bits) == b.bits && (a.scope == 0 || a.scope == b.scope);
}

LOCH_END_DECLS

#endif
