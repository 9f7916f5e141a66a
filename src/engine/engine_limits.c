/* SPDX-License-Identifier: MIT */
/* How much each seat may hold. Every device is asked once what is free, before any memory is taken: seats of one device
 * divide one figure, and none sees what another has taken already.
 *
 * A limit of 0 means none everywhere below, so a share that comes to nothing is a failure and never a 0. */
#include "engine/engine_limits.h"
#include "base/checked.h"
#include "base/fail.h"

#define LIMITS_SLACK 1e-9 /* that fractions may exceed 1 together: 0.1 is none of a computer's numbers */

loch_status lochi_engine_check_wish(const loch_engine_device *wish)
{
    const double fraction = wish->limit_fraction;
    if (!(fraction >= 0 && fraction <= 1)) /* not a number is neither */
        return LOCH_FAIL(INVALID, "a limit is a fraction from 0 to 1 of what is free, not %g", fraction);
    const int given = (wish->limit_bytes != 0) + (fraction > 0) + (wish->spare_bytes != 0);
    if (given > 1)
        return LOCH_FAIL(INVALID, "of limit_bytes, limit_fraction and spare_bytes one may be given, not %d", given);
    if ((wish->cpus == NULL) != (wish->cpus_count == 0))
        return LOCH_FAIL(INVALID, "cpus and their count go together, there are %zu", wish->cpus_count);
    return LOCH_OK;
}

/* --- one device --- */

/* What the seats of one device want of it together. */
typedef struct limits_sum {
    size_t free;          /* now */
    size_t claimed;       /* by limits in bytes and by fractions; SIZE_MAX when that is too much to count */
    double fractions;     /* together */
    size_t sparing;       /* seats that take all but so much */
    size_t largest_spare; /* of theirs */
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
    return LOCH_FAIL(LIMIT, "%zu bytes are to be spared, but of the %zu that are free on %.80s other seats leave %zu",
                     sum->largest_spare, sum->free, device, left);
}

static loch_status limits_of_seat(const limits_sum *sum, const loch_engine_device *wish, const char *device,
                                  size_t *out)
{
    *out = wish->limit_bytes;
    if (wish->spare_bytes) return limits_share_rest(sum, device, out);
    if (!(wish->limit_fraction > 0)) return LOCH_OK;
    if (sum->fractions > 1 + LIMITS_SLACK)
        return LOCH_FAIL(INVALID, "the fractions of all seats on %.80s are %g together, and 1 is all", device,
                         sum->fractions);
    *out = limits_of_fraction(sum->free, wish->limit_fraction);
    if (*out) return LOCH_OK;
    return LOCH_FAIL(LIMIT, "%g of the %zu bytes that are free on %.80s is nothing", wish->limit_fraction, sum->free,
                     device);
}

/* --- all of them --- */

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

/* The limits of a seat's device, for this seat and all later ones of the same device. */
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
