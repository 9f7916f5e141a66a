/* SPDX-License-Identifier: MIT */
/** @file attributes.h
 *  What memory do I want from a device: a set of bits and a scope. (How to do one allocation is in loch_request.)
 */
#ifndef LOCH_ATTRIBUTES_H
#define LOCH_ATTRIBUTES_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** The bits. 24 to 31 are the device's own. */
typedef enum loch_attribute {
    LOCH_ATTRIBUTE_ON_HOST = 1 << 0,        /**< in the memory of the host */
    LOCH_ATTRIBUTE_NIC_COMPATIBLE = 1 << 1, /**< a network card can reach it */
    LOCH_ATTRIBUTE_GPU_COMPATIBLE = 1 << 2, /**< a GPU can reach it directly (on the host: pinned) */
    LOCH_ATTRIBUTE_TRACK_SIZES = 1 << 3     /**< sizes and ids of blocks are known */
} loch_attribute;

/** The eight bits that a device gives a meaning of its own. */
#define LOCH_ATTRIBUTES_OF_DEVICE 0xff000000u

/** A set of attributes. Zero asks for a device's own memory. */
typedef struct loch_attributes {
    uint32_t bits; /**< set of loch_attribute and device bits */
    int32_t scope; /**< groups allocators (a session, a tenant); 0 for none */
} loch_attributes;

/** Whether all of `bits` are set. */
static inline int loch_attributes_has(loch_attributes attributes, uint32_t bits)
{
    return (attributes.bits & bits) == bits;
}

/** `attributes` with `bits` set. */
static inline loch_attributes loch_attributes_with(loch_attributes attributes, uint32_t bits)
{
    attributes.bits |= bits;
    return attributes;
}

/** `attributes` with `bits` cleared. */
static inline loch_attributes loch_attributes_without(loch_attributes attributes, uint32_t bits)
{
    attributes.bits &= ~bits;
    return attributes;
}

/** All that either asks for. E_INVALID, and `out` as it was, when both have a scope and they differ. */
LOCH_API LOCH_MUST_USE loch_status loch_attributes_merge(loch_attributes a, loch_attributes b, loch_attributes *out);

/** Whether `a` asks for nothing that `b` does not ask for, scope included: memory for `b` then serves `a`. */
static inline int loch_attributes_at_most_as_strict(loch_attributes a, loch_attributes b)
{
    return (a.bits | b.bits) == b.bits && (a.scope == 0 || a.scope == b.scope);
}

LOCH_END_DECLS

#endif
