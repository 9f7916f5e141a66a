/* SPDX-License-Identifier: MIT */
/* Censuses: what is live by tag and id, and the difference between two points. */
#include "profile_fixture.h"
#include <inttypes.h>

/* --- censuses --- */

static loch_census *census_of(loch_allocator *allocator)
{
    loch_census *census;
    CHECK_OK(loch_census_create(allocator, &census));
    return census;
}

typedef struct found {
    uint64_t ids[64];
    size_t count, stop_at;
} found;

static loch_status note(const loch_block *block, void *user)
{
    found *f = user;
    f->ids[f->count++] = block->id;
    return f->count == f->stop_at ? LOCH_E_CANCELLED : LOCH_OK;
}

static void a_census_lists_blocks_by_id(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    void *blocks[300];
    loch_census *empty = census_of(a);
    assert_int_equal(test_census_count(empty), 0);
    for (size_t i = 0; i < 300; i++)
        blocks[i] = take(a, 1 + i, 0);
    loch_census *full = census_of(a);
    assert_int_equal(test_census_count(full), 300);
    uint64_t last = 0;
    for (size_t i = 0; i < 300; i++) {
        const loch_block *block = test_census_at(full, i);
        assert_true(block->id > last);
        last = block->id;
        loch_block same = {.size = sizeof same};
        CHECK_OK(loch_allocator_find(a, block->address, &same));
        assert_int_equal(same.id, block->id);
        assert_int_equal(same.requested_bytes, block->requested_bytes);
    }
    assert_null(test_census_at(full, 300));
    for (size_t i = 0; i < 300; i++)
        CHECK_OK(loch_free(a, blocks[i]));
    loch_census_destroy(full);
    loch_census_destroy(empty);
    loch_allocator_release(a);
}

static void the_difference_of_two_censuses_is_what_came(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    void *kept = take(a, 10, 0), *gone = take(a, 20, 0);
    loch_census *before = census_of(a);
    CHECK_OK(loch_free(a, gone));
    void *reused = take(a, 20, 0); /* perhaps at the same address, but another block */
    void *leaked[10];
    for (int i = 0; i < 10; i++)
        leaked[i] = take(a, 100, 0);
    loch_census *after = census_of(a);
    found f = {0};
    CHECK_OK(loch_census_walk(after, before, note, &f));
    assert_int_equal(f.count, 11);
    loch_block block = {.size = sizeof block};
    for (int i = 0; i < 11; i++) {
        if (i) assert_true(f.ids[i] > f.ids[i - 1]);
        size_t seen = 0;
        for (int k = 0; k < 11; k++) {
            CHECK_OK(loch_allocator_find(a, k < 10 ? leaked[k] : reused, &block));
            seen += block.id == f.ids[i];
        }
        assert_int_equal(seen, 1);
    }
    f.count = 0;
    CHECK_OK(loch_census_walk(after, NULL, note, &f));
    assert_int_equal(f.count, 12);
    f.count = 0;
    CHECK_OK(loch_census_walk(after, after, note, &f));
    assert_int_equal(f.count, 0);
    CHECK_OK(loch_census_walk(before, after, note, &f)); /* what has gone since */
    assert_int_equal(f.count, 1);
    f = (found){.stop_at = 3};
    CHECK_STATUS(loch_census_walk(after, NULL, note, &f), LOCH_E_CANCELLED);
    assert_int_equal(f.count, 3);
    for (int i = 0; i < 10; i++)
        CHECK_OK(loch_free(a, leaked[i]));
    CHECK_OK(loch_free(a, kept));
    CHECK_OK(loch_free(a, reused));
    loch_census_destroy(before);
    loch_census_destroy(after);
    loch_allocator_release(a);
}

