/* SPDX-License-Identifier: MIT */
/* Contract of raw.h: blocks of every kind, wrong frees, and limits. */
#include "bed.h"

static const struct {
    loch_memory_kind kind;
    uint32_t needs;
} kinds[] = {
    {LOCH_MEMORY_DEVICE, 0},
    {LOCH_MEMORY_PINNED, LOCH_CAN_PINNED},
    {LOCH_MEMORY_MANAGED, LOCH_CAN_MANAGED},
};

#define KINDS (sizeof kinds / sizeof *kinds)

/* What a request for more than there can be may come to. */
#define TOO_MUCH (TEST_SET(DEVICE_MEMORY) | TEST_SET(HOST_MEMORY) | TEST_SET(OVERFLOW))

static void kinds_are_handed_out_by_capability(void **state)
{
    test_bed *bed = *state;
    for (size_t i = 0; i < KINDS; i++) {
        void *block = TEST_UNTOUCHED;
        if (test_bed_can(bed, kinds[i].needs)) {
            CHECK_OK(loch_raw_alloc(bed->device, kinds[i].kind, 100, 0, &block));
            assert_non_null(block);
            CHECK_OK(loch_raw_free(block));
        } else {
            CHECK_FAILS(loch_raw_alloc(bed->device, kinds[i].kind, 100, 0, &block), UNSUPPORTED);
            assert_null(block);
        }
    }
}

static void kinds_that_are_never_allocated(void **state)
{
    test_bed *bed = *state;
    const loch_memory_kind never[] = {LOCH_MEMORY_REGISTERED, LOCH_MEMORY_HOST, (loch_memory_kind)99};
    for (size_t i = 0; i < 3; i++) {
        void *block = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_raw_alloc(bed->device, never[i], 100, 0, &block),
                        TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
        assert_null(block);
    }
}

static void kinds_have_names(void **state)
{
    (void)state;
    assert_string_equal(loch_memory_kind_name(LOCH_MEMORY_DEVICE), "device");
    assert_string_equal(loch_memory_kind_name(LOCH_MEMORY_PINNED), "pinned");
    assert_string_equal(loch_memory_kind_name(LOCH_MEMORY_MANAGED), "managed");
    assert_string_equal(loch_memory_kind_name(LOCH_MEMORY_REGISTERED), "registered");
    assert_string_equal(loch_memory_kind_name(LOCH_MEMORY_HOST), "host");
    assert_non_null(loch_memory_kind_name((loch_memory_kind)99));
}

static void zero_bytes_are_null(void **state)
{
    test_bed *bed = *state;
    for (size_t i = 0; i < KINDS; i++) {
        if (!test_bed_can(bed, kinds[i].needs)) continue;
        void *block = TEST_UNTOUCHED;
        CHECK_OK(loch_raw_alloc(bed->device, kinds[i].kind, 0, 0, &block));
        assert_null(block);
    }
    CHECK_OK(loch_raw_free(NULL));
}

static void missing_arguments_are_refused(void **state)
{
    test_bed *bed = *state;
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_raw_alloc(NULL, LOCH_MEMORY_DEVICE, 100, 0, &block), INVALID);
    assert_null(block);
    CHECK_FAILS(loch_raw_alloc(bed->device, LOCH_MEMORY_DEVICE, 100, 0, NULL), INVALID);
}

static void alignments_are_given_or_refused(void **state)
{
    test_bed *bed = *state;
    const size_t sizes[] = {1, 4097};
    for (size_t i = 0; i < KINDS; i++) {
        if (!test_bed_can(bed, kinds[i].needs)) continue;
        for (size_t alignment = 1; alignment <= 2 * TEST_MIB; alignment *= 2)
            for (size_t s = 0; s < 2; s++) {
                void *block = TEST_UNTOUCHED;
                loch_error_clear();
                loch_status status = loch_raw_alloc(bed->device, kinds[i].kind, sizes[s], alignment, &block);
                if (status == LOCH_E_UNSUPPORTED) {
                    assert_null(block);
                    assert_true(loch_error_get()->sentence[0]);
                    assert_true(kinds[i].kind != LOCH_MEMORY_DEVICE || alignment > bed->properties.alignment_bytes);
                    continue;
                }
                CHECK_OK(status);
                assert_int_equal((uintptr_t)block % alignment, 0);
                test_bed_put(bed, block, sizes[s], alignment);
                test_bed_expect(bed, block, sizes[s], alignment);
                CHECK_OK(loch_raw_free(block));
            }
    }
}

