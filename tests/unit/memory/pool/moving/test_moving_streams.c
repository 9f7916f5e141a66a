/* SPDX-License-Identifier: MIT */
/* Moves and frees in the order of streams, and the addresses of what moved. The comment of each test says what goes
 * wrong in other systems. */
#include "unit/memory/pool/crowd_fixture.h"

static void *address_of(loch_buffer *buffer, loch_stream *stream)
{
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, stream, &address));
    CHECK_OK(loch_buffer_unpin(buffer, stream));
    return address;
}

/* Whether a program reports all streams that use a buffer. */
typedef enum honesty {
    HONEST,    /* every use is said */
    FORGETFUL, /* work is queued behind the unpin, on a stream that was not named */
    HASTY      /* work after the compaction uses the new address without a pin on its stream */
} honesty;

/* Work on the buffer by three streams: that of its making, that of a pin, and one that is recorded, which no other
 * waits for. */
static void use_on_streams(const pool_bench *s, loch_buffer *buffer, size_t i, honesty how)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    loch_stream *pinned = s->streams[(i + 1) % 3], *recorded = s->streams[4];
    void *address;
    pool_order(s->device, s->streams[i % 3], pinned);
    CHECK_OK(loch_buffer_pin(buffer, pinned, &address));
    CHECK_OK(busy_write(pinned, address, bytes));
    pool_order(s->device, pinned, recorded);
    CHECK_OK(busy_write(recorded, address, bytes));
    if (how != FORGETFUL) CHECK_OK(loch_buffer_record_use(buffer, recorded));
    CHECK_OK(loch_buffer_unpin(buffer, pinned));
}

static size_t work_around_a_compaction(const char *device, size_t bytes, honesty how)
{
    pool_bench s = bench_open(device, 64 * MIB, strstr(device, "virtual=off") ? 16 * MIB : 0);
    loch_buffer *buffers[MANY] = {NULL};
    for (size_t i = 0; i < MANY; i++) {
        buffers[i] = make(&s, bytes, s.streams[i % 3]);
        CHECK_OK(busy_write(s.streams[i % 3], address_of(buffers[i], s.streams[i % 3]), bytes));
    }
    for (size_t i = 0; i < MANY; i += 2)
        loch_buffer_clear(&buffers[i]);
    for (size_t i = 1; i < MANY; i += 2)
        use_on_streams(&s, buffers[i], i, how);
    const uint64_t before = sim_now(s.device);
    const loch_compact_options options = {.size = sizeof options, .stream = s.streams[3]};
    loch_compact_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_compact(s.pool, &options, &report));
    assert_true(report.moves > 2);
    for (size_t i = 1; i < MANY; i += 2) {                     /* later work, on every stream and the default one */
        if (!loch_buffer_get_generation(buffers[i])) continue; /* a pin orders with moves, and the caller his streams */
        loch_stream *later = i % 5 == 4 ? NULL : s.streams[(i / 2) % 3];
        void *address = address_of(buffers[i], how == HASTY ? s.streams[3] : later);
        CHECK_OK(busy_write(later ? later : loch_stream_get_default(s.device), address, bytes));
        CHECK_OK(loch_buffer_record_use(buffers[i], later));
    }
    assert_int_equal(sim_now(s.device), before); /* the host waited for nothing */
    for (size_t i = 1; i < MANY; i += 2)
        loch_buffer_release(buffers[i]);
    CHECK_OK(loch_device_sync(s.device));
    const size_t violations = sim_violations(s.device, NULL);
    if (how != HONEST) CHECK_OK(loch_sim_clear_violations(s.device));
    bench_close(&s);
    return violations;
}

/* A compaction that waits for its own stream alone moves memory under the work of others, and later work of others does
 * not wait for the copies. That the checker would see it is shown by programs which keep a use to themselves. */
static void moves_are_ordered_with_all_streams(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        size_t bytes; /* so that handles are left in part */
    } on[] = {{"sim:256MiB,clock=stepped", MIB + 100 * KIB},
              {"sim:256MiB,clock=stepped,granule=64KiB", 90 * KIB},
              {"sim:256MiB,clock=stepped,granule=64KiB,alias=off", 90 * KIB},
              {"sim:256MiB,clock=stepped,virtual=off", MIB + 100 * KIB}};
    for (size_t d = 0; d < 4; d++) {
        assert_int_equal(work_around_a_compaction(on[d].device, on[d].bytes, HONEST), 0);
        assert_true(work_around_a_compaction(on[d].device, on[d].bytes, FORGETFUL) > 0);
        assert_true(work_around_a_compaction(on[d].device, on[d].bytes, HASTY) > 0);
    }
}

/* A stream that used the blocks is no more, and the one that compacts ends while its copies run. */
static void moves_are_ordered_with_streams_that_ended(void **state)
{
    (void)state;
    pool_bench s = bench_open("sim:256MiB,clock=stepped,granule=64KiB", 64 * MIB, 0);
    loch_stream *user = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    loch_stream *mover = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    loch_buffer *buffers[MANY];
    for (size_t i = 0; i < MANY; i++) {
        void *address;
        buffers[i] = make(&s, 300 * KIB, i % 4 == 1 ? user : s.streams[0]);
        pool_order(s.device, s.streams[0], user);
        CHECK_OK(loch_buffer_pin(buffers[i], user, &address));
        CHECK_OK(busy_write(user, address, 300 * KIB));
        CHECK_OK(loch_buffer_unpin(buffers[i], user));
    }
    for (size_t i = 0; i < MANY; i += 2)
        loch_buffer_clear(&buffers[i]);
    loch_stream_close(user);
    const loch_compact_options options = {.size = sizeof options, .stream = mover};
    loch_compact_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_compact(s.pool, &options, &report));
    assert_true(report.moves > 2);
    loch_stream_close(mover);
    for (size_t i = 1; i < MANY; i += 2) {
        if (loch_buffer_get_generation(buffers[i])) {
            CHECK_OK(busy_write(s.streams[i % 3], address_of(buffers[i], s.streams[i % 3]), 300 * KIB));
            CHECK_OK(loch_buffer_record_use(buffers[i], s.streams[i % 3]));
        }
        loch_buffer_release(buffers[i]);
    }
    bench_close(&s);
}

