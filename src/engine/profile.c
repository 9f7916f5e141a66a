/* SPDX-License-Identifier: MIT */
/* Measuring scopes. When a scope begins, it ends the allocator's segment. Every segment that ends later raises the
 * peaks of the scope (account.c). So a scope costs nothing while no scope begins or ends.
 *
 * A scope on a wrapper without statistics of its own is in the list of the allocator that keeps them, so that
 * segments that end there raise its peaks too. */
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "kit/sized.h"
#include "memory/format.h"
#include "memory/allocator.h"
#include <inttypes.h>
#include <loch/host.h>
#include <loch/profile.h>
#include <string.h>

struct loch_profile {
    lochi_scope scope;         /* in the list of `keeper` */
    loch_allocator *allocator; /* retained; it retains `keeper` */
    loch_allocator *keeper;    /* allocator that keeps the statistics */
    loch_stats before;         /* statistics when the scope began */
    uint64_t begin_ns;
    char label[];
};

static loch_allocator *profile_keeper(loch_allocator *allocator)
{
    while (!allocator->ops.get_stats && allocator->wrapped)
        allocator = allocator->wrapped;
    return allocator;
}

loch_status loch_profile_begin(loch_allocator *allocator, const char *label, loch_profile **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a measuring scope needs an allocator and an out pointer");
    const size_t length = label ? strlen(label) : 0;
    loch_profile *profile = lochi_zalloc(sizeof *profile + length + 1);
    if (!profile) return LOCH_FAIL(HOST_MEMORY, "no host memory for a measuring scope");
    if (length) memcpy(profile->label, label, length);
    profile->keeper = profile_keeper(allocator);
    profile->before.size = sizeof profile->before;
    lochi_lock_take(&profile->keeper->lock);
    loch_status status = lochi_allocator_end_segment(profile->keeper);
    if (status == LOCH_OK) status = lochi_allocator_read_stats(profile->keeper, 0, &profile->before);
    if (status == LOCH_OK) {
        profile->scope.next = profile->keeper->scopes;
        profile->keeper->scopes = &profile->scope;
    }
    lochi_lock_drop(&profile->keeper->lock);
    if (status != LOCH_OK) {
        lochi_free(profile);
        return status;
    }
    profile->allocator = loch_allocator_retain(allocator);
    profile->begin_ns = loch_host_now_ns();
    *out = profile;
    return LOCH_OK;
}

static uint64_t profile_most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Fills a report of the scope up to now. An allocator that cannot start a new segment continues the old one; then a
 * peak that is not above the peak at the beginning may be older than the scope, and the larger of the use at the
 * beginning and now is reported. */
static loch_status profile_measure(const loch_profile *profile, loch_profile_report *out)
{
    lochi_lock_assert_held(&profile->keeper->lock);
    const loch_stats *before = &profile->before;
    loch_stats now = {.size = sizeof now};
    LOCH_TRY_RETURN(lochi_allocator_read_stats(profile->keeper, 0, &now));
    const uint64_t peak = profile_most(now.peak_requested_bytes, profile->scope.peaks.peak_requested_bytes);
    const uint64_t seen = profile_most(before->requested_bytes, now.requested_bytes);
    *out = (loch_profile_report){.size = out->size,
                                 .requested_bytes = now.requested_bytes,
                                 .delta_bytes = (int64_t)(now.requested_bytes - before->requested_bytes),
                                 .peak_bytes = peak > before->peak_requested_bytes ? peak : seen,
                                 .allocs = now.allocs - before->allocs,
                                 .frees = now.frees - before->frees,
                                 .blocks = now.blocks,
                                 .delta_blocks = (int64_t)(now.blocks - before->blocks),
                                 .duration_ns = loch_host_now_ns() - profile->begin_ns};
    return LOCH_OK;
}

loch_status loch_profile_read(loch_profile *profile, loch_profile_report *out)
{
    if (!profile || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "a report needs a measuring scope and a struct whose size is set");
    loch_profile_report report = {.size = sizeof report};
    lochi_lock_take(&profile->keeper->lock);
    const loch_status status = profile_measure(profile, &report);
    lochi_lock_drop(&profile->keeper->lock);
    if (status != LOCH_OK) return status;
    report.label = profile->label;
    lochi_sized_write(out, &report, sizeof report);
    return LOCH_OK;
}

void loch_profile_end(loch_profile *profile, loch_profile_report *out)
{
    if (!profile) return;
    loch_profile_report report = {.size = sizeof report};
    lochi_lock_take(&profile->keeper->lock);
    const loch_status status = profile_measure(profile, &report);
    lochi_scope **link = &profile->keeper->scopes;
    while (*link != &profile->scope)
        link = &(*link)->next;
    *link = profile->scope.next;
    lochi_lock_drop(&profile->keeper->lock);
    if (status != LOCH_OK) memset(&report, 0, sizeof report); /* a figure that could not be read is 0 */
    if (lochi_sized_is_set(out)) lochi_sized_write(out, &report, sizeof report);
    loch_allocator_release(profile->allocator);
    lochi_free(profile);
}

/* --- printing --- */

static void profile_print_line(const loch_profile_report *report, lochi_text *out)
{
    if (report->label && *report->label) lochi_text_write(out, "%s: ", report->label);
    const bool is_less = report->delta_bytes < 0;
    const uint64_t change = is_less ? 0 - (uint64_t)report->delta_bytes : (uint64_t)report->delta_bytes;
    lochi_text_write(out, "%s in use (%c%s), peak %s", LOCHI_SIZE(report->requested_bytes), is_less ? '-' : '+',
                     LOCHI_SIZE(change), LOCHI_SIZE(report->peak_bytes));
    lochi_text_write(out, "; %" PRIu64 " blocks (%+" PRId64 ")", report->blocks, report->delta_blocks);
    lochi_text_write(out, "; %" PRIu64 " allocations, %" PRIu64 " frees; %" PRIu64 ".%03" PRIu64 " ms\n",
                     report->allocs, report->frees, report->duration_ns / 1000000, report->duration_ns / 1000 % 1000);
}

static void profile_print_json(const loch_profile_report *report, lochi_text *out)
{
    lochi_text_write(out, "{\"label\": ");
    lochi_text_write_json(out, report->label);
    lochi_text_write(out, ", \"requested_bytes\": %" PRIu64 ", \"delta_bytes\": %" PRId64 ", \"peak_bytes\": %" PRIu64,
                     report->requested_bytes, report->delta_bytes, report->peak_bytes);
    lochi_text_write(out, ", \"allocs\": %" PRIu64 ", \"frees\": %" PRIu64, report->allocs, report->frees);
    lochi_text_write(out, ", \"blocks\": %" PRIu64 ", \"delta_blocks\": %" PRId64 ", \"duration_ns\": %" PRIu64 "}",
                     report->blocks, report->delta_blocks, report->duration_ns);
}

loch_status loch_profile_print(const loch_profile_report *report, loch_format format, char *text, size_t bytes,
                               size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(report, text, bytes, length));
    LOCH_TRY_RETURN(lochi_format_check(format));
    lochi_text out = lochi_text_begin(text, bytes);
    if (format == LOCH_FORMAT_JSON)
        profile_print_json(report, &out);
    else
        profile_print_line(report, &out);
    return lochi_printing_end(&out, length);
}
