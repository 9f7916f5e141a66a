/* SPDX-License-Identifier: MIT */
/* Typed allocation: elements made in order, undone in reverse when one fails, and sizes that cannot be. */
#include "sim_fixture.h"

/* An element knows its number; the workshop checks order. */
typedef struct thing {
    uint64_t number, check[4];
} thing;

typedef struct things {
    uint64_t made, ended, fail_at;
    size_t wrong;
} things;

static loch_status thing_init(void *element, void *user)
{
    things *all = user;
    thing *t = element;
    if (all->made == all->fail_at)
        return loch_error_set(LOCH_E_CANCELLED, NULL, 0, "thing %d would not", (int)all->made);
    t->number = all->made++;
    for (int i = 0; i < 4; i++)
        t->check[i] = ~t->number;
    return LOCH_OK;
}

static void thing_fini(void *element, void *user)
{
    things *all = user;
    const thing *t = element;
    const uint64_t expected = all->made - 1 - all->ended++; /* in reverse order */
    if (t->number != expected || t->check[3] != ~expected) all->wrong++;
}

static const loch_type thing_type = {
    .size = sizeof thing_type, .bytes = sizeof(thing), .init = thing_init, .fini = thing_fini};

static loch_allocator *cpu_allocator(void)
{
    loch_device *device = sim_open("cpu");
    loch_allocator *allocator;
    CHECK_OK(loch_direct_create(device, NULL, NULL, &allocator));
    loch_device_release(device);
    return allocator;
}

static uint64_t live(loch_allocator *allocator)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    return stats.blocks;
}

static void elements_are_made_in_order_and_ended_in_reverse(void **state)
{
    (void)state;
    loch_allocator *allocator = cpu_allocator();
    things all = {.fail_at = UINT64_MAX};
    loch_type type = thing_type;
    type.user = &all;
    type.alignment = 256;
    thing *elements;
    const loch_request request = {.size = sizeof request, .bytes = 1, .alignment = 16}; /* its bytes are ignored */
    CHECK_OK(loch_alloc_typed(allocator, &type, 100, &request, (void **)&elements));
    assert_int_equal((uintptr_t)elements % 256, 0);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(elements[i].number, i);
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(allocator, elements, &block));
    assert_int_equal(block.requested_bytes, 100 * sizeof(thing));

    /* wrong ends finish nothing */
    CHECK_FAILS(loch_free_typed(allocator, elements, &type, 99), INVALID);
    CHECK_FAILS(loch_free_typed(allocator, elements, &type, 101), INVALID);
    CHECK_FAILS(loch_free_typed(allocator, &elements[1], &type, 100), INTERIOR);
    CHECK_FAILS(loch_free_typed(allocator, &all, &type, 100), FOREIGN);
    CHECK_FAILS(loch_free_typed(allocator, elements, &type, SIZE_MAX), OVERFLOW);
    assert_int_equal(all.ended, 0);
    CHECK_OK(loch_free_typed(allocator, elements, &type, 100));
    assert_int_equal(all.ended, 100);
    assert_int_equal(all.wrong, 0);
    CHECK_FAILS(loch_free_typed(allocator, elements, &type, 100), DOUBLE_FREE);
    assert_int_equal(all.ended, 100);
    CHECK_OK(loch_free_typed(allocator, NULL, &type, 100));
    loch_allocator_release(allocator);
}

static void a_failure_half_way_undoes_all(void **state)
{
    (void)state;
    loch_allocator *allocator = cpu_allocator();
    for (uint64_t fail_at = 0; fail_at < 5; fail_at++) {
        things all = {.fail_at = fail_at};
        loch_type type = thing_type;
        type.user = &all;
        void *elements = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc_typed(allocator, &type, 5, NULL, &elements), CANCELLED);
        assert_non_null(strstr(loch_error_get()->sentence, "would not")); /* the element's own sentence */
        assert_null(elements);
        assert_int_equal(all.made, fail_at);
        assert_int_equal(all.ended, fail_at);
        assert_int_equal(all.wrong, 0);
        assert_int_equal(live(allocator), 0);
    }
    /* without fini there is only the memory to give back */
    things all = {.fail_at = 3};
    loch_type type = thing_type;
    type.user = &all;
    type.fini = NULL;
    void *elements;
    CHECK_FAILS(loch_alloc_typed(allocator, &type, 5, NULL, &elements), CANCELLED);
    assert_int_equal(all.ended, 0);
    assert_int_equal(live(allocator), 0);
    loch_allocator_release(allocator);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    loch_allocator *allocator = cpu_allocator();
    const size_t sizes[] = {2, 3, 7, 8, 40, 4096, SIZE_MAX / 2 + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const loch_type type = {.size = sizeof type, .bytes = sizes[i]};
        const size_t first = SIZE_MAX / sizes[i] + 1; /* the smallest count whose product overflows */
        const size_t counts[] = {SIZE_MAX, SIZE_MAX - 1, first, first + 1};
        for (size_t k = 0; k < 4; k++) {
            void *elements = TEST_UNTOUCHED;
            if (counts[k] < first) continue;
            CHECK_FAILS(loch_alloc_typed(allocator, &type, counts[k], NULL, &elements), OVERFLOW);
            assert_null(elements);
            elements = TEST_UNTOUCHED;
            CHECK_FAILS(loch_alloc_array(allocator, counts[k], sizes[i], NULL, &elements), OVERFLOW);
            assert_null(elements);
        }
        void *elements = TEST_UNTOUCHED; /* the largest that does not overflow: nevertheless too much for any machine */
        CHECK_FAILS_SET(loch_alloc_typed(allocator, &type, first - 1, NULL, &elements),
                        TEST_SET(OVERFLOW) | TEST_SET(DEVICE_MEMORY));
        assert_null(elements);
    }
    assert_int_equal(live(allocator), 0);
    loch_allocator_release(allocator);
}

