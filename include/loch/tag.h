/* SPDX-License-Identifier: MIT */
/** @file tag.h
 *  Tags: names on allocations, for the statistics. A tag is a small number that stands for a name for the life of the
 *  process; 0 is no tag.
 */
#ifndef LOCH_TAG_H
#define LOCH_TAG_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** A name on allocations. */
typedef uint32_t loch_tag;

/** How many tags a process can have, 0 included. */
#define LOCH_TAG_COUNT_MAX 4096

/** The longest tag name, with its final zero. */
#define LOCH_TAG_NAME_MAX 64

/** The tag of a name, made at first use: 1 to 63 characters. E_LIMIT when there are too many. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_tag_create(const char *name, loch_tag *out);

/** A tag's name; "" for 0 and for numbers that are no tag. Valid for the life of the process. Any thread. */
LOCH_API const char *loch_tag_name(loch_tag tag);

/** Called with each tag and its name. A return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_tag_visitor(loch_tag tag, const char *name, void *user);

/** Walks all tags but 0, in the order in which they were made. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_tag_walk(loch_tag_visitor *visitor, void *user);

LOCH_END_DECLS

#endif
