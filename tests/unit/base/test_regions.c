/* SPDX-License-Identifier: MIT */
/* The index of address ranges, held against a list: regions and spans of all sizes that overlap, come and go. */
#include "base/regions.h"
#include "test.h"

#define SPANS 300
#define WORLD ((size_t)1 << 24) /* addresses that the spans lie in */

typedef struct owned {
    uint32_t name; /* its address is the owner's */
    bool is_in, is_chunk;
    lochi_span span;
} owned;

static bool covers(const owned *it, uintptr_t address)
{
    if (!it->is_in) return false;
    return it->is_chunk ? address >> 16 == it->span.start >> 16 : address - it->span.start < it->span.bytes;
}

static void expect(const owned *all, uintptr_t address)
{
    void *owners[SPANS];
    lochi_lock_take(&lochi_regions_lock);
    const size_t count = lochi_regions_find(address, owners, SPANS);
    lochi_lock_drop(&lochi_regions_lock);
    size_t wanted = 0;
    for (size_t i = 0; i < SPANS; i++) {
        size_t times = 0;
        for (size_t at = 0; at < count; at++)
            times += owners[at] == &all[i].name;
        assert_int_equal(times, covers(&all[i], address));
        wanted += times;
    }
    assert_int_equal(count, wanted);
}

static void change(owned *it, test_random *random)
{
    if (it->is_in && it->is_chunk)
        lochi_region_remove(&it->span.regions[0]);
    else
        lochi_span_remove(&it->span); /* does nothing if it is not in */
    it->is_in = !it->is_in;
    if (!it->is_in) return;
    const uintptr_t start = 4096 + test_random_next(random) % WORLD;
    const size_t bytes = (size_t)1 + test_random_next(random) % ((size_t)1 << test_random_next(random) % 24);
    it->is_chunk = test_random_next(random) % 3 == 0;
    if (it->is_chunk) {
        it->span.start = start;
        lochi_region_add(&it->span.regions[0], start, 16, &it->name);
    } else {
        lochi_span_add(&it->span, start, bytes, &it->name);
    }
}

static void a_search_finds_all_around_an_address_and_no_others(void **state)
{
    (void)state;
    static owned all[SPANS];
    test_random random = {.state = 1};
    for (int round = 0; round < 3000; round++) {
        owned *it = &all[test_random_next(&random) % SPANS];
        change(it, &random);
        expect(all, test_random_next(&random) % WORLD);
        expect(all, it->span.start);
        expect(all, it->span.start - 1);
        expect(all, it->span.start + it->span.bytes - 1);
        expect(all, it->span.start + it->span.bytes);
    }
    for (size_t i = 0; i < SPANS; i++)
        if (all[i].is_in) change(&all[i], &random);
    expect(all, 4096);
}

static void a_search_counts_beyond_its_room(void **state)
{
    (void)state;
    owned some[5] = {0};
    void *owners[2];
    for (size_t i = 0; i < 5; i++)
        lochi_span_add(&some[i].span, (uintptr_t)1 << 40, 4096 << i, &some[i].name);
    lochi_lock_take(&lochi_regions_lock);
    assert_int_equal(lochi_regions_find(((uintptr_t)1 << 40) + 100, owners, 2), 5);
    assert_int_equal(lochi_regions_find(((uintptr_t)1 << 40) + 4096, owners, 0), 4);
    assert_int_equal(lochi_regions_find(((uintptr_t)1 << 40) - 1, NULL, 0), 0);
    lochi_lock_drop(&lochi_regions_lock);
    for (size_t i = 0; i < 5; i++)
        lochi_span_remove(&some[i].span);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_finds_all_around_an_address_and_no_others),
        cmocka_unit_test(a_search_counts_beyond_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
