/* SPDX-License-Identifier: MIT */
/* Contract of allocator.h, over every allocator and stack: handing blocks out and taking them back. */
#include "allocators.h"

#define SIZES 1023

#define TOO_MUCH                                                                                                       \
    (TEST_SET(DEVICE_MEMORY) | TEST_SET(HOST_MEMORY) | TEST_SET(OVERFLOW) | TEST_SET(LIMIT) | TEST_SET(FRAGMENTED))

static void zero_bytes_are_null_or_a_block_of_its_own(void **state)
{
    test_subject s;
    void *blocks[3] = {TEST_UNTOUCHED, TEST_UNTOUCHED, TEST_UNTOUCHED};
    test_subject_begin(&s, state);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_alloc(s.allocator, 0, &blocks[i]));
    if (s.traits & LOCH_TRAIT_ALLOCATES_EMPTY) {
        for (size_t i = 0; i < 3; i++)
            assert_non_null(blocks[i]);
        assert_true(blocks[0] != blocks[1] && blocks[1] != blocks[2] && blocks[0] != blocks[2]);
        loch_block block = {.size = sizeof block};
        CHECK_OK(loch_allocator_find(s.allocator, blocks[1], &block));
        assert_int_equal(block.requested_bytes, 0);
        assert_int_equal(test_subject_stats(&s).blocks, 3);
        CHECK_OK(loch_allocator_free_sized(s.allocator, blocks[2], 0));
        blocks[2] = NULL;
    } else {
        for (size_t i = 0; i < 3; i++)
            assert_null(blocks[i]);
    }
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_free(s.allocator, blocks[i]));
    void *none = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc_array(s.allocator, 0, 100, NULL, &none));
    CHECK_OK(loch_free(s.allocator, none));
    CHECK_OK(loch_alloc_array(s.allocator, SIZE_MAX, 0, NULL, &none));
    CHECK_OK(loch_free(s.allocator, none));
    const loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    test_subject_end(&s);
}

static void a_free_of_null_does_nothing(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const loch_stats before = test_subject_stats(&s);
    CHECK_OK(loch_free(s.allocator, NULL));
    CHECK_OK(loch_free(s.allocator, NULL));
    CHECK_OK(loch_allocator_free_on(s.allocator, NULL, NULL));
    CHECK_OK(loch_allocator_free_sized(s.allocator, NULL, 100));
    CHECK_OK(loch_allocator_free_sized(s.allocator, NULL, 0));
    const loch_stats after = test_subject_stats(&s);
    test_stats_expect_same(&before, &after);
    test_subject_end(&s);
}

static void missing_arguments_are_refused(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const loch_request request = {.size = sizeof request, .bytes = 100}, sizeless = {.bytes = 100};
    void *block = TEST_UNTOUCHED;
    loch_block found = {.size = sizeof found};
    loch_stats stats = {.size = sizeof stats}, no_size = {0};
    CHECK_FAILS(loch_allocator_alloc(NULL, &request, &block), INVALID);
    assert_null(block);
    block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_alloc(s.allocator, NULL, &block), INVALID);
    assert_null(block);
    CHECK_FAILS(loch_allocator_alloc(s.allocator, &request, NULL), INVALID);
    block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_alloc(s.allocator, &sizeless, &block), INVALID);
    assert_null(block);
    block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc_array(s.allocator, 1, 1, &sizeless, &block), INVALID);
    assert_null(block);
    CHECK_FAILS(loch_free(NULL, &s), INVALID);
    CHECK_OK(loch_free(NULL, NULL)); /* of what was never made; the record still tells why */
    CHECK_OK(loch_allocator_free_on(NULL, NULL, NULL));
    CHECK_OK(loch_allocator_free_sized(NULL, NULL, 10));
    CHECK_OK(loch_free(s.allocator, NULL));
    assert_int_equal(loch_error_get()->status, LOCH_E_INVALID);
    CHECK_FAILS(loch_allocator_record_use(s.allocator, NULL, NULL), INVALID);
    CHECK_FAILS(loch_allocator_find(s.allocator, NULL, &found), INVALID);
    CHECK_FAILS(loch_allocator_find(s.allocator, &s, NULL), INVALID);
    CHECK_FAILS(loch_allocator_walk(s.allocator, NULL, NULL), INVALID);
    CHECK_FAILS(loch_allocator_get_stats(s.allocator, NULL), INVALID);
    CHECK_FAILS(loch_allocator_get_stats(s.allocator, &no_size), INVALID);
    CHECK_FAILS(loch_allocator_get_tag_stats(s.allocator, 0, &stats), INVALID);
    test_subject_end(&s);
}