static void leaks_are_summed_by_tag(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    loch_tag weights, cache;
    CHECK_OK(loch_tag_create("weights \"w\"", &weights));
    CHECK_OK(loch_tag_create("cache", &cache));
    void *old = take(a, 1 << 20, weights);
    loch_census *before = census_of(a);
    void *blocks[4] = {take(a, 1000, cache), take(a, 2000, cache), take(a, 500, 0), take(a, 7000, weights)};
    loch_census *after = census_of(a);
    loch_census_tag tags[4];
    size_t count;
    CHECK_OK(test_census_by_tag(before, after, tags, 4, &count));
    assert_int_equal(count, 3);
    const loch_census_tag expected[3] = {{weights, 1, 7000}, {cache, 2, 3000}, {0, 1, 500}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tags[i].tag, expected[i].tag);
        assert_int_equal(tags[i].blocks, expected[i].blocks);
        assert_int_equal(tags[i].requested_bytes, expected[i].requested_bytes);
    }
    tags[1].tag = 99;
    CHECK_OK(test_census_by_tag(NULL, after, tags, 1, &count)); /* less room than tags */
    assert_int_equal(count, 3);
    assert_int_equal(tags[0].requested_bytes, 7000 + (1 << 20));
    assert_int_equal(tags[1].tag, 99);
    CHECK_OK(test_census_by_tag(after, after, NULL, 0, &count));
    assert_int_equal(count, 0);

    char text[2048], json[4096], line[128];
    size_t length = test_census_print(before, after, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "4 blocks, 10.2 KiB\n"));
    assert_non_null(strstr(text, "  weights \"w\": 1 block, 6.8 KiB\n  cache: 2 blocks, 2.9 KiB\n"
                                 "  (no tag): 1 block, 500 B\nlargest:\n"));
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(a, blocks[1], &block));
    snprintf(line, sizeof line, "  block %" PRIu64 " at %p: 1.9 KiB, cache\n", block.id, blocks[1]);
    assert_non_null(strstr(text, line));
    length = test_census_print_json(before, after, json, sizeof json);
    assert_int_equal(length, strlen(json));
    assert_true(json_is_valid(json));
    assert_non_null(strstr(json, "{\"tag\": \"weights \\\"w\\\"\", \"blocks\": 1, \"requested_bytes\": 7000}"));
    snprintf(line, sizeof line, "{\"id\": %" PRIu64 ", \"address\": \"0x%" PRIxPTR "\", \"requested_bytes\": 2000",
             block.id, (uintptr_t)blocks[1]);
    assert_non_null(strstr(json, line));
    assert_int_equal(test_census_print_json(before, after, NULL, 0), length);
    assert_true(test_census_print(before, after, text, 5) > 5);
    assert_string_equal(text, "4 bl");
    test_census_print(after, after, text, sizeof text);
    assert_string_equal(text, "0 blocks, 0 B\n");
    test_census_print_json(after, after, json, sizeof json);
    assert_true(json_is_valid(json));
    for (int i = 0; i < 4; i++)
        CHECK_OK(loch_free(a, blocks[i]));
    CHECK_OK(loch_free(a, old));
    loch_census_destroy(before);
    loch_census_destroy(after);
    loch_allocator_release(a);
}

/* The text names the ten largest, largest first, and the JSON all. */
static void the_largest_are_named(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    void *blocks[25];
    for (size_t i = 0; i < 25; i++)
        blocks[i] = take(a, 100 + (i * 7) % 25, 0); /* 100 to 124 in some order */
    loch_census *census = census_of(a);
    char text[4096], json[8192];
    test_census_print(NULL, census, text, sizeof text);
    const char *at = strstr(text, "largest:\n");
    assert_non_null(at);
    for (int bytes = 124; bytes > 114; bytes--) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, ": %d B\n", bytes);
        at = strstr(at, wanted);
        assert_non_null(at);
        at += strlen(wanted);
    }
    assert_int_equal(*at, '\0');
    test_census_print_json(NULL, census, json, sizeof json);
    assert_true(json_is_valid(json));
    size_t listed = 0;
    for (at = json; (at = strstr(at, "\"id\"")); at++)
        listed++;
    assert_int_equal(listed, 25);
    for (size_t i = 0; i < 25; i++)
        CHECK_OK(loch_free(a, blocks[i]));
    loch_census_destroy(census);
    loch_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_census_lists_blocks_by_id),
        SIM_TEST(the_difference_of_two_censuses_is_what_came),
        SIM_TEST(leaks_are_summed_by_tag),
        SIM_TEST(the_largest_are_named),
    };
    return cmocka_run_group_tests_name("profiles", tests, install, NULL);
}
