/* SPDX-License-Identifier: MIT */
/* Size classes of small blocks.
 *
 * Up to 128 bytes a class is a multiple of 16. Above there are eight steps for each power of two up to 1 KiB, and four
 * up to 32 KiB. So a block of 128 bytes to 1 KiB wastes at most an eighth, and a larger one a fifth. Classes are cut
 * out of slabs. Every power of two is a class, and slabs start on pages, so a request with an alignment of up to a page
 * finds a class. */
#ifndef FRONT_CLASSES_H
#define FRONT_CLASSES_H

#include <stddef.h>
#include <stdint.h>

#define FRONT_SMALL_MAX ((size_t)32 << 10) /* larger requests are blocks of the pool */
#define FRONT_PAGE_BITS 13                 /* pages of 8 KiB, the unit of slabs and of the page map */
#define FRONT_PAGE ((size_t)1 << FRONT_PAGE_BITS)

enum {
    FRONT_FOREIGN = 0,      /* class of an address that no slab and no large block has */
    FRONT_CLASS_COUNT = 52, /* classes of small blocks are 1 to FRONT_CLASS_COUNT */
    FRONT_LARGE,            /* class of a block of the pool */
    FRONT_CLASS_END
};

typedef struct front_class {
    uint32_t bytes;      /* size of a block */
    uint32_t slab_bytes; /* size of a slab, a multiple of pages */
    uint16_t capacity;   /* blocks in a slab */
    uint16_t batch;      /* blocks that move between a thread and the shelf together */
} front_class;

extern front_class front_classes[FRONT_CLASS_END]; /* constant after front_classes_start */

/* Classes by size: steps of 16 bytes up to 1 KiB, then steps of 128 bytes. */
#define FRONT_FINE_MAX ((size_t)1024)
#define FRONT_FINE_COUNT (FRONT_FINE_MAX / 16 + 1)
#define FRONT_COARSE_COUNT ((FRONT_SMALL_MAX - FRONT_FINE_MAX) / 128)
extern uint8_t front_class_table[FRONT_FINE_COUNT + FRONT_COARSE_COUNT]; /* constant after front_classes_start */

/* Returns the class for a request of at most FRONT_SMALL_MAX bytes. Before front_classes_start: FRONT_FOREIGN. */
static inline unsigned front_class_of(size_t bytes)
{
    const size_t at =
        bytes <= FRONT_FINE_MAX ? (bytes + 15) / 16 : FRONT_FINE_COUNT - 1 + (bytes - FRONT_FINE_MAX + 127) / 128;
    return front_class_table[at];
}

/* Fills the two tables. Call it once, before other threads exist. */
void front_classes_start(void);

#endif