/* A free that makes a block available at once hands memory to one stream while another still works on it. Here the
 * second stream waits on the device; a third stream that was not recorded is found. */
static void frees_are_in_stream_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 100 * KIB, 2 * MIB};
    static void *blocks[4096];
    for (size_t i = 0; i < 6; i++) {
        const size_t bytes = sizes[i / 2], is_lie = i % 2;
        pool_bench s = bench_open("sim:256MiB,clock=stepped", 2 * MIB, 0);
        size_t count = 0;
        while (count < 4096 && pool_try_alloc(s.pool, bytes, 0, s.streams[0], &blocks[count]) == LOCH_OK)
            count++; /* until it is full */
        for (size_t k = 0; k < count; k++)
            CHECK_OK(busy_write(s.streams[is_lie ? 2 : 0], blocks[k], bytes));
        for (size_t k = 0; k < count; k++)
            CHECK_OK(loch_free(s.pool, blocks[k]));
        for (size_t k = 0; k < count; k++) {
            blocks[k] = pool_alloc_on(s.pool, bytes, s.streams[1]);
            CHECK_OK(busy_write(s.streams[1], blocks[k], bytes));
        }
        const size_t violations = sim_violations(s.device, NULL);
        if (!is_lie) assert_int_equal(violations, 0);
        if (is_lie) assert_true(violations > 0);
        if (bytes == 2 * MIB && !is_lie)
            CHECK_STATUS(loch_stream_query(s.streams[0]), LOCH_E_BUSY); /* nothing waited for it */
        CHECK_OK(loch_sim_clear_violations(s.device));
        for (size_t k = 0; k < count; k++)
            CHECK_OK(loch_free(s.pool, blocks[k]));
        bench_close(&s);
    }
}

typedef struct address_table {
    uint64_t buffers[MANY];
    const void *addresses[MANY];
} address_table;

static void mend_table(loch_allocator *pool, const loch_move *move, void *user)
{
    address_table *table = user;
    (void)pool;
    for (size_t i = 0; i < MANY; i++) {
        if (table->buffers[i] != move->buffer) continue;
        assert_ptr_equal(table->addresses[i], move->from);
        table->addresses[i] = move->to;
    }
}

/* Everything that moves memory: asked for, by freezing, and by an allocation that does not fit otherwise. */
static void press(const pool_bench *s)
{
    void *large = NULL;
    CHECK_OK(loch_pool_compact(s->pool, NULL, NULL));
    LOCH_IGNORE(loch_alloc(s->pool, 12 * MIB, &large)); /* may be too much for what is pinned */
    CHECK_OK(loch_free(s->pool, large));
    CHECK_OK(loch_pool_freeze(s->pool, NULL, NULL));
    CHECK_OK(loch_pool_unfreeze(s->pool, 0, NULL));
}

/* Addresses that a program has in tables, graphs or other processes are wrong after every compaction, and nothing says
 * so. */
static void addresses_are_pinned_numbered_or_mended(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB", "sim:256MiB,virtual=off"};
    for (size_t d = 0; d < 3; d++) {
        pool_bench s = bench_open(devices[d], 24 * MIB, d == 2 ? 24 * MIB : 0);
        loch_buffer *buffers[MANY];
        void *pinned[MANY] = {NULL};
        uint64_t generations[MANY];
        address_table table = {{0}, {NULL}};
        make_holes(&s, buffers, MANY, 900 * KIB);
        for (size_t i = 1; i < MANY; i += 2) {
            table.buffers[i] = loch_buffer_get_id(buffers[i]);
            table.addresses[i] = address_of(buffers[i], NULL);
            generations[i] = loch_buffer_get_generation(buffers[i]);
            if (i % 4 == 1) CHECK_OK(loch_buffer_pin(buffers[i], s.streams[0], &pinned[i]));
        }
        CHECK_OK(loch_pool_set_move_hook(s.pool, mend_table, &table));
        press(&s);
        size_t stale = 0;
        for (size_t i = 1; i < MANY; i += 2) {
            const bool has_moved = loch_buffer_get_generation(buffers[i]) != generations[i];
            if (pinned[i]) assert_false(has_moved);
            if (pinned[i]) assert_ptr_equal(loch_buffer_get_address(buffers[i]), pinned[i]);
            if (pinned[i]) CHECK_OK(loch_buffer_unpin(buffers[i], s.streams[0]));
            assert_ptr_equal(address_of(buffers[i], NULL), table.addresses[i]);
            stale += has_moved;
        }
        assert_true(stale > 0);
        press(&s); /* now those may move, too */
        for (size_t i = 1; i < MANY; i += 2) {
            assert_ptr_equal(address_of(buffers[i], NULL), table.addresses[i]);
            loch_buffer_release(buffers[i]);
        }
        bench_close(&s);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(moves_are_ordered_with_all_streams),
        TENSOR_TEST(moves_are_ordered_with_streams_that_ended),
        TENSOR_TEST(frees_are_in_stream_order),
        TENSOR_TEST(addresses_are_pinned_numbered_or_mended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
