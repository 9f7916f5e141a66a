/* SPDX-License-Identifier: MIT */
/* The contents of a snapshot: copies in memory that need no lock. */
#ifndef LOCHI_SNAPSHOT_COLLECT_H
#define LOCHI_SNAPSHOT_COLLECT_H

#include "memory/allocator_state.h"
#include "memory/pool/pool.h"

/* Statistics of one tag. */
typedef struct snapshot_tag {
    loch_tag tag;
    loch_stats stats;
} snapshot_tag;

/* The copy of an allocator. */
typedef struct snapshot_allocator {
    struct snapshot_allocator *next;
    uint64_t number;  /* unique in the process, in order of creation */
    uint64_t wrapped; /* number of the wrapped allocator; 0 for none */
    size_t device;    /* index in the list of devices */
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    char kind[32];
    bool has_stats;
    loch_stats stats;
    snapshot_tag *tags; /* tags that were used */
    size_t tags_count;
    bool is_pool;
    pool_image image; /* of a pool; of others the blocks alone */
    bool has_blocks;  /* the blocks in `image` are those of an allocator that is neither a pool nor a wrapper */
} snapshot_allocator;

/* The request that failed. */
typedef struct snapshot_failure {
    size_t bytes;
    uint64_t allocator; /* number */
    uint64_t stream;
    loch_tag tag;
    loch_status status;
    const char *sentence;
} snapshot_failure;

/* A snapshot. */
typedef struct snapshot_contents {
    bool has_blocks;
    loch_status status;              /* first failure of collecting */
    const snapshot_failure *failure; /* NULL for none */
    loch_device **devices;           /* retained */
    size_t devices_count;
    snapshot_allocator *allocators, **end; /* list, oldest first */
} snapshot_contents;

/* Copies the state of all allocators, with or without their blocks. E_HOST_MEMORY. Call lochi_snapshot_drop in any
 * case. */
loch_status lochi_snapshot_collect(bool has_blocks, snapshot_contents *contents);

/* Frees the copies. */
void lochi_snapshot_drop(snapshot_contents *contents);

#endif
