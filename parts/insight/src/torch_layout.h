/* SPDX-License-Identifier: MIT */
/* Where the blocks of a recording lie, and which segments hold them: what a memory snapshot of PyTorch needs and a
 * recording may not have. Blocks without an address get one; blocks outside of all ranges get a segment. */
#ifndef LOCH_INSIGHT_TORCH_LAYOUT_H
#define LOCH_INSIGHT_TORCH_LAYOUT_H

#include "recording.h"

typedef struct layout_segment {
    uint64_t start, end;
    uint32_t device;
} layout_segment;

/* A block that is live at the end. */
typedef struct layout_block {
    uint64_t address, bytes;
    uint32_t block; /* index */
    uint32_t device;
} layout_block;

typedef struct torch_layout {
    lochi_array addresses;  /* of uint64_t: address of each block at its allocation */
    lochi_array segments;   /* of layout_segment, at the end; by device and address */
    lochi_array live;       /* of layout_block, by device and address */
    lochi_array expandable; /* of uint8_t: 1 if blocks of the device reach over several ranges */
} torch_layout;

/* Computes the layout. Returns false if there is no memory. Call lochi_insight_torch_layout_free in either case. */
bool lochi_insight_torch_layout_create(const loch_recording *recording, torch_layout *layout);

void lochi_insight_torch_layout_free(torch_layout *layout);

#endif
