/* SPDX-License-Identifier: MIT */
/* Tags: a table that only grows. Names are read without a lock, because an entry is complete before the count
 * includes it. */
#include "memory/tag.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/lock.h"
#include <loch/tag.h>
#include <stdatomic.h>
#include <string.h>

static char tag_names[LOCH_TAG_COUNT_MAX][LOCH_TAG_NAME_MAX]; /* entry 0 is the empty name */
static atomic_size_t tag_total = 1; /* release after an entry is written, acquire before one is read */
static lochi_lock tag_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_TAGS);

static loch_tag tag_search(const char *name, size_t from, size_t count)
{
    for (size_t tag = from; tag < count; tag++)
        if (!strcmp(tag_names[tag], name)) return (loch_tag)tag;
    return 0;
}

loch_status loch_tag_create(const char *name, loch_tag *out)
{
    if (!out) return LOCH_FAIL(INVALID, "a tag needs an out pointer");
    *out = 0;
    const size_t length = name ? strnlen(name, LOCH_TAG_NAME_MAX) : 0;
    if (!length || length == LOCH_TAG_NAME_MAX)
        return LOCH_FAIL(INVALID, "the name of a tag needs 1 to %d characters", LOCH_TAG_NAME_MAX - 1);
    const size_t seen = atomic_load_explicit(&tag_total, memory_order_acquire);
    loch_tag tag = tag_search(name, 1, seen);
    if (!tag) {
        lochi_lock_take(&tag_lock);
        const size_t count = atomic_load_explicit(&tag_total, memory_order_relaxed);
        tag = tag_search(name, seen, count);
        if (!tag && count < LOCH_TAG_COUNT_MAX) {
            memcpy(tag_names[count], name, length + 1);
            atomic_store_explicit(&tag_total, count + 1, memory_order_release);
            tag = (loch_tag)count;
        }
        lochi_lock_drop(&tag_lock);
    }
    if (!tag) return LOCH_FAIL(LIMIT, "all %d tags are in use", LOCH_TAG_COUNT_MAX - 1);
    *out = tag;
    return LOCH_OK;
}

const char *loch_tag_name(loch_tag tag)
{
    return tag < atomic_load_explicit(&tag_total, memory_order_acquire) ? tag_names[tag] : "";
}

loch_status loch_tag_walk(loch_tag_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!visitor) return LOCH_FAIL(INVALID, "a walk over the tags needs a visitor");
    const size_t count = lochi_tag_count();
    for (size_t tag = 1; tag < count; tag++)
        LOCH_TRY_RETURN(visitor((loch_tag)tag, tag_names[tag], user));
    return LOCH_OK;
}

size_t lochi_tag_count(void)
{
    return atomic_load_explicit(&tag_total, memory_order_acquire);
}
