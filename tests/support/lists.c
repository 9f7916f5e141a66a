/* SPDX-License-Identifier: MIT */
/* Walks and printed texts as arrays, counts and lengths. */
#include "support/lists.h"
#include <string.h>

typedef struct list {
    void *out;
    size_t bytes; /* of one item */
    size_t capacity, count;
} list;

static loch_status list_note(list *to, const void *item)
{
    if (to->count < to->capacity) memcpy((char *)to->out + to->count * to->bytes, item, to->bytes);
    to->count++;
    return LOCH_OK;
}

static loch_status list_end(const list *from, loch_status status, size_t *count)
{
    if (count) *count = from->count;
    return status;
}

static loch_status list_note_call(const loch_call_count *call, void *user)
{
    return list_note(user, call);
}

loch_status test_device_calls(loch_device *device, loch_call_count *out, size_t capacity, size_t *count)
{
    list to = {out, sizeof *out, capacity, 0};
    return list_end(&to, loch_device_walk_calls(device, list_note_call, &to), count);
}

static loch_status list_note_violation(const loch_sim_violation *violation, void *user)
{
    return list_note(user, violation);
}

loch_status test_sim_violations(loch_device *device, loch_sim_violation *out, size_t capacity, size_t *count)
{
    list to = {out, sizeof *out, capacity, 0};
    loch_sim_stats stats = {.size = sizeof stats};
    loch_status status = loch_sim_walk_violations(device, list_note_violation, &to);
    if (status == LOCH_OK) status = loch_sim_get_stats(device, &stats);
    if (count) *count = stats.violations;
    return status;
}

static loch_status list_note_sum(const loch_census_tag *sum, void *user)
{
    return list_note(user, sum);
}

loch_status test_census_by_tag(const loch_census *before, const loch_census *census, loch_census_tag *out,
                               size_t capacity, size_t *count)
{
    list to = {out, sizeof *out, capacity, 0};
    return list_end(&to, loch_census_walk_tags(census, before, list_note_sum, &to), count);
}

typedef struct list_records {
    loch_tracking_record *out;
    size_t skip, capacity, count;
} list_records;

static loch_status list_note_record(const loch_tracking_record *record, void *user)
{
    list_records *to = user;
    if (to->count >= to->skip && to->count - to->skip < to->capacity) to->out[to->count - to->skip] = *record;
    to->count++;
    return LOCH_OK;
}

loch_status test_tracking_records(loch_allocator *tracking, loch_tracking_record *out, size_t capacity, size_t *count)
{
    list_records to = {.out = out};
    loch_status status = loch_tracking_walk(tracking, list_note_record, &to);
    if (to.count > capacity) to.skip = to.count - capacity;
    to.capacity = capacity;
    const size_t kept = to.count - to.skip;
    to.count = 0;
    if (status == LOCH_OK) status = loch_tracking_walk(tracking, list_note_record, &to);
    if (count) *count = kept;
    return status;
}

/* --- by place --- */

typedef struct list_search {
    size_t place, seen;
    const void *found;
} list_search;

static loch_status list_look(list_search *search, const void *item)
{
    if (search->seen++ == search->place) search->found = item;
    return LOCH_OK;
}

static loch_status list_look_at_option(const loch_option *option, void *user)
{
    return list_look(user, option);
}

static loch_status list_look_at_driver(const loch_driver *driver, void *user)
{
    return list_look(user, driver);
}

static loch_status list_look_at_tag(loch_tag tag, const char *name, void *user)
{
    (void)tag;
    return list_look(user, name);
}

size_t test_option_count(void)
{
    list_search search = {.place = SIZE_MAX};
    return loch_option_walk(list_look_at_option, &search) == LOCH_OK ? search.seen : 0;
}

const loch_option *test_option_at(size_t index)
{
    list_search search = {.place = index};
    return loch_option_walk(list_look_at_option, &search) == LOCH_OK ? search.found : NULL;
}

const loch_driver *test_driver_at(size_t index)
{
    list_search search = {.place = index};
    return loch_driver_walk(list_look_at_driver, &search) == LOCH_OK ? search.found : NULL;
}

size_t test_tag_count(void)
{
    list_search search = {.place = SIZE_MAX};
    return loch_tag_walk(list_look_at_tag, &search) == LOCH_OK ? search.seen + 1 : 0;
}

typedef struct list_block {
    size_t place, seen;
    loch_block *out;
} list_block;

static loch_status list_look_at_block(const loch_block *block, void *user)
{
    list_block *search = user;
    if (search->seen++ == search->place) *search->out = *block;
    return LOCH_OK;
}

size_t test_census_count(const loch_census *census)
{
    loch_block unused;
    list_block search = {.place = SIZE_MAX, .out = &unused};
    return census && loch_census_walk(census, NULL, list_look_at_block, &search) == LOCH_OK ? search.seen : 0;
}

const loch_block *test_census_at(const loch_census *census, size_t index)
{
    static _Thread_local loch_block block;
    list_block search = {.place = index, .out = &block};
    if (!census || loch_census_walk(census, NULL, list_look_at_block, &search) != LOCH_OK) return NULL;
    return index < search.seen ? &block : NULL;
}

loch_stream *test_context_stream(loch_context *context)
{
    loch_stream *stream;
    return loch_context_require_stream(context, &stream) == LOCH_OK ? stream : NULL;
}

loch_status test_context_compact(loch_context *context, loch_compact_report *report)
{
    const loch_compact_options options = {.size = sizeof options, .stream = test_context_stream(context)};
    return loch_pool_compact(loch_context_get_allocator(context), &options, report);
}

/* --- texts --- */

#define LIST_LENGTH(call)                                                                                              \
    size_t length = 0;                                                                                                 \
    return (call) == LOCH_OK ? length : 0

size_t test_pool_print(loch_allocator *pool, char *text, size_t bytes)
{
    LIST_LENGTH(loch_pool_print(pool, text, bytes, &length));
}

size_t test_engine_print(loch_engine *engine, char *text, size_t bytes)
{
    LIST_LENGTH(loch_engine_print(engine, text, bytes, &length));
}

size_t test_timeline_print(loch_timeline *timeline, loch_timeline_format format, size_t width, char *text, size_t bytes)
{
    LIST_LENGTH(loch_timeline_print(timeline, format, width, text, bytes, &length));
}

size_t test_stats_print(const loch_stats *stats, char *text, size_t bytes)
{
    LIST_LENGTH(loch_stats_print(stats, LOCH_FORMAT_TEXT, text, bytes, &length));
}

size_t test_stats_print_json(const loch_stats *stats, char *text, size_t bytes)
{
    LIST_LENGTH(loch_stats_print(stats, LOCH_FORMAT_JSON, text, bytes, &length));
}

size_t test_profile_print(const loch_profile_report *report, char *text, size_t bytes)
{
    LIST_LENGTH(loch_profile_print(report, LOCH_FORMAT_TEXT, text, bytes, &length));
}

size_t test_profile_print_json(const loch_profile_report *report, char *text, size_t bytes)
{
    LIST_LENGTH(loch_profile_print(report, LOCH_FORMAT_JSON, text, bytes, &length));
}

size_t test_census_print(const loch_census *before, const loch_census *after, char *text, size_t bytes)
{
    LIST_LENGTH(loch_census_print(after, before, LOCH_FORMAT_TEXT, text, bytes, &length));
}

size_t test_census_print_json(const loch_census *before, const loch_census *after, char *text, size_t bytes)
{
    LIST_LENGTH(loch_census_print(after, before, LOCH_FORMAT_JSON, text, bytes, &length));
}