static void unknown_flags_and_tags_are_refused(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_request request = {.size = sizeof request, .bytes = 100, .flags = 1u << 31};
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_alloc(s.allocator, &request, &block), INVALID);
    assert_null(block);
    request.flags = 0;
    request.tag = LOCH_TAG_COUNT_MAX;
    block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_alloc(s.allocator, &request, &block), INVALID);
    assert_null(block);
    assert_int_equal(test_subject_stats(&s).blocks, 0);
    test_subject_end(&s);
}

static void more_than_there_is_fails_and_leaves_null(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const size_t certain[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 63, SIZE_MAX - 4095, SIZE_MAX / 2 + 1, SIZE_MAX / 2};
    const size_t likely[] = {((size_t)1 << 46), ((size_t)1 << 46) + 1, s.capacity + 1};
    void *block = TEST_UNTOUCHED;
    for (size_t i = 0; i < sizeof certain / sizeof *certain; i++) {
        block = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc(s.allocator, certain[i], &block), OVERFLOW);
        assert_null(block);
    }
    for (size_t i = 0; i < sizeof likely / sizeof *likely; i++) {
        block = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_alloc(s.allocator, likely[i], &block), TOO_MUCH);
        assert_null(block);
    }
    const struct {
        size_t count, bytes;
    } products[] = {
        {SIZE_MAX, 2}, {2, SIZE_MAX}, {SIZE_MAX / 8 + 1, 8}, {SIZE_MAX, SIZE_MAX}, {(size_t)1 << 32, (size_t)1 << 32}};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        block = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc_array(s.allocator, products[i].count, products[i].bytes, NULL, &block), OVERFLOW);
        assert_null(block);
    }
    const loch_type type = {.size = sizeof type, .bytes = 16};
    block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc_typed(s.allocator, &type, SIZE_MAX / 16 + 1, NULL, &block), OVERFLOW);
    assert_null(block);
    const loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.allocs, 0);
    assert_int_equal(stats.peak_requested_bytes, 0);
    block = test_subject_alloc(&s, 100); /* and it works on */
    CHECK_OK(loch_free(s.allocator, block));
    test_subject_end(&s);
}

static void alignments_are_given_or_refused(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const size_t sizes[] = {1, 100, 4097};
    for (size_t alignment = 1; alignment <= 2 * TEST_MIB; alignment *= 2)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const loch_request request = {.size = sizeof request, .bytes = sizes[i], .alignment = alignment};
            void *block = TEST_UNTOUCHED;
            loch_error_clear();
            const loch_status status = loch_allocator_alloc(s.allocator, &request, &block);
            if (status == LOCH_E_UNSUPPORTED) {
                assert_null(block);
                assert_true(loch_error_get()->sentence[0]);
                assert_true(test_stack_is_pinned(s.stack) || alignment > s.bed->properties.alignment_bytes);
                continue;
            }
            CHECK_OK(status);
            assert_int_equal((uintptr_t)block % alignment, 0);
            test_bed_put(s.bed, block, sizes[i], alignment + i);
            test_bed_expect(s.bed, block, sizes[i], alignment + i);
            CHECK_OK(loch_free(s.allocator, block));
        }
    const size_t none[] = {3, 24, 4095, SIZE_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 100, .alignment = none[i]};
        void *block = TEST_UNTOUCHED;
        CHECK_FAILS(loch_allocator_alloc(s.allocator, &request, &block), INVALID);
        assert_null(block);
    }
    const size_t beyond[] = {(size_t)1 << 47, (size_t)1 << 63};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 100, .alignment = beyond[i]};
        void *block = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_allocator_alloc(s.allocator, &request, &block),
                        TEST_SET(OVERFLOW) | TEST_SET(UNSUPPORTED));
        assert_null(block);
    }
    assert_int_equal(test_subject_stats(&s).blocks, 0);
    test_subject_end(&s);
}

