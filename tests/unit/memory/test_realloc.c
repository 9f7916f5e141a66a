/* SPDX-License-Identifier: MIT */
/* Changing the size of blocks: what an allocator's own resize may answer, and what happens then. */
#include "wrap_fixture.h"

#define ROOM 4096 /* behind every address of the elastic allocator */
#define BLOCKS_MAX 4

/* An allocator with room behind its blocks, which answers as it is told. */
typedef struct elastic {
    loch_block blocks[BLOCKS_MAX]; /* address NULL: none */
    loch_status answer;            /* to resize */
    size_t asked, handed_out;      /* calls of resize and alloc */
    bool hides_requested, hides_allocated;
} elastic;

static loch_block *elastic_get(elastic *self, const void *address)
{
    for (size_t i = 0; i < BLOCKS_MAX; i++)
        if (self->blocks[i].address == address) return &self->blocks[i];
    return NULL;
}

static loch_status elastic_alloc(void *user, const loch_request *request, void **out)
{
    elastic *self = user;
    loch_block *block = elastic_get(self, NULL);
    if (!block || request->bytes > ROOM) return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "full");
    *out = calloc(1, ROOM);
    *block = (loch_block){.address = *out, .requested_bytes = request->bytes, .allocated_bytes = request->bytes};
    self->handed_out++;
    return LOCH_OK;
}

static loch_status elastic_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    loch_block *block = elastic_get(user, address);
    (void)bytes, (void)stream;
    if (!block) return loch_error_set(LOCH_E_FOREIGN, NULL, 0, "not mine");
    block->address = NULL;
    free(address);
    return LOCH_OK;
}

static loch_status elastic_find(void *user, const void *address, loch_block *out)
{
    elastic *self = user;
    const loch_block *block = elastic_get(self, address);
    if (!block) return loch_error_set(LOCH_E_FOREIGN, NULL, 0, "not mine");
    *out = *block;
    if (self->hides_requested) out->requested_bytes = 0;
    if (self->hides_allocated) out->allocated_bytes = 0;
    return LOCH_OK;
}

static loch_status elastic_walk(void *user, loch_block_visitor *visitor, void *visitor_user)
{
    elastic *self = user;
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < BLOCKS_MAX && status == LOCH_OK; i++)
        if (self->blocks[i].address) status = visitor(&self->blocks[i], visitor_user);
    return status;
}

static loch_status elastic_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    elastic *self = user;
    (void)tag;
    for (size_t i = 0; i < BLOCKS_MAX; i++) {
        out->blocks += self->blocks[i].address != NULL;
        out->requested_bytes += self->blocks[i].address ? self->blocks[i].requested_bytes : 0;
    }
    return LOCH_OK;
}

static loch_status elastic_resize(void *user, void *address, size_t bytes, size_t *allocated)
{
    elastic *self = user;
    self->asked++;
    if (self->answer != LOCH_OK) return loch_error_set(self->answer, NULL, 0, "told so");
    elastic_get(self, address)->requested_bytes = bytes;
    *allocated = bytes;
    return LOCH_OK;
}

static const loch_allocator_ops elastic_ops = {
    .size = sizeof elastic_ops,
    .kind = "elastic",
    .alloc = elastic_alloc,
    .free = elastic_free,
    .find = elastic_find,
    .walk = elastic_walk,
    .get_stats = elastic_get_stats,
    .resize = elastic_resize,
};

static loch_allocator *elastic_create(loch_device *device, elastic *self, const loch_allocator_ops *ops)
{
    loch_allocator *allocator;
    *self = (elastic){.answer = LOCH_OK};
    CHECK_OK(loch_allocator_create(device, "elastic", ops, self, &allocator));
    return allocator;
}

