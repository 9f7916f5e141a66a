/* SPDX-License-Identifier: MIT */
/* Computes the limit of each seat. Asks every device once for its free memory, before any memory is taken. So seats on
 * one device divide one number, and no seat sees the memory of another.
 *
 * A limit of 0 means "no limit" in the code below. A share that rounds to 0 bytes is therefore a failure. */
#include "engine/engine_limits.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/text.h"

#define LIMITS_SLACK 1e-9 /* by so much the sum of fractions may exceed 1: 0.1 is not exact in binary */

loch_status lochi_engine_check_wish(const loch_engine_device *wish)
{
    const double fraction = wish->limit_fraction;
    if (!(fraction >= 0 && fraction <= 1)) /* also refuses NaN */
        return LOCH_FAIL(INVALID, "limit_fraction is %g; it must be from 0 to 1", fraction);
    const int given = (wish->limit_bytes != 0) + (fraction > 0) + (wish->spare_bytes != 0);
    if (given > 1)
        return LOCH_FAIL(INVALID, "%d of limit_bytes, limit_fraction and spare_bytes are given; at most one is allowed",
                         given);
    if ((wish->cpus == NULL) != (wish->cpus_count == 0))
        return LOCH_FAIL(INVALID, "cpus and cpus_count must be given together; cpus_count is %zu", wish->cpus_count);
    return LOCH_OK;
}

/* --- one device --- */

/* The wishes of all seats on one device. */
typedef struct limits_sum {
    size_t free;          /* bytes at the moment */
    size_t claimed;       /* bytes claimed by limits in bytes and by fractions; SIZE_MAX after an overflow */
    double fractions;     /* sum */
    size_t sparing;       /* number of seats with spare_bytes */
    size_t largest_spare; /* of those seats */
} limits_sum;

static size_t limits_of_fraction(size_t free, double fraction)
{
    const double part = (double)free * fraction;
    return part < (double)free ? (size_t)part : free;
}

static void limits_add(limits_sum *sum, const loch_engine_device *wish)
{
    const size_t bytes =
        wish->limit_fraction > 0 ? limits_of_fraction(sum->free, wish->limit_fraction) : wish->limit_bytes;
    if (!lochi_add(sum->claimed, bytes, &sum->claimed)) sum->claimed = SIZE_MAX;
    sum->fractions += wish->limit_fraction;
    sum->sparing += wish->spare_bytes != 0;
    if (wish->spare_bytes > sum->largest_spare) sum->largest_spare = wish->spare_bytes;
}

static loch_status limits_share_rest(const limits_sum *sum, const char *device, size_t *out)
{
    const size_t left = sum->free > sum->claimed ? sum->free - sum->claimed : 0;
    const size_t rest = left > sum->largest_spare ? left - sum->largest_spare : 0;
    *out = rest / sum->sparing;
    if (*out) return LOCH_OK;
    return LOCH_FAIL(LIMIT, "spare_bytes asks to keep %s free, but of %s free on %.80s the other seats leave only %s",
                     LOCHI_SIZE(sum->largest_spare), LOCHI_SIZE(sum->free), device, LOCHI_SIZE(left));
}

static loch_status limits_of_seat(const limits_sum *sum, const loch_engine_device *wish, const char *device,
                                  size_t *out)
{
    *out = wish->limit_bytes;
    if (wish->spare_bytes) return limits_share_rest(sum, device, out);
    if (!(wish->limit_fraction > 0)) return LOCH_OK;
    if (sum->fractions > 1 + LIMITS_SLACK)
        return LOCH_FAIL(INVALID, "the limit_fractions of all seats on %.80s sum to %g, which is more than 1", device,
                         sum->fractions);
    *out = limits_of_fraction(sum->free, wish->limit_fraction);
    if (*out) return LOCH_OK;
    return LOCH_FAIL(LIMIT, "a limit_fraction of %g of the %s free on %.80s is less than one byte",
                     wish->limit_fraction, LOCHI_SIZE(sum->free), device);
}

/* --- all devices --- */

static bool limits_ask_for_free(const loch_engine_device *wish)
{
    return wish->limit_fraction > 0 || wish->spare_bytes;
}

static loch_status limits_sum_up(const loch_engine *engine, const loch_engine_device *wishes, loch_device *device,
                                 limits_sum *out)
{
    loch_memory_info memory = {.size = sizeof memory};
    LOCH_TRY_RETURN(loch_device_calculate_memory(device, &memory));
    *out = (limits_sum){.free = memory.free_bytes};
    for (unsigned i = 0; i < engine->count; i++)
        if (engine->seats[i].device == device) limits_add(out, &wishes[i]);
    return LOCH_OK;
}

/* Computes the limits for a seat and for all later seats on the same device. */
static loch_status limits_of_device(loch_engine *engine, const loch_engine_device *wishes, unsigned first)
{
    loch_device *device = engine->seats[first].device;
    limits_sum sum = {0};
    bool is_asked = false;
    for (unsigned i = first; i < engine->count; i++) {
        if (engine->seats[i].device != device) continue;
        loch_status status = LOCH_OK;
        if (!is_asked && limits_ask_for_free(&wishes[i])) {
            status = limits_sum_up(engine, wishes, device, &sum);
            is_asked = true;
        }
        if (status == LOCH_OK)
            status = limits_of_seat(&sum, &wishes[i], loch_device_get_name(device), &engine->seats[i].limit_bytes);
        if (status != LOCH_OK) return lochi_engine_fail_at(i, status);
    }
    return LOCH_OK;
}

loch_status lochi_engine_set_limits(loch_engine *engine, const loch_engine_device *wishes)
{
    for (unsigned i = 0; i < engine->count; i++) {
        bool is_first = true;
        for (unsigned before = 0; before < i; before++)
            is_first &= engine->seats[before].device != engine->seats[i].device;
        if (is_first) LOCH_TRY_RETURN(limits_of_device(engine, wishes, i));
    }
    return LOCH_OK;
}