static void wrong_frees_are_told_apart_and_change_nothing(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_allocator *other = NULL;
    loch_block block = {.size = sizeof block};
    int local = 0;
    void *theirs = NULL;
    CHECK_OK(test_user_create(s.bed->device, TEST_USER_PLAIN, &other));
    CHECK_OK(loch_alloc(other, 500, &theirs));
    char *a = test_subject_alloc(&s, 1000), *b = test_subject_alloc(&s, 1000);
    test_bed_put(s.bed, a, 1000, 1);
    CHECK_OK(loch_free(s.allocator, b));
    const loch_stats before = test_subject_stats(&s);

    const size_t inside[] = {1, 2, 8, 16, 64, 500, 999};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        CHECK_FAILS(loch_free(s.allocator, a + inside[i]), INTERIOR);
        CHECK_FAILS(loch_allocator_free_on(s.allocator, a + inside[i], NULL), INTERIOR);
        CHECK_FAILS(loch_allocator_free_sized(s.allocator, a + inside[i], 1000), INTERIOR);
        CHECK_FAILS(loch_allocator_find(s.allocator, a + inside[i], &block), INTERIOR);
        CHECK_FAILS(loch_allocator_record_use(s.allocator, a + inside[i], NULL), INTERIOR);
    }
    CHECK_FAILS(loch_free(s.allocator, b), DOUBLE_FREE);
    CHECK_FAILS(loch_free(s.allocator, b), DOUBLE_FREE);
    CHECK_FAILS(loch_allocator_free_on(s.allocator, b, NULL), DOUBLE_FREE);
    CHECK_FAILS(loch_allocator_free_sized(s.allocator, b, 1000), DOUBLE_FREE);
    CHECK_FAILS(loch_allocator_find(s.allocator, b, &block), DOUBLE_FREE);
    CHECK_FAILS(loch_allocator_record_use(s.allocator, b, NULL), DOUBLE_FREE);
    void *const foreign[] = {&local, theirs, (void *)(uintptr_t)8, (void *)(uintptr_t)-4096, s.allocator};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        CHECK_FAILS(loch_free(s.allocator, foreign[i]), FOREIGN);
        CHECK_FAILS(loch_allocator_free_on(s.allocator, foreign[i], NULL), FOREIGN);
        CHECK_FAILS(loch_allocator_free_sized(s.allocator, foreign[i], 4), FOREIGN);
        CHECK_FAILS(loch_allocator_find(s.allocator, foreign[i], &block), FOREIGN);
        CHECK_FAILS(loch_allocator_record_use(s.allocator, foreign[i], NULL), FOREIGN);
    }
    const loch_stats after = test_subject_stats(&s);
    test_stats_expect_same(&before, &after);
    test_bed_expect(s.bed, a, 1000, 1);
    CHECK_OK(loch_free(s.allocator, a));
    CHECK_OK(loch_free(other, theirs));
    loch_allocator_release(other);
    test_subject_end(&s);
}

/* The mark of a freed block is there until its address is handed out again, whatever else is. */
static void a_double_free_is_told_until_the_address_is_out_again(void **state)
{
    test_subject s;
    void *blocks[100];
    const size_t count = sizeof blocks / sizeof *blocks;
    test_subject_begin(&s, state);
    void *first = test_subject_alloc(&s, 5000);
    CHECK_OK(loch_free(s.allocator, first));
    bool is_out = false;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = test_subject_alloc(&s, 64 + i);
        is_out |= blocks[i] == first;
    }
    if (!is_out) CHECK_FAILS_SET(loch_free(s.allocator, first), TEST_SET(DOUBLE_FREE) | TEST_SET(INTERIOR));
    for (size_t i = 0; i < count; i++)
        CHECK_OK(loch_free(s.allocator, blocks[i]));
    for (size_t i = 0; i < count; i++)
        CHECK_FAILS(loch_free(s.allocator, blocks[i]), DOUBLE_FREE);
    const loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.frees, count + 1);
    assert_int_equal(stats.blocks, 0);
    test_subject_end(&s);
}