static void blocks_have_the_alignment_of_the_device(void **state)
{
    test_bed *bed = *state;
    for (size_t bytes = 1; bytes < 300; bytes += 37) {
        char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes);
        char *second = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes);
        assert_int_equal((uintptr_t)block % bed->properties.alignment_bytes, 0);
        assert_int_equal((uintptr_t)second % bed->properties.alignment_bytes, 0);
        CHECK_OK(loch_raw_free(block));
        CHECK_OK(loch_raw_free(second));
    }
}

static void alignments_that_are_none_are_refused(void **state)
{
    test_bed *bed = *state;
    const size_t alignments[] = {3, 6, 100, 4097, SIZE_MAX, SIZE_MAX - 1};
    for (size_t i = 0; i < KINDS; i++) {
        if (!test_bed_can(bed, kinds[i].needs)) continue;
        for (size_t k = 0; k < sizeof alignments / sizeof *alignments; k++) {
            void *block = TEST_UNTOUCHED;
            CHECK_FAILS(loch_raw_alloc(bed->device, kinds[i].kind, 100, alignments[k], &block), INVALID);
            assert_null(block);
        }
        void *block = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_raw_alloc(bed->device, kinds[i].kind, 100, SIZE_MAX / 2 + 1, &block),
                        TOO_MUCH | TEST_SET(UNSUPPORTED));
        assert_null(block);
    }
}

static void sizes_near_the_largest_fail_and_leave_null(void **state)
{
    test_bed *bed = *state;
    const size_t sizes[] = {SIZE_MAX,         SIZE_MAX - 1,    SIZE_MAX - 63,
                            SIZE_MAX - 4095,  SIZE_MAX - 4096, SIZE_MAX - 2 * TEST_MIB,
                            SIZE_MAX / 2 + 1, SIZE_MAX / 2};
    const size_t alignments[] = {0, 1, 4096, 2 * TEST_MIB};
    for (size_t i = 0; i < KINDS; i++) {
        /* a real GPU may hang when it is asked for more managed memory than it has */
        if (kinds[i].kind == LOCH_MEMORY_MANAGED && !bed->is_sim) continue;
        if (!test_bed_can(bed, kinds[i].needs)) continue;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t a = 0; a < 4; a++) {
                void *block = TEST_UNTOUCHED;
                CHECK_FAILS_SET(loch_raw_alloc(bed->device, kinds[i].kind, sizes[s], alignments[a], &block),
                                TOO_MUCH | (alignments[a] ? TEST_SET(UNSUPPORTED) : 0u));
                assert_null(block);
            }
    }
}

static void more_than_the_device_has_is_refused(void **state)
{
    test_bed *bed = *state;
    if (test_bed_can(bed, LOCH_CAN_HOST_ACCESS)) return; /* the CPU may promise more than it has */
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_raw_alloc(bed->device, LOCH_MEMORY_DEVICE, bed->properties.total_bytes + 2 * TEST_MIB, 0, &block),
                DEVICE_MEMORY);
    assert_null(block);
}

/* Takes all of a simulated device; what was refused comes back with what is freed. */
static void a_full_device_recovers(void **state)
{
    test_bed *bed = *state;
    if (!bed->is_sim) return;
    size_t piece = bed->properties.total_bytes / 16, taken = 0;
    void *blocks[17], *block = TEST_UNTOUCHED;
    while (taken < 17 && loch_raw_alloc(bed->device, LOCH_MEMORY_DEVICE, piece, 0, &blocks[taken]) == LOCH_OK)
        taken++;
    assert_int_equal(taken, 16);
    CHECK_FAILS(loch_raw_alloc(bed->device, LOCH_MEMORY_DEVICE, piece, 0, &block), DEVICE_MEMORY);
    assert_null(block);
    CHECK_OK(loch_raw_free(blocks[7]));
    blocks[7] = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, piece);
    while (taken)
        CHECK_OK(loch_raw_free(blocks[--taken]));
}