static void an_allocator_that_can_grows_in_place(void **state)
{
    const test_bed *bed = wrap_bed(state);
    elastic e;
    loch_allocator *allocator = elastic_create(bed->device, &e, &elastic_ops);
    void *block = wrap_alloc(allocator, 100), *out;
    CHECK_OK(loch_allocator_realloc(allocator, block, 200, NULL, &out));
    assert_ptr_equal(out, block);
    assert_int_equal(e.asked, 1);
    assert_int_equal(e.handed_out, 1);
    assert_int_equal(wrap_stats(allocator).requested_bytes, 200);
    CHECK_OK(loch_allocator_realloc(allocator, block, 200, NULL, &out)); /* nothing to do */
    assert_ptr_equal(out, block);
    assert_int_equal(e.asked, 1);
    CHECK_OK(loch_free(allocator, block));
    loch_allocator_release(allocator);
}

static void a_refusal_in_place_becomes_a_move(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const loch_status refusals[] = {LOCH_E_UNSUPPORTED, LOCH_E_DEVICE_MEMORY, LOCH_E_HOST_MEMORY, LOCH_E_LIMIT,
                                    LOCH_E_FRAGMENTED};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        elastic e;
        loch_allocator *allocator = elastic_create(bed->device, &e, &elastic_ops);
        char *block = wrap_alloc(allocator, 100);
        void *out;
        memset(block, 7, 100);
        e.answer = refusals[i];
        loch_error_clear();
        CHECK_OK(loch_allocator_realloc(allocator, block, 200, NULL, &out));
        assert_int_equal(loch_error_get()->status, LOCH_OK); /* no trace of the refusal */
        assert_int_equal(e.asked, 1);
        assert_int_equal(e.handed_out, 2);
        assert_int_equal(((char *)out)[99], 7);
        assert_int_equal(((char *)out)[100], 0);
        assert_int_equal(wrap_stats(allocator).blocks, 1);
        CHECK_OK(loch_free(allocator, out));
        loch_allocator_release(allocator);
    }
}

static void a_failure_in_place_is_passed_on(void **state)
{
    const test_bed *bed = wrap_bed(state);
    elastic e;
    loch_allocator *allocator = elastic_create(bed->device, &e, &elastic_ops);
    void *block = wrap_alloc(allocator, 100), *out = TEST_UNTOUCHED;
    e.answer = LOCH_E_DEVICE_LOST;
    CHECK_FAILS(loch_allocator_realloc(allocator, block, 200, NULL, &out), DEVICE_LOST);
    assert_null(out);
    assert_int_equal(e.handed_out, 1);
    CHECK_OK(loch_free(allocator, block));
    loch_allocator_release(allocator);
}

/* Where the library keeps the account the slot is left alone: the account would not follow. */
static void resize_is_not_called_behind_the_ledger(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator_ops without_find = elastic_ops, without_walk = elastic_ops, old = elastic_ops;
    without_find.find = NULL;
    without_walk.walk = NULL;
    old.size = offsetof(loch_allocator_ops, resize);
    const loch_allocator_ops *tables[] = {&without_find, &without_walk, &old};
    for (size_t i = 0; i < 3; i++) {
        elastic e;
        loch_allocator *allocator = elastic_create(bed->device, &e, tables[i]);
        void *block = wrap_alloc(allocator, 100), *out;
        CHECK_OK(loch_allocator_realloc(allocator, block, 200, NULL, &out));
        assert_ptr_not_equal(out, block);
        assert_int_equal(e.asked, 0);
        assert_int_equal(wrap_stats(allocator).requested_bytes, 200);
        CHECK_OK(loch_allocator_free_sized(allocator, out, 200));
        loch_allocator_release(allocator);
    }
}

static void resize_is_not_called_through_wrappers(void **state)
{
    const test_bed *bed = wrap_bed(state);
    elastic e;
    loch_allocator *inner = elastic_create(bed->device, &e, &elastic_ops), *outer;
    CHECK_OK(loch_tracking_create(inner, NULL, NULL, &outer));
    void *block = wrap_alloc(outer, 100), *out;
    CHECK_OK(loch_allocator_realloc(outer, block, 200, NULL, &out));
    assert_int_equal(e.asked, 0);
    assert_int_equal(wrap_stats(outer).allocs, 2); /* it saw both */
    assert_int_equal(wrap_stats(outer).requested_bytes, 200);
    CHECK_OK(loch_free(outer, out));
    loch_allocator_release(outer);
    loch_allocator_release(inner);
}