static void a_free_with_a_wrong_size_is_refused(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    void *block = test_subject_alloc(&s, 1000);
    const loch_stats before = test_subject_stats(&s);
    const size_t wrong[] = {0, 1, 999, 1001, 2000, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(loch_allocator_free_sized(s.allocator, block, wrong[i]), INVALID);
    const loch_stats after = test_subject_stats(&s);
    test_stats_expect_same(&before, &after);
    CHECK_OK(loch_allocator_free_sized(s.allocator, block, 1000));
    assert_int_equal(test_subject_stats(&s).blocks, 0);
    test_subject_end(&s);
}

/* --- streams --- */

typedef struct two_streams {
    loch_stream *one, *two;
    loch_event *event;
} two_streams;

static void streams_make(const test_subject *s, two_streams *streams)
{
    CHECK_OK(loch_stream_create(s->bed->device, NULL, &streams->one));
    CHECK_OK(loch_stream_create(s->bed->device, NULL, &streams->two));
    CHECK_OK(loch_event_create(s->bed->device, LOCH_EVENT_PLAIN, &streams->event));
}

static void streams_end(two_streams *streams)
{
    CHECK_OK(loch_stream_sync(streams->one));
    CHECK_OK(loch_stream_sync(streams->two));
    loch_event_destroy(streams->event);
    loch_stream_close(streams->one);
    loch_stream_close(streams->two);
}

/* Work on the first stream, then, ordered behind it, on the second. */
static void streams_use(const two_streams *streams, void *block, size_t bytes)
{
    CHECK_OK(loch_fill_on(block, bytes, "1", 1, streams->one));
    CHECK_OK(loch_event_record(streams->event, streams->one));
    CHECK_OK(loch_stream_wait(streams->two, streams->event));
    CHECK_OK(loch_fill_on(block, bytes, "2", 1, streams->two));
}

static void a_free_comes_in_the_order_of_its_stream(void **state)
{
    test_subject s;
    two_streams streams;
    test_subject_begin(&s, state);
    streams_make(&s, &streams);
    const loch_request request = {.size = sizeof request, .bytes = 100 * TEST_KIB, .stream = streams.one};
    for (int round = 0; round < 6; round++) {
        void *block = TEST_UNTOUCHED;
        CHECK_OK(loch_allocator_alloc(s.allocator, &request, &block));
        if (round % 3 == 0) { /* the stream of the allocation, as it stands */
            CHECK_OK(loch_fill_on(block, request.bytes, "x", 1, streams.one));
            CHECK_OK(loch_free(s.allocator, block));
        } else if (round % 3 == 1) { /* another stream, which the caller has ordered behind */
            streams_use(&streams, block, request.bytes);
            CHECK_OK(loch_allocator_free_on(s.allocator, block, streams.two));
        } else { /* a further stream that was named */
            streams_use(&streams, block, request.bytes);
            CHECK_OK(loch_allocator_record_use(s.allocator, block, streams.two));
            CHECK_OK(loch_allocator_record_use(s.allocator, block, streams.two));
            CHECK_OK(loch_free(s.allocator, block));
        }
    }
    streams_end(&streams);
    test_subject_end(&s);
}

/* What the default stream did is behind a free on it, and a stream may end before the blocks that it used. */
static void a_stream_may_end_before_the_blocks_that_it_used(void **state)
{
    test_subject s;
    two_streams streams;
    test_subject_begin(&s, state);
    streams_make(&s, &streams);
    const loch_request request = {.size = sizeof request, .bytes = 10000, .stream = streams.one};
    void *a = TEST_UNTOUCHED, *b = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(s.allocator, &request, &a));
    CHECK_OK(loch_allocator_alloc(s.allocator, &request, &b));
    streams_use(&streams, a, request.bytes);
    CHECK_OK(loch_allocator_record_use(s.allocator, a, streams.two));
    streams_end(&streams);
    CHECK_OK(loch_free(s.allocator, a));
    CHECK_OK(loch_fill_on(b, request.bytes, "b", 1, NULL));
    CHECK_OK(loch_allocator_free_on(s.allocator, b, NULL));
    test_subject_end(&s);
}

static void a_stream_of_another_device_is_refused(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_device *other = test_bed_open_other(s.bed, false);
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(other, NULL, &stream));
    const loch_request request = {.size = sizeof request, .bytes = 100, .stream = stream};
    void *none = TEST_UNTOUCHED, *block = test_subject_alloc(&s, 100);
    const loch_stats before = test_subject_stats(&s);
    CHECK_FAILS(loch_allocator_alloc(s.allocator, &request, &none), INVALID);
    assert_null(none);
    CHECK_FAILS(loch_allocator_free_on(s.allocator, block, stream), INVALID);
    CHECK_FAILS(loch_allocator_record_use(s.allocator, block, stream), INVALID);
    const loch_stats after = test_subject_stats(&s);
    test_stats_expect_same(&before, &after);
    CHECK_OK(loch_free(s.allocator, block));
    loch_stream_close(stream);
    loch_device_release(other);
    test_subject_end(&s);
}

