/* SPDX-License-Identifier: MIT */
/* Results of walks and prints as arrays, counts and lengths, for comparisons in tests. Nothing here asserts: a call
 * that fails returns its status, or 0. Included by test.h. */
#ifndef LOCH_TEST_LISTS_H
#define LOCH_TEST_LISTS_H

#include <loch/engine.h>
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/sim.h>

/* Copy the first `capacity` items and count all of them. */
loch_status test_device_calls(loch_device *device, loch_call_count *out, size_t capacity, size_t *count);
loch_status test_sim_violations(loch_device *device, loch_sim_violation *out, size_t capacity, size_t *count);
loch_status test_census_by_tag(const loch_census *before, const loch_census *census, loch_census_tag *out,
                               size_t capacity, size_t *count);

/* Copies the newest `capacity` records, oldest first, and their number. */
loch_status test_tracking_records(loch_allocator *tracking, loch_tracking_record *out, size_t capacity, size_t *count);

/* Count the items, or find one by its place; NULL past the end. */
size_t test_option_count(void);
const loch_option *test_option_at(size_t index);
const loch_driver *test_driver_at(size_t index);
size_t test_tag_count(void); /* with 0, which is no tag */
size_t test_census_count(const loch_census *census);
const loch_block *test_census_at(const loch_census *census, size_t index); /* valid until the next call of the thread */

/* Returns the current stream of a context; NULL without one. */
loch_stream *test_context_stream(loch_context *context);

/* Compacts the pool that new tensors of a context come from, on its current stream. */
loch_status test_context_compact(loch_context *context, loch_compact_report *report);

/* Print, and return the length of the whole; 0 on failure. */
size_t test_pool_print(loch_allocator *pool, char *text, size_t bytes);
size_t test_engine_print(loch_engine *engine, char *text, size_t bytes);
size_t test_timeline_print(loch_timeline *timeline, loch_timeline_format format, size_t width, char *text,
                           size_t bytes);
size_t test_stats_print(const loch_stats *stats, char *text, size_t bytes);
size_t test_stats_print_json(const loch_stats *stats, char *text, size_t bytes);
size_t test_profile_print(const loch_profile_report *report, char *text, size_t bytes);
size_t test_profile_print_json(const loch_profile_report *report, char *text, size_t bytes);
size_t test_census_print(const loch_census *before, const loch_census *after, char *text, size_t bytes);
size_t test_census_print_json(const loch_census *before, const loch_census *after, char *text, size_t bytes);

#endif
