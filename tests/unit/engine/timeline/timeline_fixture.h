/* SPDX-License-Identifier: MIT */
/* Shared by the tests of timelines: a clock that the test moves, and spans copied out of a timeline. */
#ifndef LOCH_TEST_TIMELINE_FIXTURE_H
#define LOCH_TEST_TIMELINE_FIXTURE_H

#include "base/clock.h"
#include "sim_fixture.h"

static uint64_t tl_now_ns;

static uint64_t tl_clock(void *user)
{
    (void)user;
    return tl_now_ns;
}

__attribute__((unused)) static int tl_setup(void **state)
{
    tl_now_ns = 1000;
    lochi_clock_set(tl_clock, NULL);
    return sim_setup(state);
}

__attribute__((unused)) static int tl_teardown(void **state)
{
    lochi_clock_set(NULL, NULL);
    return sim_teardown(state);
}

#define TL_TEST(function) cmocka_unit_test_setup_teardown(function, tl_setup, tl_teardown)

__attribute__((unused)) static loch_timeline *tl_create(int level, size_t capacity)
{
    const loch_timeline_options options = {.size = sizeof options, .level = level, .capacity = capacity};
    loch_timeline *timeline;
    CHECK_OK(loch_timeline_create(&options, &timeline));
    return timeline;
}

#define TL_SPANS 64

typedef struct tl_list {
    size_t count;
    loch_span_record spans[TL_SPANS];
    char names[TL_SPANS][64], devices[TL_SPANS][64];
} tl_list;

static loch_status tl_visit(const loch_span_record *record, void *user)
{
    tl_list *list = user;
    if (list->count == TL_SPANS) return LOCH_E_OVERFLOW;
    const size_t i = list->count++;
    list->spans[i] = *record;
    snprintf(list->names[i], sizeof list->names[i], "%s", record->name);
    snprintf(list->devices[i], sizeof list->devices[i], "%s", record->device);
    list->spans[i].name = list->names[i];
    list->spans[i].device = list->devices[i];
    return LOCH_OK;
}

/* All spans that have ended; valid until the next call. */
__attribute__((unused)) static const tl_list *tl_read(loch_timeline *timeline)
{
    static tl_list list;
    list.count = 0;
    CHECK_OK(loch_timeline_walk(timeline, tl_visit, &list));
    size_t kept;
    loch_timeline_count(timeline, &kept, NULL);
    assert_int_equal(kept, list.count);
    return &list;
}

__attribute__((unused)) static uint64_t tl_lost(loch_timeline *timeline)
{
    uint64_t lost;
    loch_timeline_count(timeline, NULL, &lost);
    return lost;
}

/* The whole text; the caller frees it. Its length is what was returned. */
__attribute__((unused)) static char *tl_print(loch_timeline *timeline, loch_timeline_format format, size_t width)
{
    const size_t length = test_timeline_print(timeline, format, width, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(test_timeline_print(timeline, format, width, text, length + 1), length);
    assert_int_equal(strlen(text), length);
    return text;
}

#endif