/* --- contents --- */

/* Sizes 1 to 1023 are all out at once, none over another, and the figures say so. */
static void blocks_of_all_sizes_do_not_overlap(void **state)
{
    static unsigned char *blocks[SIZES + 1];
    test_subject s;
    test_subject_begin(&s, state);
    const uint64_t sum = (uint64_t)SIZES * (SIZES + 1) / 2;
    for (size_t bytes = 1; bytes <= SIZES; bytes++) {
        blocks[bytes] = test_subject_alloc(&s, bytes);
        if (bytes % 16 == 1) test_bed_put(s.bed, blocks[bytes], bytes, bytes);
    }
    loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.allocs, SIZES);
    assert_int_equal(stats.blocks, SIZES);
    assert_int_equal(stats.peak_blocks, SIZES);
    assert_int_equal(stats.requested_bytes, sum);
    assert_int_equal(stats.peak_requested_bytes, sum);
    assert_int_equal(stats.largest_bytes, SIZES);
    assert_int_equal(stats.frees, 0);
    assert_int_equal(stats.failures, 0);
    assert_true(stats.allocated_bytes >= sum);
    assert_true(stats.reserved_bytes >= stats.allocated_bytes);
    for (size_t i = 1; i <= SIZES; i++)
        for (size_t k = i + 1; k <= SIZES; k++)
            if (blocks[i] < blocks[k] + k && blocks[k] < blocks[i] + i) fail_msg("%zu and %zu bytes overlap", i, k);
    for (size_t bytes = 1; bytes <= SIZES; bytes += 16)
        test_bed_expect(s.bed, blocks[bytes], bytes, bytes);
    for (size_t i = 1; i <= SIZES; i++)
        CHECK_OK(loch_free(s.allocator, blocks[1 + i * 389 % SIZES])); /* 389 and 1023 share no factor: all, shuffled */
    stats = test_subject_stats(&s);
    assert_int_equal(stats.frees, SIZES);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.allocated_bytes, 0);
    assert_int_equal(stats.peak_requested_bytes, sum);
    test_subject_end(&s);
}

static void a_zeroed_block_is_zero_whatever_was_there(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const loch_request request = {.size = sizeof request, .bytes = 10007, .flags = LOCH_ALLOC_ZEROED};
    for (int round = 0; round < 4; round++) {
        void *block = TEST_UNTOUCHED;
        CHECK_OK(loch_allocator_alloc(s.allocator, &request, &block));
        test_bed_expect_byte(s.bed, block, request.bytes, 0);
        CHECK_OK(loch_fill(block, request.bytes, "\xab", 1));
        CHECK_OK(loch_free(s.allocator, block));
    }
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(s.bed->device, NULL, &stream));
    loch_request on_stream = request;
    on_stream.stream = stream;
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(s.allocator, &on_stream, &block));
    CHECK_OK(loch_stream_sync(stream));
    test_bed_expect_byte(s.bed, block, request.bytes, 0);
    CHECK_OK(loch_free(s.allocator, block));
    loch_stream_close(stream);
    loch_request empty = {.size = sizeof empty, .flags = LOCH_ALLOC_ZEROED};
    CHECK_OK(loch_allocator_alloc(s.allocator, &empty, &block));
    CHECK_OK(loch_free(s.allocator, block));
    test_subject_end(&s);
}

static void an_array_has_the_product_and_an_overflow_fails(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const loch_request request = {.size = sizeof request, .bytes = 999999, .alignment = 16, .flags = LOCH_ALLOC_ZEROED};
    loch_block block = {.size = sizeof block};
    void *plain = TEST_UNTOUCHED, *asked = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc_array(s.allocator, 12, 34, NULL, &plain));
    CHECK_OK(loch_alloc_array(s.allocator, 100, 8, &request, &asked));
    CHECK_OK(loch_allocator_find(s.allocator, plain, &block));
    assert_int_equal(block.requested_bytes, 12 * 34);
    CHECK_OK(loch_allocator_find(s.allocator, asked, &block));
    assert_int_equal(block.requested_bytes, 800); /* its own bytes are ignored */
    assert_int_equal((uintptr_t)asked % 16, 0);
    test_bed_expect_byte(s.bed, asked, 800, 0);
    CHECK_OK(loch_free(s.allocator, plain));
    CHECK_OK(loch_free(s.allocator, asked));
    test_subject_end(&s);
}

