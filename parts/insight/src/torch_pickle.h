/* SPDX-License-Identifier: MIT */
/* Reads the pickle of a memory snapshot of PyTorch into small records, without executing anything of it. Only what a
 * snapshot consists of is accepted: dictionaries, lists, tuples, numbers, texts. Keys that are not known are dropped.
 *
 * No tree of values is built. A dictionary with a known key becomes one record of 56 bytes, a frame of a call stack
 * becomes one text, a list is a row of 32-bit numbers. */
#ifndef LOCH_INSIGHT_TORCH_PICKLE_H
#define LOCH_INSIGHT_TORCH_PICKLE_H

#include "format.h"

/* Names that are known: keys of dictionaries, then actions of entries, then states of blocks. */
typedef enum torch_name {
    TORCH_UNKNOWN,
    TORCH_KEY_ACTION,
    TORCH_KEY_ADDRESS,
    TORCH_KEY_SIZE,
    TORCH_KEY_REQUESTED,
    TORCH_KEY_STREAM,
    TORCH_KEY_TIME,
    TORCH_KEY_FRAMES,
    TORCH_KEY_METADATA,
    TORCH_KEY_CATEGORY,
    TORCH_KEY_CONTEXT,
    TORCH_KEY_POOL,
    TORCH_KEY_DEVICE,
    TORCH_KEY_STATE,
    TORCH_KEY_BLOCKS,
    TORCH_KEY_SEGMENTS,
    TORCH_KEY_TRACES,
    TORCH_KEY_NAME,
    TORCH_KEY_FILE,
    TORCH_KEY_LINE,
    TORCH_ALLOC,
    TORCH_FREE_REQUESTED,
    TORCH_FREE_COMPLETED,
    TORCH_SEGMENT_ALLOC,
    TORCH_SEGMENT_FREE,
    TORCH_SEGMENT_MAP,
    TORCH_SEGMENT_UNMAP,
    TORCH_SNAPSHOT,
    TORCH_OOM,
    TORCH_ACTIVE,
    TORCH_PENDING,
    TORCH_INACTIVE
} torch_name;

/* Says that a member of a record was in the file. */
#define TORCH_HAS_ADDRESS 1u
#define TORCH_HAS_SIZE 2u
#define TORCH_HAS_TIME 4u /* of a block: has a requested size */

/* One dictionary: the snapshot, a segment, a block, or an entry of a trace. */
typedef struct torch_record {
    uint64_t address;
    uint64_t size;
    uint64_t time; /* of an entry, in microseconds; of a block: bytes asked for */
    uint64_t stream;
    uint32_t frames; /* object: a list of frames, or the list of traces */
    uint32_t items;  /* object: a list of blocks, or of segments */
    uint32_t tag;    /* text: tag of an entry, function of a frame */
    uint32_t other;  /* text: name of the pool, file of a frame */
    uint32_t line;
    uint16_t device;
    uint8_t word; /* a torch_name: action or state */
    uint8_t has;  /* TORCH_HAS_... */
} torch_record;

typedef struct torch_list {
    uint32_t first, last; /* chunks; LOCH_RECORDING_NONE if it is empty */
    uint32_t count;
    uint32_t stack; /* index of the call stack that it is, plus 1; 0 if that is not known yet */
} torch_list;

typedef struct torch_chunk {
    uint32_t start, count, next; /* in `items`; next chunk of the list */
} torch_chunk;

/* Stands in a list for a value that is no object. */
#define TORCH_NO_OBJECT (LOCH_RECORDING_NONE - 1)

/* The contents of a pickle. An object is a number: an index into `objects`. */
typedef struct torch_pickle {
    lochi_array objects; /* of uint32_t: shape in the two highest bits, then an index, or the offset of a text */
    lochi_array records; /* of torch_record */
    lochi_array lists;   /* of torch_list */
    lochi_array chunks;  /* of torch_chunk */
    lochi_array items;   /* of uint32_t: objects */
    lochi_array room[3]; /* for texts and stacks that are being put together */
    uint32_t root;       /* object */
} torch_pickle;

/* Runs the pickle. E_INVALID with the byte and the opcode; E_HOST_MEMORY. Texts go to `recording`. Call
 * lochi_insight_torch_pickle_free in either case. */
loch_status lochi_insight_torch_pickle_read(const insight_source *source, const loch_recording_options *options,
                                            loch_recording *recording, torch_pickle *pickle);

void lochi_insight_torch_pickle_free(torch_pickle *pickle);

/* Return the record or the list that an object is; NULL if it is another thing. */
torch_record *lochi_insight_torch_pickle_get_record(const torch_pickle *pickle, uint32_t object);
torch_list *lochi_insight_torch_pickle_get_list(const torch_pickle *pickle, uint32_t object);

/* A place in a list. */
typedef struct torch_cursor {
    uint32_t chunk, at;
} torch_cursor;

static inline torch_cursor torch_list_start(const torch_list *list)
{
    return (torch_cursor){list ? list->first : LOCH_RECORDING_NONE, 0};
}

/* Returns the next object of a list, LOCH_RECORDING_NONE behind the last one. */
uint32_t lochi_insight_torch_list_next(const torch_pickle *pickle, torch_cursor *cursor);

/* Returns the call stack that a list of frames is; LOCH_RECORDING_NONE for an empty one. `is_good` becomes false if
 * there is no memory. */
uint32_t lochi_insight_torch_pickle_get_stack(torch_pickle *pickle, loch_recording *recording, uint32_t frames,
                                              bool *is_good);

#endif
