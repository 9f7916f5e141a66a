/* SPDX-License-Identifier: MIT */
/* Contract of allocator.h, over every allocator and stack: changing the size of blocks. */
#include "allocators.h"

#define TOO_MUCH (TEST_SET(DEVICE_MEMORY) | TEST_SET(HOST_MEMORY) | TEST_SET(LIMIT) | TEST_SET(FRAGMENTED))

static loch_tag make_tag(const char *name)
{
    loch_tag tag;
    CHECK_OK(loch_tag_create(name, &tag));
    return tag;
}

/* Checks what the allocator says of its only block. */
static void check_only_block(const test_subject *s, void *block, size_t bytes, loch_tag tag)
{
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(s->allocator, block, &found));
    assert_ptr_equal(found.address, block);
    assert_int_equal(found.requested_bytes, bytes);
    assert_true(found.allocated_bytes >= bytes);
    assert_int_equal(found.tag, tag);
    const loch_stats stats = test_subject_stats(s);
    assert_int_equal(stats.blocks, 1);
    assert_int_equal(stats.requested_bytes, bytes);
    assert_int_equal(stats.allocs - stats.frees, 1);
}

static void contents_survive_every_change_of_size(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const size_t sizes[] = {100, 101, 127, 128, 1, 5000, 4999, 100 * TEST_KIB, 300, 300, 65, 64, 63};
    const loch_tag tag = make_tag("realloc");
    const loch_request request = {.size = sizeof request, .bytes = 60, .tag = tag};
    void *block = TEST_UNTOUCHED;
    size_t bytes = request.bytes;
    CHECK_OK(loch_allocator_alloc(s.allocator, &request, &block));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *old = block;
        test_bed_put(s.bed, old, bytes, i);
        block = TEST_UNTOUCHED;
        CHECK_OK(loch_allocator_realloc(s.allocator, old, sizes[i], NULL, &block));
        test_bed_expect(s.bed, block, bytes < sizes[i] ? bytes : sizes[i], i);
        bytes = sizes[i];
        check_only_block(&s, block, bytes, tag);
        test_bed_put(s.bed, block, bytes, 1000 + i); /* all of it is there */
        test_bed_expect(s.bed, block, bytes, 1000 + i);
        if (old != block) CHECK_FAILS(loch_free(s.allocator, old), DOUBLE_FREE);
    }
    CHECK_OK(loch_allocator_free_sized(s.allocator, block, bytes));
    assert_int_equal(test_subject_stats(&s).blocks, 0);
    test_subject_end(&s);
}

static void null_allocates_and_zero_frees(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_stream *stream;
    CHECK_OK(loch_stream_create(s.bed->device, NULL, &stream));
    void *block = TEST_UNTOUCHED, *other = TEST_UNTOUCHED, *none = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_realloc(s.allocator, NULL, 500, NULL, &block));
    check_only_block(&s, block, 500, 0);
    CHECK_OK(loch_allocator_realloc(s.allocator, NULL, 700, stream, &other));
    assert_int_equal(test_subject_stats(&s).blocks, 2);
    CHECK_OK(loch_allocator_realloc(s.allocator, block, 0, NULL, &none));
    assert_null(none);
    none = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_realloc(s.allocator, other, 0, stream, &none));
    assert_null(none);
    none = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_realloc(s.allocator, NULL, 0, NULL, &none));
    CHECK_OK(loch_free(s.allocator, none));
    assert_int_equal(test_subject_stats(&s).blocks, 0);
    CHECK_OK(loch_stream_sync(stream));
    loch_stream_close(stream);
    test_subject_end(&s);
}

static void wrong_calls_change_nothing(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    int local;
    char *block = test_subject_alloc(&s, 1000), *freed = test_subject_alloc(&s, 1000);
    CHECK_OK(loch_free(s.allocator, freed));
    test_bed_put(s.bed, block, 1000, 1);
    const loch_stats before = test_subject_stats(&s);
    const size_t sizes[] = {0, 10, 1000, 2000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *out = TEST_UNTOUCHED;
        CHECK_FAILS(loch_allocator_realloc(s.allocator, &local, sizes[i], NULL, &out), FOREIGN);
        assert_null(out);
        out = TEST_UNTOUCHED;
        CHECK_FAILS(loch_allocator_realloc(s.allocator, block + 8, sizes[i], NULL, &out), INTERIOR);
        assert_null(out);
        out = TEST_UNTOUCHED;
        CHECK_FAILS(loch_allocator_realloc(s.allocator, freed, sizes[i], NULL, &out), DOUBLE_FREE);
        assert_null(out);
    }
    void *out = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_realloc(NULL, block, 10, NULL, &out), INVALID);
    assert_null(out);
    CHECK_FAILS(loch_allocator_realloc(s.allocator, block, 10, NULL, NULL), INVALID);
    loch_device *device = test_bed_open_other(s.bed, false);
    out = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_realloc(s.allocator, block, 2000, loch_stream_get_default(device), &out), INVALID);
    assert_null(out);
    loch_device_release(device);
    const loch_stats after = test_subject_stats(&s);
    test_stats_expect_same(&before, &after);
    test_bed_expect(s.bed, block, 1000, 1);
    CHECK_OK(loch_free(s.allocator, block));
    test_subject_end(&s);
}