/* A program compiled against an older header passes a shorter struct, one against a newer header a longer one. */
static void requests_of_older_and_newer_programs_are_read(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    struct {
        loch_request request;
        uint64_t newer[4];
    } longer = {.request = {.size = sizeof longer, .bytes = 300}, .newer = {~(uint64_t)0, 1, 2, 3}};
    loch_request shorter;
    memset(&shorter, 0xff, sizeof shorter); /* what lies behind its end is not read */
    shorter.size = offsetof(loch_request, alignment);
    shorter.bytes = 200;
    void *a = TEST_UNTOUCHED, *b = TEST_UNTOUCHED, *c = TEST_UNTOUCHED;
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_alloc(s.allocator, &shorter, &a));
    CHECK_OK(loch_allocator_alloc(s.allocator, &longer.request, &b));
    CHECK_OK(loch_alloc_array(s.allocator, 5, 50, &shorter, &c));
    CHECK_OK(loch_allocator_find(s.allocator, a, &block));
    assert_int_equal(block.requested_bytes, 200);
    CHECK_OK(loch_allocator_find(s.allocator, b, &block));
    assert_int_equal(block.requested_bytes, 300);
    CHECK_OK(loch_allocator_find(s.allocator, c, &block));
    assert_int_equal(block.requested_bytes, 250);
    CHECK_OK(loch_free(s.allocator, a));
    CHECK_OK(loch_free(s.allocator, b));
    CHECK_OK(loch_free(s.allocator, c));
    const loch_type type = {.size = sizeof type, .bytes = 4};
    CHECK_OK(loch_alloc_typed(s.allocator, &type, 25, &shorter, &a));
    CHECK_OK(loch_free_typed(s.allocator, a, &type, 25));
    test_subject_end(&s);
}

/* A block whose red zone was written is reported and freed anyway, by every allocator of the stack. */
static void a_damaged_block_is_reported_and_freed(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const bool has_zones = test_stack_has(s.stack, "redzone") || test_stack_has(s.stack, "direct-zones");
    test_subject_require(&s, s.bed->has_data && has_zones);
    char *block = test_subject_alloc(&s, 640), *kept = test_subject_alloc(&s, 640);
    const char written = 0x5a;
    CHECK_OK(loch_copy(block + 640, &written, 1));
    const bool at_free = s.reuses || test_stack_has(s.stack, "redzone");
    if (at_free) CHECK_FAILS(loch_free(s.allocator, block), CORRUPT);
    CHECK_FAILS(loch_free(s.allocator, block), DOUBLE_FREE);
    for (loch_allocator *level = s.allocator; level; level = loch_allocator_get_wrapped(level)) {
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_stats(level, &stats));
        assert_int_equal(stats.blocks, 1);
        assert_int_equal(stats.frees, 1);
    }
    CHECK_OK(loch_free(s.allocator, kept));
    test_subject_end(&s);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(zero_bytes_are_null_or_a_block_of_its_own),
        cmocka_unit_test(a_free_of_null_does_nothing),
        cmocka_unit_test(missing_arguments_are_refused),
        cmocka_unit_test(unknown_flags_and_tags_are_refused),
        cmocka_unit_test(more_than_there_is_fails_and_leaves_null),
        cmocka_unit_test(alignments_are_given_or_refused),
        cmocka_unit_test(wrong_frees_are_told_apart_and_change_nothing),
        cmocka_unit_test(a_double_free_is_told_until_the_address_is_out_again),
        cmocka_unit_test(a_free_with_a_wrong_size_is_refused),
        cmocka_unit_test(a_free_comes_in_the_order_of_its_stream),
        cmocka_unit_test(a_stream_may_end_before_the_blocks_that_it_used),
        cmocka_unit_test(a_stream_of_another_device_is_refused),
        cmocka_unit_test(blocks_of_all_sizes_do_not_overlap),
        cmocka_unit_test(a_zeroed_block_is_zero_whatever_was_there),
        cmocka_unit_test(an_array_has_the_product_and_an_overflow_fails),
        cmocka_unit_test(requests_of_older_and_newer_programs_are_read),
        cmocka_unit_test(a_damaged_block_is_reported_and_freed),
    };
    return TEST_SUBJECTS_RUN(cases);
}
