/* SPDX-License-Identifier: MIT */
/* Tags: one number for each name, for all callers, until there are too many. The order of the tests matters: tags
 * stay. */
#include "test.h"

#include <pthread.h>

#define THREADS 8
#define NAMES 64

static void one_name_has_one_number(void **state)
{
    (void)state;
    loch_tag a = 99, b, again;
    assert_int_equal(test_tag_count(), 1); /* 0 is no tag */
    assert_string_equal(loch_tag_name(0), "");
    assert_string_equal(loch_tag_name(1), "");
    CHECK_OK(loch_tag_create("weights", &a));
    CHECK_OK(loch_tag_create("activations", &b));
    CHECK_OK(loch_tag_create("weights", &again));
    assert_int_equal(a, again);
    assert_true(a != 0 && b != 0 && a != b);
    assert_string_equal(loch_tag_name(a), "weights");
    assert_string_equal(loch_tag_name(b), "activations");
    assert_int_equal(test_tag_count(), 3);
    assert_string_equal(loch_tag_name(3), "");
    assert_string_equal(loch_tag_name(UINT32_MAX), "");
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    loch_tag tag = 99;
    char name[LOCH_TAG_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    name[LOCH_TAG_NAME_MAX] = '\0';
    const size_t before = test_tag_count();
    CHECK_FAILS(loch_tag_create("", &tag), INVALID);
    assert_int_equal(tag, 0);
    CHECK_FAILS(loch_tag_create(NULL, &tag), INVALID);
    CHECK_FAILS(loch_tag_create(name, &tag), INVALID);
    CHECK_FAILS(loch_tag_create("x", NULL), INVALID);
    assert_int_equal(test_tag_count(), before);
    name[LOCH_TAG_NAME_MAX - 1] = '\0';
    CHECK_OK(loch_tag_create(name, &tag));
    assert_string_equal(loch_tag_name(tag), name);
}

typedef struct asker {
    pthread_barrier_t *start;
    loch_tag tags[NAMES];
    size_t wrong;
} asker;

static void *ask(void *user)
{
    asker *a = user;
    pthread_barrier_wait(a->start);
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        snprintf(name, sizeof name, "shared %d", i);
        if (loch_tag_create(name, &a->tags[i]) != LOCH_OK || strcmp(loch_tag_name(a->tags[i]), name) != 0) a->wrong++;
    }
    return NULL;
}

static void one_number_for_all_threads(void **state)
{
    (void)state;
    pthread_barrier_t start;
    asker askers[THREADS];
    const size_t before = test_tag_count();
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        askers[i] = (asker){.start = &start};
    TEST_THREADS_RUN(ask, askers);
    pthread_barrier_destroy(&start);
    assert_int_equal(test_tag_count(), before + NAMES);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].wrong, 0);
        assert_memory_equal(askers[i].tags, askers[0].tags, sizeof askers[0].tags);
    }
}

static void more_tags_than_there_are_numbers_are_refused(void **state)
{
    (void)state;
    loch_tag tag, last = 0;
    char name[32];
    size_t made = 0;
    while (test_tag_count() < LOCH_TAG_COUNT_MAX) {
        snprintf(name, sizeof name, "filler %zu", made++);
        CHECK_OK(loch_tag_create(name, &last));
    }
    assert_int_equal(last, LOCH_TAG_COUNT_MAX - 1);
    CHECK_FAILS(loch_tag_create("one too many", &tag), LIMIT);
    assert_int_equal(tag, 0);
    CHECK_OK(loch_tag_create(name, &tag)); /* what there is stays */
    assert_int_equal(tag, last);
    assert_string_equal(loch_tag_name(last), name);

    /* and the last one can be used, the next not */
    loch_device *device;
    loch_allocator *allocator;
    void *block;
    loch_request request = {.size = sizeof request, .bytes = 10, .tag = last};
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_direct_create(device, NULL, NULL, &allocator));
    CHECK_OK(loch_allocator_alloc(allocator, &request, &block));
    CHECK_OK(loch_allocator_get_tag_stats(allocator, last, &stats));
    assert_int_equal(stats.requested_bytes, 10);
    CHECK_OK(loch_free(allocator, block));
    request.tag = LOCH_TAG_COUNT_MAX;
    CHECK_FAILS(loch_allocator_alloc(allocator, &request, &block), INVALID);
    CHECK_FAILS(loch_allocator_get_tag_stats(allocator, 0, &stats), INVALID);
    CHECK_FAILS(loch_allocator_get_tag_stats(allocator, LOCH_TAG_COUNT_MAX, &stats), INVALID);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_name_has_one_number),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(one_number_for_all_threads),
        cmocka_unit_test(more_tags_than_there_are_numbers_are_refused),
    };
    return cmocka_run_group_tests_name("tags", tests, NULL, NULL);
}