static void bad_types_are_refused(void **state)
{
    (void)state;
    loch_allocator *allocator = cpu_allocator();
    void *elements = TEST_UNTOUCHED;
    loch_type type = {.size = sizeof type, .bytes = 8};
    CHECK_FAILS(loch_alloc_typed(NULL, &type, 1, NULL, &elements), INVALID);
    assert_null(elements);
    CHECK_FAILS(loch_alloc_typed(allocator, NULL, 1, NULL, &elements), INVALID);
    CHECK_FAILS(loch_alloc_typed(allocator, &type, 1, NULL, NULL), INVALID);
    type.alignment = 24;
    CHECK_FAILS(loch_alloc_typed(allocator, &type, 1, NULL, &elements), INVALID);
    type.alignment = 0;
    type.bytes = 0;
    CHECK_FAILS(loch_alloc_typed(allocator, &type, 1, NULL, &elements), INVALID);
    type.bytes = 8;
    type.size = 0;
    CHECK_FAILS(loch_alloc_typed(allocator, &type, 1, NULL, &elements), INVALID);
    type.size = sizeof type;
    CHECK_OK(loch_alloc_typed(allocator, &type, 0, NULL, &elements)); /* no elements: no block */
    assert_null(elements);
    CHECK_OK(loch_free_typed(allocator, elements, &type, 0));
    loch_allocator_release(allocator);
}

/* Elements are made by the host: it has to reach the memory. */
static void elements_are_made_only_where_the_host_can_reach(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:16MiB,backed");
    loch_allocator *own, *pinned;
    const loch_direct_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED};
    CHECK_OK(loch_direct_create(device, NULL, NULL, &own));
    CHECK_OK(loch_direct_create(device, NULL, &options, &pinned));
    things all = {.fail_at = UINT64_MAX};
    loch_type type = thing_type;
    type.user = &all;
    void *elements = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc_typed(own, &type, 3, NULL, &elements), UNSUPPORTED);
    assert_null(elements);
    CHECK_OK(loch_alloc_typed(pinned, &type, 3, NULL, &elements));
    CHECK_OK(loch_free_typed(pinned, elements, &type, 3));
    assert_int_equal(all.wrong, 0);
    const loch_type plain = {.size = sizeof plain, .bytes = 16};
    CHECK_OK(loch_alloc_typed(own, &plain, 3, NULL, &elements)); /* nothing to make: anywhere */
    CHECK_OK(loch_free_typed(own, elements, &plain, 3));
    loch_allocator_release(own);
    loch_allocator_release(pinned);
    loch_device_release(device);
}

static loch_status write_one(void *element, void *user)
{
    (void)user;
    *(char *)element = 1;
    return LOCH_OK;
}

/* Pinned memory that was freed behind queued work is not written before that work has ended. */
static void elements_are_made_behind_queued_work(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped");
    loch_stream *stream = loch_stream_get_default(device);
    loch_allocator *pinned;
    const loch_attributes attributes = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    CHECK_OK(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &pinned));
    char *target = sim_raw(device, 4096), seen = 0;
    void *block, *again;
    CHECK_OK(loch_alloc(pinned, 4096, &block));
    memset(block, 7, 4096);
    CHECK_OK(sim_busy(stream, 1000000));
    CHECK_OK(loch_copy_on(target, block, 4096, stream));
    CHECK_OK(loch_free(pinned, block));
    const loch_type type = {.size = sizeof type, .bytes = 1, .init = write_one};
    CHECK_OK(loch_alloc_typed(pinned, &type, 4096, NULL, &again));
    CHECK_OK(loch_copy(&seen, target, 1));
    assert_int_equal(seen, 7);
    CHECK_OK(loch_free_typed(pinned, again, &type, 4096));
    loch_allocator_release(pinned);
    CHECK_OK(loch_device_set_allocator(device, NULL));
    CHECK_OK(loch_raw_free(target));
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(elements_are_made_in_order_and_ended_in_reverse),
        SIM_TEST(a_failure_half_way_undoes_all),
        SIM_TEST(sizes_that_overflow_are_refused),
        SIM_TEST(bad_types_are_refused),
        SIM_TEST(elements_are_made_only_where_the_host_can_reach),
        SIM_TEST(elements_are_made_behind_queued_work),
    };
    return cmocka_run_group_tests_name("typed allocation", tests, NULL, NULL);
}
