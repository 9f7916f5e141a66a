/* SPDX-License-Identifier: MIT */
/** @file tag.h
 *  Tags: names of allocations, for statistics. A tag is a small number that stands for one name until the process
 *  ends; 0 means no tag.
 *
 *      loch_tag weights;
 *      LOCH_CHECK(loch_tag_create("weights", &weights));
 */
#ifndef LOCH_TAG_H
#define LOCH_TAG_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** A tag: the number of a name. 0 means no tag. */
typedef uint32_t loch_tag;

/** The largest number of tags in a process, including 0. */
#define LOCH_TAG_COUNT_MAX 4096

/** The longest name of a tag in bytes, including the final zero. */
#define LOCH_TAG_NAME_MAX 64

/** Returns the tag of a name in `out`, and creates the tag on first use. A name has 1 to 63 characters. Tags live
 *  until the process ends. E_INVALID: the name is empty or too long. E_LIMIT: there are LOCH_TAG_COUNT_MAX tags
 *  already. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_tag_create(const char *name, loch_tag *out);

/** Returns the name of a tag; "" for 0 and for a number that is not a tag. Valid until the process ends. Any thread. */
LOCH_API const char *loch_tag_name(loch_tag tag);

/** Receives one tag and its name. A return value other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_tag_visitor(loch_tag tag, const char *name, void *user);

/** Walks all tags except 0, in order of creation. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_tag_walk(loch_tag_visitor *visitor, void *user);

LOCH_END_DECLS

#endif