static void wrong_frees_change_nothing(void **state)
{
    test_bed *bed = *state;
    static char foreign[64];
    char *libc = malloc(64);
    for (size_t i = 0; i < KINDS; i++) {
        if (!test_bed_can(bed, kinds[i].needs)) continue;
        char *block = test_bed_alloc(bed, kinds[i].kind, 4096);
        test_bed_put(bed, block, 4096, 7);
        CHECK_FAILS(loch_raw_free(block + 1), INTERIOR);
        CHECK_FAILS(loch_raw_free(block + 2048), INTERIOR);
        CHECK_FAILS(loch_raw_free(block + 4095), INTERIOR);
        CHECK_FAILS(loch_raw_free(foreign), FOREIGN);
        CHECK_FAILS(loch_raw_free(libc), FOREIGN);
        CHECK_FAILS(loch_raw_free((void *)(uintptr_t)1), FOREIGN);
        CHECK_FAILS(loch_raw_free((void *)UINTPTR_MAX), FOREIGN);
        CHECK_FAILS(loch_raw_unregister(block), FOREIGN);
        test_bed_expect(bed, block, 4096, 7);
        CHECK_OK(loch_raw_free(block));
        CHECK_FAILS(loch_raw_free(block), FOREIGN);
        CHECK_FAILS(loch_raw_free(block + 1), FOREIGN);
    }
    free(libc);
}

static void mapped_memory_is_no_block(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    char *addresses = test_bed_reserve(bed, 2);
    loch_handle *handle = test_bed_map(bed, addresses, 1);
    CHECK_FAILS(loch_raw_free(addresses), FOREIGN);
    CHECK_FAILS(loch_raw_free(addresses + bed->properties.granule_bytes), FOREIGN);
    test_bed_put(bed, addresses, 100, 3);
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_FAILS(loch_raw_free(addresses), FOREIGN);
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void blocks_do_not_overlap(void **state)
{
    test_bed *bed = *state;
    enum { COUNT = 200 };
    test_random random = {17};
    char *blocks[COUNT];
    size_t bytes[COUNT], live[COUNT];

    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] = 1 + test_random_below(&random, i % 20 ? 5000 : 300000);
        blocks[i] = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes[i]);
        test_bed_put(bed, blocks[i], bytes[i], i);
        live[i] = i;
        for (size_t k = 0; k < i; k++)
            assert_true(blocks[i] + bytes[i] <= blocks[k] || blocks[k] + bytes[k] <= blocks[i]);
    }
    for (size_t left = COUNT; left > 0; left--) {
        size_t place = test_random_below(&random, left), i = live[place];
        live[place] = live[left - 1];
        test_bed_expect(bed, blocks[i], bytes[i], i);
        CHECK_OK(loch_raw_free(blocks[i]));
    }
}

static void large_blocks_hold_their_contents(void **state)
{
    test_bed *bed = *state;
    const size_t bytes = 12 * TEST_MIB + 5;
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes);
    test_bed_put(bed, block, bytes, 4);
    void *other = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 3 * TEST_MIB);
    test_bed_put(bed, other, 3 * TEST_MIB, 5);
    CHECK_OK(loch_raw_free(other));
    test_bed_expect(bed, block, bytes, 4);
    CHECK_OK(loch_raw_free(block));
}

/* The host writes where it may, and copies see it. */
static void the_host_writes_where_it_may_and_copies_see_it(void **state)
{
    test_bed *bed = *state;
    for (size_t i = 0; i < KINDS; i++) {
        bool is_host = kinds[i].kind == LOCH_MEMORY_DEVICE ? test_bed_can(bed, LOCH_CAN_HOST_ACCESS)
                                                           : test_bed_can(bed, kinds[i].needs);
        if (!is_host || !bed->has_data) continue;
        unsigned char *block = test_bed_alloc(bed, kinds[i].kind, 5000);
        test_pattern_write(block, 5000, 11);
        test_bed_expect(bed, block, 5000, 11);
        test_bed_put(bed, block, 5000, 12);
        CHECK_OK(loch_device_sync(bed->device));
        assert_int_equal(test_pattern_differs(block, 5000, 12), 5000);
        CHECK_OK(loch_raw_free(block));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_handed_out_by_capability),
        cmocka_unit_test(kinds_that_are_never_allocated),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(zero_bytes_are_null),
        cmocka_unit_test(missing_arguments_are_refused),
        cmocka_unit_test(alignments_are_given_or_refused),
        cmocka_unit_test(blocks_have_the_alignment_of_the_device),
        cmocka_unit_test(alignments_that_are_none_are_refused),
        cmocka_unit_test(sizes_near_the_largest_fail_and_leave_null),
        cmocka_unit_test(more_than_the_device_has_is_refused),
        cmocka_unit_test(a_full_device_recovers),
        cmocka_unit_test(wrong_frees_change_nothing),
        cmocka_unit_test(mapped_memory_is_no_block),
        cmocka_unit_test(blocks_do_not_overlap),
        cmocka_unit_test(large_blocks_hold_their_contents),
        cmocka_unit_test(the_host_writes_where_it_may_and_copies_see_it),
    };
    return TEST_BED_RUN(tests);
}
