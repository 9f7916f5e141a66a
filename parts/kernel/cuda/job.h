/* SPDX-License-Identifier: MIT */
/* What the host tells a kernel: parameters by value, shared by kernels and host. */
#ifndef LOCH_KERNEL_JOB_H
#define LOCH_KERNEL_JOB_H

#define KERNEL_AXES 17   /* LOCH_DIMENSIONS_MAX, and one inside of elements */
#define KERNEL_BLOCK 256 /* threads of a block */
#define KERNEL_SIDE 32   /* words of a side of a tile */
#define KERNEL_CHUNK 16  /* bytes of a chunk on the side with the larger elements */

/* The most chunks or elements of a launch: numbers of 32 bits count them. Longer work is launched in parts. */
#define KERNEL_COUNT_MAX (1u << 30)

/* An axis: its size, the numbers that divide by the size (plan.c), and both strides in bytes. */
typedef struct kernel_axis {
    unsigned size, multiply, shift, unused;
    long long to, from;
} kernel_axis;

/* Chunks of a copy or fill, innermost axis first. A chunk is a vector of elements, or one element. */
typedef struct kernel_chunks {
    unsigned long long to, from; /* of the first chunk, which may begin before the first element */
    unsigned count;              /* of all chunks */
    unsigned run;                /* elements along the innermost axis */
    unsigned head;               /* elements of a chunk before the first element of a run */
    unsigned axes;
    unsigned pattern[4]; /* of a fill */
    kernel_axis axis[KERNEL_AXES];
} kernel_chunks;

/* Planes that are transposed. The source is contiguous along x, the target along y. */
typedef struct kernel_tiles {
    unsigned long long to, from;
    unsigned x, y;          /* elements */
    long long to_x, from_y; /* strides in bytes */
    unsigned tiles_x, tiles_y;
    unsigned is_to_aligned, is_from_aligned; /* words of elements can be stored and loaded whole */
    unsigned axes, unused;
    kernel_axis axis[KERNEL_AXES]; /* of the planes, innermost first */
} kernel_tiles;

/* Rows that are gathered or scattered. */
typedef struct kernel_rows {
    unsigned long long to, from, indices;
    unsigned long long rows;    /* of the side that indices choose from: indices are below it */
    long long to_row, from_row; /* strides in bytes */
    long long index;            /* stride in bytes */
    kernel_axis chunks;         /* of a row: number, and the numbers that divide by it */
    unsigned count, unused;     /* of the chunks of all rows */
} kernel_rows;

#endif
