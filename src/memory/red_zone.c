/* SPDX-License-Identifier: MIT */
/* Filling and checking red zones. Device memory is checked through a host buffer, from the heap, or from the stack
 * if the heap has no memory: checks run at a free, which must not need memory. The buffer is first filled with the
 * expected value, so that memory without contents, which a copy does not change, passes the check. */
#include "memory/red_zone.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "kit/text.h"
#include "device/copy.h"
#include <loch/copy.h>
#include <string.h>

#define RED_ZONE_STAGING_BYTES ((size_t)1 << 20)
#define RED_ZONE_STACK_BYTES 1024
#define RED_ZONE_BLOCK_MAX ((size_t)1 << 47) /* larger than any address space */

loch_status lochi_red_zone_lay_out(size_t zone_bytes, size_t alignment, size_t bytes, lochi_zones *out)
{
    lochi_zones zones = {0, bytes};
    const bool fits = !zone_bytes ||
                      (lochi_round_up(zone_bytes, alignment, &zones.front) &&
                       lochi_add(zones.front, bytes, &zones.total) && lochi_add(zones.total, zone_bytes, &zones.total));
    if (!fits || zones.total >= RED_ZONE_BLOCK_MAX)
        return LOCH_FAIL(OVERFLOW, "a block of %s with its red zones does not fit the address space",
                         LOCHI_SIZE(bytes));
    *out = zones;
    return LOCH_OK;
}

/* --- zones of a block --- */

typedef struct red_zone {
    char *start;
    size_t bytes;
} red_zone;

static red_zone red_zone_front(const lochi_held *held)
{
    return (red_zone){held->base, (size_t)(held->node.key - (uintptr_t)held->base)};
}

static red_zone red_zone_rear(const lochi_held *held)
{
    char *end = (char *)lochi_held_address(held) + held->requested;
    return (red_zone){end, (size_t)(held->base + held->taken - end)};
}

static loch_status red_zone_fill(loch_stream *stream, red_zone zone, uint8_t value)
{
    return loch_fill_on(zone.start, zone.bytes, &value, 1, stream);
}

loch_status lochi_red_zone_fill(loch_stream *stream, const lochi_held *held)
{
    LOCH_TRY_RETURN(red_zone_fill(stream, red_zone_front(held), LOCHI_RED_ZONE_BYTE));
    return red_zone_fill(stream, red_zone_rear(held), LOCHI_RED_ZONE_BYTE);
}

loch_status lochi_red_zone_poison(loch_stream *stream, const lochi_held *held, uint8_t poison)
{
    return red_zone_fill(stream, (red_zone){lochi_held_address(held), held->requested}, poison);
}

/* --- looking --- */

/* Returns the index of the first byte that is not `value`; `bytes` if there is no such byte. */
static size_t red_zone_differs(const unsigned char *from, size_t bytes, uint8_t value)
{
    if (!bytes || (from[0] == value && !memcmp(from, from + 1, bytes - 1))) return bytes;
    size_t at = 0;
    while (from[at] == value)
        at++;
    return at;
}

static loch_status red_zone_look_through(loch_stream *stream, red_zone zone, uint8_t value, unsigned char *staging,
                                         size_t staging_bytes, size_t *out)
{
    const loch_copy_options options = {.size = sizeof options, .stream = stream, .wait = LOCH_WAIT_END};
    for (size_t done = 0; done < zone.bytes; done += staging_bytes) {
        const size_t left = zone.bytes - done, piece = left < staging_bytes ? left : staging_bytes;
        memset(staging, value, piece);
        LOCH_TRY_RETURN(loch_copy_with(staging, zone.start + done, piece, &options));
        const size_t at = red_zone_differs(staging, piece, value);
        if (at < piece) {
            *out = done + at;
            return LOCH_OK;
        }
    }
    *out = zone.bytes;
    return LOCH_OK;
}

/* Finds the first byte of a zone that is not `value`. Waits for `stream` first. */
static loch_status red_zone_look(loch_stream *stream, red_zone zone, uint8_t value, size_t *out)
{
    *out = 0;
    if (!zone.bytes) return LOCH_OK;
    lochi_place place;
    LOCH_TRY_RETURN(lochi_copy_locate(zone.start, zone.bytes, "red zone", &place));
    if (lochi_place_is_host(&place)) {
        LOCH_TRY_RETURN(loch_stream_sync(stream));
        *out = red_zone_differs((const unsigned char *)zone.start, zone.bytes, value);
        return LOCH_OK;
    }
    unsigned char small[RED_ZONE_STACK_BYTES];
    const size_t wanted = zone.bytes < RED_ZONE_STAGING_BYTES ? zone.bytes : RED_ZONE_STAGING_BYTES;
    unsigned char *large = wanted > sizeof small ? lochi_alloc(wanted) : NULL;
    const loch_status status =
        red_zone_look_through(stream, zone, value, large ? large : small, large ? wanted : sizeof small, out);
    lochi_free(large);
    return status;
}

static loch_status red_zone_report(const lochi_held *held, size_t distance, const char *where)
{
    const char *tag = loch_tag_name(held->tag);
    return LOCH_FAIL(CORRUPT, "block %llu of %zu bytes at %p%s%s was written %zu bytes %s",
                     (unsigned long long)held->id, held->requested, lochi_held_address(held), *tag ? ", tag " : "", tag,
                     distance, where);
}

loch_status lochi_red_zone_check(loch_stream *stream, const lochi_held *held)
{
    const red_zone front = red_zone_front(held), rear = red_zone_rear(held);
    size_t at;
    LOCH_TRY_RETURN(red_zone_look(stream, front, LOCHI_RED_ZONE_BYTE, &at));
    if (at < front.bytes) return red_zone_report(held, front.bytes - at, "in front of its start");
    LOCH_TRY_RETURN(red_zone_look(stream, rear, LOCHI_RED_ZONE_BYTE, &at));
    return at < rear.bytes ? red_zone_report(held, at, "behind its end") : LOCH_OK;
}

loch_status lochi_red_zone_check_poison(loch_stream *stream, const lochi_held *held, uint8_t poison)
{
    size_t at;
    LOCH_TRY_RETURN(red_zone_look(stream, (red_zone){lochi_held_address(held), held->requested}, poison, &at));
    return at < held->requested ? red_zone_report(held, at, "behind its start, after it was freed") : LOCH_OK;
}

loch_status lochi_red_zone_settle(loch_status status, const lochi_held *held)
{
    if (status == LOCH_OK || status == LOCH_E_CORRUPT) return status;
    LOCHI_LOG(WARNING, "the block at %p could not be checked: %s", lochi_held_address(held),
              loch_error_get()->sentence);
    return LOCH_OK;
}

void lochi_red_zone_poison_freed(loch_stream *stream, const lochi_held *held, uint8_t poison)
{
    const loch_error saved = lochi_error_save();
    loch_status status = lochi_red_zone_poison(stream, held, poison);
    if (status == LOCH_OK) status = loch_stream_sync(stream);
    if (status != LOCH_OK)
        LOCHI_LOG(WARNING, "the block at %p could not be poisoned: %s", lochi_held_address(held),
                  loch_error_get()->sentence);
    lochi_error_restore(&saved);
}