static void a_block_of_unknown_size_is_not_moved(void **state)
{
    const test_bed *bed = wrap_bed(state);
    elastic e;
    loch_allocator *allocator = elastic_create(bed->device, &e, &elastic_ops);
    char *block = wrap_alloc(allocator, 100);
    void *out = TEST_UNTOUCHED;
    memset(block, 7, 100);
    e.answer = LOCH_E_UNSUPPORTED;
    e.hides_requested = true; /* what was taken is known */
    CHECK_OK(loch_allocator_realloc(allocator, block, 200, NULL, &out));
    assert_int_equal(((char *)out)[99], 7);
    e.hides_allocated = true;
    block = out;
    out = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_realloc(allocator, block, 300, NULL, &out), UNSUPPORTED);
    assert_null(out);
    assert_int_equal(wrap_stats(allocator).blocks, 1);
    CHECK_OK(loch_free(allocator, block));
    loch_allocator_release(allocator);
}

/* The red zone of the old block was written: the old block is freed anyway, and the new one is there. */
static void damage_is_found_when_the_old_one_goes(void **state)
{
    const test_bed *bed = wrap_bed(state);
    if (!bed->has_data) skip(); /* nothing is ever found there */
    loch_allocator *direct = wrap_direct(bed), *guard;
    CHECK_OK(loch_redzone_create(direct, NULL, NULL, &guard));
    char *block = wrap_alloc(guard, 100);
    void *out = TEST_UNTOUCHED;
    CHECK_OK(loch_fill(block, 100, "k", 1));
    CHECK_OK(loch_fill(block + 100, 1, "x", 1));
    CHECK_FAILS(loch_allocator_realloc(guard, block, 200, NULL, &out), CORRUPT);
    assert_non_null(out);
    char kept = 0;
    CHECK_OK(loch_copy(&kept, (char *)out + 99, 1));
    assert_int_equal(kept, 'k');
    assert_int_equal(wrap_stats(guard).blocks, 1);
    CHECK_OK(loch_free(guard, out));
    loch_allocator_release(guard);
    loch_allocator_release(direct);
}

/* The thread's default stream, a created one and a wrapped one are found again by a block's id. */
static void every_kind_of_stream_is_found(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *direct;
    loch_stream *streams[3];
    CHECK_OK(loch_device_open("sim:1GiB,backed,clock=stepped,lag=1000", &device));
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_OK(loch_stream_create(device, NULL, &streams[0]));
    CHECK_OK(loch_stream_require_thread_default(device, &streams[1]));
    CHECK_OK(loch_stream_wrap(device, loch_stream_get_native(streams[0]), &streams[2]));
    for (size_t i = 0; i < 3; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 100, .stream = streams[i]};
        void *block, *moved;
        loch_block found = {.size = sizeof found};
        CHECK_OK(loch_allocator_alloc(direct, &request, &block));
        CHECK_OK(loch_device_measure_calls(device, LOCH_MEASURE_OFF));
        CHECK_OK(loch_allocator_realloc(direct, block, 1000, NULL, &moved));
        assert_int_equal(test_call_count(device, "device_sync"), 0);
        CHECK_OK(loch_allocator_find(direct, moved, &found));
        assert_int_equal(found.stream_id, loch_stream_get_id(streams[i]));
        CHECK_OK(loch_free(direct, moved));
    }
    loch_stream_close(streams[2]);
    loch_stream_close(streams[0]);
    loch_allocator_release(direct);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocator_that_can_grows_in_place),
        cmocka_unit_test(a_refusal_in_place_becomes_a_move),
        cmocka_unit_test(a_failure_in_place_is_passed_on),
        cmocka_unit_test(resize_is_not_called_behind_the_ledger),
        cmocka_unit_test(resize_is_not_called_through_wrappers),
        cmocka_unit_test(a_block_of_unknown_size_is_not_moved),
        cmocka_unit_test(damage_is_found_when_the_old_one_goes),
        cmocka_unit_test(every_kind_of_stream_is_found),
    };
    return WRAP_RUN(tests);
}