static void a_block_that_cannot_grow_stays(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    void *block = test_subject_alloc(&s, 1000), *out = TEST_UNTOUCHED;
    test_bed_put(s.bed, block, 1000, 1);
    CHECK_FAILS_SET(loch_allocator_realloc(s.allocator, block, s.capacity + 1, NULL, &out), TOO_MUCH);
    assert_null(out);
    const size_t beyond[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 47};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        out = TEST_UNTOUCHED;
        CHECK_FAILS(loch_allocator_realloc(s.allocator, block, beyond[i], NULL, &out), OVERFLOW);
        assert_null(out);
    }
    check_only_block(&s, block, 1000, 0);
    test_bed_expect(s.bed, block, 1000, 1);
    CHECK_OK(loch_allocator_realloc(s.allocator, block, 2000, NULL, &out)); /* and it works on */
    test_bed_expect(s.bed, out, 1000, 1);
    CHECK_OK(loch_free(s.allocator, out));
    test_subject_end(&s);
}

/* --- streams: a simulated device's checker looks for order that is missing --- */

static bool knows_streams(const test_subject *s, const void *block)
{
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(s->allocator, block, &found));
    return found.stream_id != 0;
}

static void a_move_comes_in_the_order_of_the_blocks_stream(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_stream *stream;
    CHECK_OK(loch_stream_create(s.bed->device, NULL, &stream));
    const loch_request request = {.size = sizeof request, .bytes = 50 * TEST_KIB, .stream = stream};
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(s.allocator, &request, &block));
    const bool is_known = knows_streams(&s, block);
    CHECK_OK(loch_fill_on(block, request.bytes, "a", 1, stream));
    CHECK_OK(loch_allocator_realloc(s.allocator, block, 90 * TEST_KIB, NULL, &block));
    /* Where the stream was not known it is the default one. */
    if (!is_known) CHECK_OK(loch_stream_sync(loch_stream_get_default(s.bed->device)));
    CHECK_OK(loch_fill_on((char *)block + request.bytes, 40 * TEST_KIB, "b", 1, stream));
    CHECK_OK(loch_stream_sync(stream));
    test_bed_expect_byte(s.bed, block, request.bytes, 'a');
    test_bed_expect_byte(s.bed, (char *)block + request.bytes, 40 * TEST_KIB, 'b');
    CHECK_OK(loch_fill_on(block, 90 * TEST_KIB, "c", 1, stream));
    if (is_known)
        CHECK_OK(loch_free(s.allocator, block));
    else
        CHECK_OK(loch_allocator_free_on(s.allocator, block, stream));
    CHECK_OK(loch_stream_sync(stream));
    loch_stream_close(stream);
    test_subject_end(&s);
}

static void a_move_comes_in_the_order_of_the_stream_that_is_named(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_stream *first, *second;
    loch_event *event;
    CHECK_OK(loch_stream_create(s.bed->device, NULL, &first));
    CHECK_OK(loch_stream_create(s.bed->device, NULL, &second));
    CHECK_OK(loch_event_create(s.bed->device, LOCH_EVENT_PLAIN, &event));
    const loch_request request = {.size = sizeof request, .bytes = 50 * TEST_KIB, .stream = first};
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(s.allocator, &request, &block));
    CHECK_OK(loch_fill_on(block, request.bytes, "a", 1, first));
    CHECK_OK(loch_event_record(event, first));
    CHECK_OK(loch_stream_wait(second, event));
    CHECK_OK(loch_allocator_realloc(s.allocator, block, 90 * TEST_KIB, second, &block));
    CHECK_OK(loch_fill_on(block, 100, "b", 1, second));
    CHECK_OK(loch_stream_sync(second));
    test_bed_expect_byte(s.bed, block, 100, 'b');
    test_bed_expect_byte(s.bed, (char *)block + 100, request.bytes - 100, 'a');
    CHECK_OK(loch_allocator_free_on(s.allocator, block, second));
    CHECK_OK(loch_stream_sync(second));
    loch_event_destroy(event);
    loch_stream_close(first);
    loch_stream_close(second);
    test_subject_end(&s);
}

static void a_block_is_resized_after_its_stream_has_ended(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_stream *stream;
    CHECK_OK(loch_stream_create(s.bed->device, NULL, &stream));
    const loch_request request = {.size = sizeof request, .bytes = 50 * TEST_KIB, .stream = stream};
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(s.allocator, &request, &block));
    CHECK_OK(loch_fill_on(block, request.bytes, "a", 1, stream));
    loch_stream_close(stream);
    CHECK_OK(loch_allocator_realloc(s.allocator, block, 60 * TEST_KIB, NULL, &block));
    CHECK_OK(loch_stream_sync(loch_stream_get_default(s.bed->device)));
    test_bed_expect_byte(s.bed, block, request.bytes, 'a');
    CHECK_OK(loch_free(s.allocator, block));
    test_subject_end(&s);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(contents_survive_every_change_of_size),
        cmocka_unit_test(null_allocates_and_zero_frees),
        cmocka_unit_test(wrong_calls_change_nothing),
        cmocka_unit_test(a_block_that_cannot_grow_stays),
        cmocka_unit_test(a_move_comes_in_the_order_of_the_blocks_stream),
        cmocka_unit_test(a_move_comes_in_the_order_of_the_stream_that_is_named),
        cmocka_unit_test(a_block_is_resized_after_its_stream_has_ended),
    };
    return TEST_SUBJECTS_RUN(cases);
}
