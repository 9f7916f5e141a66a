/* SPDX-License-Identifier: MIT */
/* Wrappers of a user's that leave slots out: each forwards, alloc and free included, and what it handed out stays its
 * own. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"

typedef struct counter {
    loch_allocator *wrapped;
    size_t allocs, frees, freed_bytes, ends;
} counter;

static loch_status counter_alloc(void *self, const loch_request *request, void **out)
{
    counter *counts = self;
    counts->allocs++;
    loch_request inner = *request;
    inner.flags |= LOCH_ALLOC_NO_RETRY;
    return loch_allocator_alloc(counts->wrapped, &inner, out);
}

static loch_status counter_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    counter *counts = self;
    counts->frees++;
    counts->freed_bytes += bytes;
    return stream ? loch_allocator_free_on(counts->wrapped, address, stream) : loch_free(counts->wrapped, address);
}

static void counter_destroy(void *self)
{
    ((counter *)self)->ends++;
}

static void use(loch_allocator *wrapper, loch_allocator *wrapped)
{
    loch_block block = {.size = sizeof block};
    void *a = wrap_alloc(wrapper, 100), *b = wrap_alloc(wrapper, 50000), *below = wrap_alloc(wrapped, 10), *same;
    CHECK_OK(loch_allocator_find(wrapper, b, &block));
    assert_int_equal(block.requested_bytes, 50000);
    CHECK_OK(loch_allocator_record_use(wrapper, a, NULL));
    CHECK_FAILS(loch_free(wrapper, below), FOREIGN);
    CHECK_FAILS(loch_free(wrapper, (char *)b + 1), INTERIOR);
    CHECK_OK(loch_allocator_realloc(wrapper, b, 60000, NULL, &same));
    assert_int_equal(wrap_stats(wrapper).blocks, 3);
    CHECK_OK(loch_free(wrapper, a));
    CHECK_FAILS(loch_free(wrapper, a), DOUBLE_FREE);
    CHECK_OK(loch_free(wrapper, same));
    CHECK_OK(loch_free(wrapped, below));
    CHECK_OK(loch_allocator_trim(wrapper, 0, NULL));
    assert_int_equal(wrap_stats(wrapper).blocks, 0);
}

static void any_slot_may_be_left_out(void **state)
{
    const test_bed *bed = wrap_bed(state);
    for (unsigned slots = 0; slots < 8; slots++) {
        counter counts = {0};
        const loch_allocator_ops ops = {.size = sizeof ops,
                                        .kind = "counter",
                                        .alloc = slots & 1 ? counter_alloc : NULL,
                                        .free = slots & 2 ? counter_free : NULL,
                                        .destroy = slots & 4 ? counter_destroy : NULL};
        loch_allocator *wrapper;
        CHECK_OK(loch_pool_create(bed->device, "below", NULL, &counts.wrapped));
        CHECK_OK(loch_wrapper_create(counts.wrapped, "around", &ops, &counts, &wrapper));
        assert_string_equal(wrapper->ops.kind, "counter");
        assert_int_equal(loch_allocator_get_traits(wrapper), loch_allocator_get_traits(counts.wrapped));
        use(wrapper, counts.wrapped);
        assert_int_equal(counts.allocs, slots & 1 ? 3 : 0);
        assert_int_equal(counts.frees, slots & 2 ? 3 : 0);
        assert_int_equal(counts.freed_bytes, slots & 2 ? 110100 : 0); /* sizes are always told */
        void *last = wrap_alloc(wrapper, 10);                         /* it ends with its last block */
        loch_allocator_release(wrapper);
        assert_int_equal(counts.ends, 0);
        CHECK_OK(loch_free(wrapper, last));
        assert_int_equal(counts.ends, slots & 4 ? 1 : 0);
        loch_allocator_release(counts.wrapped);
    }
}

/* Short of memory below: the outermost call retries, through wrappers that only forward. */
static size_t give_one_back(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)bytes;
    void **block = user;
    if (!*block) return 0;
    CHECK_OK(loch_free(allocator, *block));
    *block = NULL;
    return 1;
}

static void retries_go_through_to_the_wrapped_one(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const loch_allocator_ops ops = {.size = sizeof ops, .kind = "bare"};
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 1000};
    loch_allocator *direct = wrap_direct(bed), *limit, *bare;
    CHECK_OK(loch_limit_create(direct, NULL, &options, &limit));
    CHECK_OK(loch_wrapper_create(limit, NULL, &ops, NULL, &bare));
    void *cached = wrap_alloc(bare, 900);
    CHECK_OK(loch_allocator_add_pressure(bare, give_one_back, &cached));
    void *block = wrap_alloc(bare, 500);
    assert_null(cached);
    CHECK_FAILS(loch_alloc(bare, 501, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_free(bare, block));
    CHECK_OK(loch_allocator_remove_pressure(bare, give_one_back, &cached));
    loch_allocator_release(bare);
    loch_allocator_release(limit);
    loch_allocator_release(direct);
}

static void bad_tables_are_refused(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed), *wrapper = TEST_UNTOUCHED;
    const loch_allocator_ops bare = {.size = sizeof bare, .kind = "bare"}, nameless = {.size = sizeof nameless};
    const loch_allocator_ops small = {.size = sizeof(size_t), .kind = "small"};
    CHECK_FAILS(loch_wrapper_create(direct, NULL, NULL, NULL, &wrapper), INVALID);
    assert_null(wrapper);
    CHECK_FAILS(loch_wrapper_create(direct, NULL, &nameless, NULL, &wrapper), INVALID);
    CHECK_FAILS(loch_wrapper_create(direct, NULL, &small, NULL, &wrapper), INVALID);
    CHECK_FAILS(loch_wrapper_create(NULL, NULL, &bare, NULL, &wrapper), INVALID);
    CHECK_FAILS(loch_wrapper_create(direct, NULL, &bare, NULL, NULL), INVALID);
    /* no allocator to forward to */
    CHECK_FAILS(loch_allocator_create(bed->device, "bare", &bare, NULL, &wrapper), INVALID);
    loch_allocator_release(direct);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_slot_may_be_left_out),
        cmocka_unit_test(retries_go_through_to_the_wrapped_one),
        cmocka_unit_test(bad_tables_are_refused),
    };
    return WRAP_RUN(tests);
}
