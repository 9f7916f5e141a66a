/* SPDX-License-Identifier: MIT */
/* Attributes: bits that can be set and cleared, merging, scopes, and which of two is at most as strict as the other. */
#include "test.h"

static const uint32_t all_bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_NIC_COMPATIBLE |
                                 LOCH_ATTRIBUTE_GPU_COMPATIBLE | LOCH_ATTRIBUTE_TRACK_SIZES | LOCH_ATTRIBUTES_OF_DEVICE;

static void bits_are_set_and_cleared(void **state)
{
    (void)state;
    for (int bit = 0; bit < 32; bit++) {
        const uint32_t mask = 1u << bit;
        loch_attributes a = {0, 7};
        assert_false(loch_attributes_has(a, mask));
        a = loch_attributes_with(a, mask);
        assert_true(loch_attributes_has(a, mask));
        assert_int_equal(a.bits, mask);
        a = loch_attributes_with(a, mask); /* twice is once */
        assert_int_equal(a.bits, mask);
        a = loch_attributes_with(a, LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_TRACK_SIZES);
        a = loch_attributes_without(a, mask);
        assert_false(loch_attributes_has(a, mask));
        assert_int_equal(a.bits, (LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_TRACK_SIZES) & ~mask);
        assert_int_equal(a.scope, 7);
    }
    const loch_attributes both = {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0};
    assert_true(loch_attributes_has(both, LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE));
    assert_false(
        loch_attributes_has(both, LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_NIC_COMPATIBLE)); /* all of them, not one */
    assert_true(loch_attributes_has(both, 0));
    assert_int_equal(__builtin_popcount(LOCH_ATTRIBUTES_OF_DEVICE), 8);
    assert_int_equal(LOCH_ATTRIBUTES_OF_DEVICE & (LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_NIC_COMPATIBLE |
                                                  LOCH_ATTRIBUTE_GPU_COMPATIBLE | LOCH_ATTRIBUTE_TRACK_SIZES),
                     0);
}

static void merging_takes_all_that_either_asks_for(void **state)
{
    (void)state;
    loch_attributes out;
    CHECK_OK(loch_attributes_merge((loch_attributes){LOCH_ATTRIBUTE_ON_HOST, 0}, (loch_attributes){1u << 24, 0}, &out));
    assert_int_equal(out.bits, LOCH_ATTRIBUTE_ON_HOST | 1u << 24);
    assert_int_equal(out.scope, 0);
    CHECK_OK(loch_attributes_merge((loch_attributes){0, 3}, (loch_attributes){all_bits, 0}, &out));
    assert_int_equal(out.bits, all_bits);
    assert_int_equal(out.scope, 3);
    CHECK_OK(loch_attributes_merge((loch_attributes){0, 0}, (loch_attributes){0, -4}, &out));
    assert_int_equal(out.scope, -4);
    CHECK_OK(loch_attributes_merge((loch_attributes){1, 5}, (loch_attributes){2, 5}, &out));
    assert_int_equal(out.scope, 5);
}

static void two_scopes_do_not_merge(void **state)
{
    (void)state;
    loch_attributes out = {77, 88};
    CHECK_FAILS(loch_attributes_merge((loch_attributes){LOCH_ATTRIBUTE_ON_HOST, 1}, (loch_attributes){0, 2}, &out),
                INVALID);
    assert_int_equal(out.bits, 77); /* as it was */
    assert_int_equal(out.scope, 88);
    CHECK_FAILS(loch_attributes_merge((loch_attributes){0, 1}, (loch_attributes){0, -1}, &out), INVALID);
    CHECK_FAILS(loch_attributes_merge((loch_attributes){0, 1}, (loch_attributes){0, 1}, NULL), INVALID);
}

static void strictness_is_a_partial_order(void **state)
{
    (void)state;
    const uint32_t bits[] = {0,
                             LOCH_ATTRIBUTE_ON_HOST,
                             LOCH_ATTRIBUTE_GPU_COMPATIBLE,
                             LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE,
                             1u << 31,
                             all_bits};
    const int32_t scopes[] = {0, 1, 2};
    loch_attributes set[18];
    size_t count = 0;
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < 3; k++)
            set[count++] = (loch_attributes){bits[i], scopes[k]};
    for (size_t i = 0; i < count; i++) {
        assert_true(loch_attributes_at_most_as_strict(set[i], set[i]));
        assert_true(loch_attributes_at_most_as_strict((loch_attributes){0, 0}, set[i]));
        for (size_t k = 0; k < count; k++) {
            const int forth = loch_attributes_at_most_as_strict(set[i], set[k]);
            const int back = loch_attributes_at_most_as_strict(set[k], set[i]);
            if (i != k) assert_false(forth && back);
            if (set[i].scope && set[i].scope != set[k].scope) assert_false(forth); /* the scope counts */
            loch_attributes merged;
            if (loch_attributes_merge(set[i], set[k], &merged) != LOCH_OK) continue;
            assert_true(loch_attributes_at_most_as_strict(set[i], merged));
            assert_true(loch_attributes_at_most_as_strict(set[k], merged));
            assert_int_equal(forth, merged.bits == set[k].bits && merged.scope == set[k].scope);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_set_and_cleared),
        cmocka_unit_test(merging_takes_all_that_either_asks_for),
        cmocka_unit_test(two_scopes_do_not_merge),
        cmocka_unit_test(strictness_is_a_partial_order),
    };
    return cmocka_run_group_tests_name("attributes", tests, NULL, NULL);
}
