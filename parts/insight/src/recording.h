/* SPDX-License-Identifier: MIT */
/* The recording, and the functions by which readers fill it. A reader creates a recording, adds names, blocks, ranges
 * and events in order of time, and ends with lochi_insight_recording_finish, which computes peaks and sums. */
#ifndef LOCH_INSIGHT_RECORDING_H
#define LOCH_INSIGHT_RECORDING_H

#include "kit/array.h"
#include <loch/insight.h>

#define INSIGHT_NOUNS (LOCH_RECORDING_CALL + 1)

struct loch_recording {
    loch_recording_info info;         /* `path` and `program` are owned */
    lochi_array events;               /* of loch_recording_event */
    lochi_array blocks;               /* of loch_recording_block */
    lochi_array ranges;               /* of loch_recording_range */
    lochi_array names[INSIGHT_NOUNS]; /* of uint32_t: offsets into `text` */
    lochi_array text;                 /* all names and frames, each ends with a zero; offset 0 is "" */
    lochi_table interned;             /* hash of a text -> offset; texts of equal hashes are compared */
    lochi_array stacks;               /* of insight_stack */
    lochi_array frames;               /* of uint32_t: offsets into `text` */
    lochi_array frame_texts;          /* of const char *: made by finish, in the order of `frames` */
    lochi_table stack_hashes;         /* hash of frames -> index of a stack */
    lochi_array allocator_devices;    /* of uint16_t: index of the device of each allocator; missing: 0 */
};

typedef struct insight_stack {
    uint32_t first, count; /* in `frames` */
} insight_stack;

/* Creates an empty recording with one tag (""). E_HOST_MEMORY. */
loch_status lochi_insight_recording_create(const char *path, loch_recording_format format, loch_recording **out);

/* Adds a text and returns its offset in `text`; equal texts share one. UINT32_MAX: there is no memory. */
uint32_t lochi_insight_recording_add_text(loch_recording *recording, const char *text, size_t length);

/* Returns the index of a name of a noun, and adds it if it is new. UINT32_MAX: there is no memory. */
uint32_t lochi_insight_recording_add_name(loch_recording *recording, loch_recording_noun noun, const char *name,
                                          size_t length);

/* Adds a name of a noun even if another thing has that name. Returns its index. UINT32_MAX: there is no memory. */
uint32_t lochi_insight_recording_append_name(loch_recording *recording, loch_recording_noun noun, const char *name,
                                             size_t length);

/* Says to which device an allocator belongs. Returns false if there is no memory. */
bool lochi_insight_recording_set_device(loch_recording *recording, uint32_t allocator, uint32_t device);

/* Returns the index of the device of an allocator. */
uint16_t lochi_insight_recording_get_device(const loch_recording *recording, uint32_t allocator);

/* Returns the index of the call stack with these frames (offsets in `text`), and adds it if it is new. UINT32_MAX:
 * there is no memory. */
uint32_t lochi_insight_recording_add_stack(loch_recording *recording, const uint32_t *frames, size_t count);

/* Adds a block, a range or an event. Returns its index; UINT32_MAX: there is no memory, or there are too many. */
uint32_t lochi_insight_recording_add_block(loch_recording *recording, const loch_recording_block *block);
uint32_t lochi_insight_recording_add_range(loch_recording *recording, const loch_recording_range *range);
uint32_t lochi_insight_recording_add_event(loch_recording *recording, const loch_recording_event *event);

/* Adds an ALLOC event and its block, or a FREE event of a block. Return the index of the block or the event;
 * UINT32_MAX: there is no memory. */
uint32_t lochi_insight_recording_add_alloc(loch_recording *recording, const loch_recording_block *block,
                                           const loch_recording_event *event);
uint32_t lochi_insight_recording_add_free(loch_recording *recording, uint32_t block, const loch_recording_event *event);

/* Marks of events and blocks that lochi_insight_recording_compact removes: the kind of an event, and `reserved[0]` of a
 * block. */
#define INSIGHT_DROPPED_EVENT UINT16_MAX
#define INSIGHT_DROPPED_BLOCK 255

/* Removes marked events, and marked blocks with all of their events, and corrects indices. Returns false if there is no
 * memory. */
bool lochi_insight_recording_compact(loch_recording *recording);

/* Keeps the blocks of one allocator, by its name, and their events. Driver calls and ranges stay. E_NOT_FOUND: no
 * allocator has that name. E_HOST_MEMORY. */
loch_status lochi_insight_recording_keep_allocator(loch_recording *recording, const char *name);

/* Completes a recording: computes `info`, adds a name where a noun has none. E_HOST_MEMORY. */
loch_status lochi_insight_recording_finish(loch_recording *recording);

#endif
