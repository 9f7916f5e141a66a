/* SPDX-License-Identifier: MIT */
#include "classes.h"

#define CLASS_SLAB ((size_t)16 << 10) /* slabs of blocks of up to 1 KiB */
#define CLASS_SLAB_BLOCKS 8           /* least blocks in a slab */
#define CLASS_BATCH_BYTES ((size_t)16 << 10)
#define CLASS_BATCH_MIN 2
#define CLASS_BATCH_MAX 128

front_class front_classes[FRONT_CLASS_END];
uint8_t front_class_table[FRONT_FINE_COUNT + FRONT_COARSE_COUNT];

static size_t class_between(size_t value, size_t low, size_t high)
{
    return value < low ? low : value > high ? high : value;
}

static size_t class_next_bytes(size_t bytes)
{
    if (bytes < 128) return bytes + 16;
    const unsigned log = 63 - (unsigned)__builtin_clzll(bytes);
    return bytes + ((size_t)1 << (log - (bytes < FRONT_FINE_MAX ? 3 : 2)));
}

static size_t class_slab_bytes(size_t bytes)
{
    const size_t least = bytes * CLASS_SLAB_BLOCKS;
    return least <= CLASS_SLAB ? CLASS_SLAB : (least + FRONT_PAGE - 1) & ~(FRONT_PAGE - 1);
}

void front_classes_start(void)
{
    size_t bytes = 16, from = 0;
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++) {
        const size_t slab = class_slab_bytes(bytes);
        front_classes[class] = (front_class){
            .bytes = (uint32_t)bytes,
            .slab_bytes = (uint32_t)slab,
            .capacity = (uint16_t)(slab / bytes),
            .batch = (uint16_t)class_between(CLASS_BATCH_BYTES / bytes, CLASS_BATCH_MIN, CLASS_BATCH_MAX)};
        const size_t end = bytes <= FRONT_FINE_MAX ? bytes / 16 + 1 : FRONT_FINE_COUNT + (bytes - FRONT_FINE_MAX) / 128;
        for (; from < end; from++)
            front_class_table[from] = (uint8_t) class;
        bytes = class_next_bytes(bytes);
    }
}
