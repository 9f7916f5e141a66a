/* SPDX-License-Identifier: MIT */
/* The pool against a plain model: seeded sequences of calls, and after each what the model says has to be so. No two
 * live blocks overlap, by their addresses and by their contents; sizes, alignments, ids and figures are right; streams
 * use memory in order; and in the end all of it goes back. */
#include "pool_fixture.h"

#define MODEL_SLOTS 160
#define MODEL_STREAMS 3
#define MODEL_RUNS 2
#define MODEL_CALLS 1000
#define MODEL_IDS ((size_t)1 << 16)
#define MODEL_STAMP ((size_t)4096)           /* large blocks are stamped once in so many bytes, */
#define MODEL_STAMP_LARGE ((size_t)64 << 10) /* and still larger ones */

typedef struct model_config {
    const char *device;
    loch_pool_options options;
    bool has_data;
    size_t sure_bytes; /* requests fit while no more is in use */
} model_config;

typedef struct model_block {
    char *address;
    size_t requested, alignment;
    size_t max_bytes; /* of a growable one */
    uint64_t id, seed;
    int stream;
} model_block;

typedef struct model {
    const model_config *config;
    uint64_t seed;
    test_random random;
    loch_device *device;
    loch_allocator *pool;
    bool is_sim, is_limited;
    loch_stream *streams[MODEL_STREAMS];
    model_block blocks[MODEL_SLOTS];
    size_t count, requested, peak_count, peak_requested, largest, target;
    uint64_t allocs;
    bool ids[MODEL_IDS];
} model;

static model *model_under_way;

/* --- contents --- */

/* Calls `stamp` with each part of a block that has contents. */
static size_t model_each_stamp(const model_block *block, size_t (*stamp)(char *at, size_t bytes, uint64_t seed))
{
    const size_t step = block->requested <= 2 * MODEL_STAMP ? block->requested
                        : block->requested <= TEST_MIB      ? MODEL_STAMP
                                                            : MODEL_STAMP_LARGE;
    const size_t bytes = step == block->requested ? step : 16;
    for (size_t at = 0; at < block->requested; at += step) {
        const size_t rest = block->requested - at, part = rest < bytes ? rest : bytes;
        if (stamp(block->address + at, part, block->seed + at) != part) return at;
    }
    return block->requested;
}

static size_t model_write(char *at, size_t bytes, uint64_t seed)
{
    test_pattern_write(at, bytes, seed);
    return bytes;
}

static size_t model_read(char *at, size_t bytes, uint64_t seed)
{
    return test_pattern_differs(at, bytes, seed);
}

static void model_put_contents(model *m, model_block *block)
{
    block->seed = test_random_next(&m->random);
    if (m->config->has_data) (void)model_each_stamp(block, model_write);
}

static void model_expect_contents(const model *m, const model_block *block)
{
    if (!m->config->has_data) return;
    const size_t at = model_each_stamp(block, model_read);
    if (at != block->requested) fail_msg("a block of %zu bytes was overwritten at %zu", block->requested, at);
}

/* --- streams --- */

static loch_stream *model_stream(const model *m, int stream)
{
    return m->is_sim ? m->streams[stream] : NULL;
}

/* A kernel that uses all of a block, on a stream that is put behind the block's own. */
static void model_use(const model *m, const model_block *block, int stream, bool is_write)
{
    if (!m->is_sim || m->config->options.kind == LOCH_MEMORY_PINNED) return;
    if (stream != block->stream) pool_order(m->device, m->streams[block->stream], m->streams[stream]);
    CHECK_OK(is_write ? sim_writes(m->streams[stream], block->address, block->requested)
                      : sim_reads(m->streams[stream], block->address, block->requested));
}

/* --- the model's own account --- */

static void model_count(model *m, size_t requested)
{
    m->count++;
    m->requested += requested;
    m->allocs++;
    if (m->count > m->peak_count) m->peak_count = m->count;
    if (m->requested > m->peak_requested) m->peak_requested = m->requested;
    if (requested > m->largest) m->largest = requested;
}

static void model_uncount(model *m, model_block *block)
{
    m->requested -= block->requested;
    *block = m->blocks[--m->count];
}

static void model_expect_apart(const model *m, const model_block *block)
{
    for (size_t i = 0; i < m->count; i++) {
        const model_block *other = &m->blocks[i];
        if (other != block && other->address < block->address + block->requested &&
            block->address < other->address + other->requested)
            fail_msg("blocks of %zu and %zu bytes overlap", other->requested, block->requested);
    }
    if (block->alignment) assert_int_equal((uintptr_t)block->address & (block->alignment - 1), 0);
}

/* A failure is caused by a shortage of memory, and there was a shortage. */
static void model_expect_short(const model *m, loch_status status, size_t bytes)
{
    if (!(POOL_SHORT & 1u << status)) fail_msg("%s: %s", loch_status_name(status), loch_error_get()->sentence);
    if (!m->is_limited && m->requested + bytes <= m->config->sure_bytes)
        fail_msg("%zu bytes in use, %zu more refused: %s", m->requested, bytes, loch_error_get()->sentence);
}

/* --- calls --- */

static size_t model_choose_bytes(model *m)
{
    const unsigned bits = (unsigned)test_random_below(&m->random, 26); /* up to 32 MiB - 1 */
    return ((size_t)1 << bits) + test_random_below(&m->random, (size_t)1 << bits) - (bits == 25);
}

static size_t model_choose_alignment(model *m)
{
    return test_random_below(&m->random, 8) ? 0 : (size_t)1 << test_random_below(&m->random, 23);
}

static model_block *model_choose_block(model *m)
{
    return &m->blocks[test_random_below(&m->random, m->count)];
}

static void model_alloc(model *m)
{
    model_block *block = &m->blocks[m->count];
    *block = (model_block){.requested = model_choose_bytes(m),
                           .alignment = model_choose_alignment(m),
                           .stream = (int)test_random_below(&m->random, MODEL_STREAMS)};
    void *address = TEST_UNTOUCHED;
    const loch_status status =
        pool_try_alloc(m->pool, block->requested, block->alignment, model_stream(m, block->stream), &address);
    if (status != LOCH_OK) {
        assert_null(address);
        model_expect_short(m, status, block->requested + block->alignment);
        return;
    }
    assert_non_null(address);
    block->address = address;
    model_count(m, block->requested);
    model_expect_apart(m, block);
    model_use(m, block, block->stream, true);
    model_put_contents(m, block);
}

static void model_alloc_growable(model *m)
{
    if (!lochi_pool_of(m->pool)->policy.is_virtual) return;
    model_block *block = &m->blocks[m->count];
    *block =
        (model_block){.requested = model_choose_bytes(m), .stream = (int)test_random_below(&m->random, MODEL_STREAMS)};
    block->max_bytes = block->requested + model_choose_bytes(m);
    loch_request request = {
        .size = sizeof request, .bytes = block->requested, .stream = model_stream(m, block->stream)};
    if (test_random_below(&m->random, 4) == 0) { /* on one handle: it cannot grow */
        block->max_bytes = block->requested;
        request.flags = LOCH_ALLOC_ONE_HANDLE;
    }
    void *address = TEST_UNTOUCHED;
    const loch_status status = loch_pool_alloc_growable(m->pool, block->max_bytes, &request, &address);
    if (status != LOCH_OK) {
        assert_null(address);
        model_expect_short(m, status, block->requested);
        return;
    }
    block->address = address;
    model_count(m, block->requested);
    model_expect_apart(m, block);
    model_use(m, block, block->stream, true);
    model_put_contents(m, block);
}

static void model_resize_growable(model *m, model_block *block)
{
    const size_t bytes = 1 + test_random_below(&m->random, block->max_bytes + block->max_bytes / 16);
    model_expect_contents(m, block);
    const loch_status status = loch_pool_resize_growable(m->pool, block->address, bytes);
    if (bytes > block->max_bytes + lochi_pool_of(m->pool)->cell_bytes) assert_int_equal(status, LOCH_E_OUT_OF_RANGE);
    model_expect_contents(m, block);
    if (status == LOCH_E_OUT_OF_RANGE) return;
    if (status != LOCH_OK) {
        model_expect_short(m, status, bytes);
        return;
    }
    m->requested += bytes - block->requested;
    if (m->requested > m->peak_requested) m->peak_requested = m->requested;
    block->requested = bytes;
    model_expect_apart(m, block);
    model_use(m, block, block->stream, true);
    model_put_contents(m, block);
}

static void model_free(model *m)
{
    model_block *block = model_choose_block(m);
    const int other = (int)test_random_below(&m->random, MODEL_STREAMS);
    model_expect_contents(m, block);
    switch (test_random_below(&m->random, 4)) {
    case 0:
        CHECK_FAILS(loch_allocator_free_sized(m->pool, block->address, block->requested + 1), INVALID);
        CHECK_OK(loch_allocator_free_sized(m->pool, block->address, block->requested));
        break;
    case 1:
        model_use(m, block, other, true);
        CHECK_OK(loch_allocator_free_on(m->pool, block->address, model_stream(m, other)));
        break;
    default: CHECK_OK(loch_free(m->pool, block->address));
    }
    if (test_random_below(&m->random, 4) == 0)
        CHECK_FAILS_SET(loch_free(m->pool, block->address), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
    model_uncount(m, block);
}

static void model_realloc(model *m)
{
    model_block *block = model_choose_block(m);
    if (block->max_bytes) {
        model_resize_growable(m, block);
        return;
    }
    const size_t bytes = test_random_below(&m->random, 2) ? model_choose_bytes(m)
                                                          : 1 + test_random_below(&m->random, 2 * block->requested);
    model_expect_contents(m, block);
    const size_t before = block->requested, kept = bytes < before ? bytes : before;
    const uint64_t allocs = pool_stats(m->pool).allocs;
    void *moved = TEST_UNTOUCHED;
    const loch_status status =
        loch_allocator_realloc(m->pool, block->address, bytes, model_stream(m, block->stream), &moved);
    if (status != LOCH_OK) {
        assert_null(moved);
        model_expect_short(m, status, bytes);
        model_expect_contents(m, block);
        return;
    }
    if (moved == block->address) {
        assert_int_equal(pool_stats(m->pool).allocs, allocs);
        m->requested += bytes - before;
        if (m->requested > m->peak_requested) m->peak_requested = m->requested;
    } else {
        model_count(m, bytes);
        m->count--;
        m->requested -= before;
        block->alignment = block->id = 0;
    }
    CHECK_OK(loch_device_sync(m->device)); /* contents are copied in the order of the stream */
    block->address = moved;
    block->requested = kept; /* the last stamp is at another place, unless it is the same size */
    if (kept == before) model_expect_contents(m, block);
    block->requested = bytes;
    model_expect_apart(m, block);
    model_use(m, block, block->stream, true);
    model_put_contents(m, block);
}

static void model_record_use(model *m)
{
    if (!m->is_sim) return;
    model_block *block = model_choose_block(m);
    const int other = (int)test_random_below(&m->random, MODEL_STREAMS);
    CHECK_OK(loch_allocator_record_use(m->pool, block->address, model_stream(m, other)));
    model_use(m, block, other, false);
    if (other != block->stream)
        pool_order(m->device, m->streams[other], m->streams[block->stream]); /* for later writers */
}

static void model_find(model *m, model_block *block)
{
    loch_block found = {.size = sizeof found}, sizes = {.size = offsetof(loch_block, id)};
    CHECK_OK(loch_allocator_find(m->pool, block->address, &sizes));
    CHECK_OK(loch_allocator_find(m->pool, block->address, &found));
    assert_int_equal(sizes.requested_bytes, block->requested);
    assert_int_equal(sizes.allocated_bytes, found.allocated_bytes);
    assert_ptr_equal(found.address, block->address);
    assert_int_equal(found.requested_bytes, block->requested);
    assert_true(found.allocated_bytes >= block->requested);
    assert_true(found.id > 0 && found.id < MODEL_IDS);
    if (block->id) assert_int_equal(found.id, block->id);
    if (!block->id && m->ids[found.id]) fail_msg("two blocks have the id %llu", (unsigned long long)found.id);
    block->id = found.id;
    m->ids[found.id] = true;
    if (block->requested > 1)
        CHECK_FAILS_SET(loch_allocator_find(m->pool, block->address + block->requested / 2, &found),
                        TEST_SET(INTERIOR) | TEST_SET(DOUBLE_FREE)); /* where a block was freed before */
}

static void model_set_limit(model *m)
{
    const size_t reserved = pool_info(m->pool).reserved_bytes;
    m->is_limited = test_random_below(&m->random, 3) != 0;
    const size_t limit = m->is_limited ? reserved / 2 + test_random_below(&m->random, reserved + 64 * TEST_MIB) + 1 : 0;
    CHECK_OK(loch_pool_set_limit(m->pool, limit));
    const loch_pool_info info = pool_info(m->pool);
    assert_int_equal(info.limit_bytes, limit);
    if (limit && reserved <= limit) assert_true(info.reserved_bytes <= limit);
}

static void model_trim(model *m)
{
    const loch_pool_info before = pool_info(m->pool);
    const size_t released = pool_trim(m->pool, test_random_below(&m->random, 2) ? 0 : 16 * TEST_MIB);
    assert_int_equal(before.reserved_bytes - released, pool_info(m->pool).reserved_bytes);
}

/* --- the figures --- */

static loch_status model_count_visited(const loch_block *block, void *user)
{
    size_t *left = user;
    assert_true(*left > 0 && block->requested_bytes > 0);
    --*left;
    return LOCH_OK;
}

static void model_expect_figures(model *m)
{
    pool_expect_whole(m->pool);
    size_t allocated = 0, left = m->count;
    for (size_t i = 0; i < m->count; i++) {
        loch_block found = {.size = sizeof found};
        model_find(m, &m->blocks[i]);
        model_expect_contents(m, &m->blocks[i]);
        CHECK_OK(loch_allocator_find(m->pool, m->blocks[i].address, &found));
        allocated += found.allocated_bytes;
    }
    CHECK_OK(loch_allocator_walk(m->pool, model_count_visited, &left));
    assert_int_equal(left, 0);
    const loch_stats stats = pool_stats(m->pool);
    assert_int_equal(stats.blocks, m->count);
    assert_int_equal(stats.peak_blocks, m->peak_count);
    assert_int_equal(stats.requested_bytes, m->requested);
    assert_int_equal(stats.peak_requested_bytes, m->peak_requested);
    assert_int_equal(stats.allocs, m->allocs);
    assert_int_equal(stats.frees, m->allocs - m->count);
    assert_int_equal(stats.largest_bytes, m->largest);
    assert_int_equal(stats.allocated_bytes, allocated);
    assert_true(stats.peak_allocated_bytes >= stats.peak_requested_bytes);
    assert_true(stats.reserved_bytes >= allocated);
    assert_int_equal(stats.cached_bytes, stats.reserved_bytes - allocated);
    const loch_pool_info info = pool_info(m->pool);
    assert_int_equal(info.used_bytes, allocated);
    assert_true(info.used_bytes + info.free_bytes + info.waiting_bytes + info.thread_bytes <= info.reserved_bytes);
    assert_true(info.largest_free_bytes <= info.free_bytes);
    assert_true(info.peak_reserved_bytes >= info.reserved_bytes);
    loch_sim_violation found;
    if (m->is_sim && sim_violations(m->device, &found)) fail_msg("%s", found.text);
    if (m->is_sim && m->config->options.kind != LOCH_MEMORY_PINNED)
        assert_int_equal(sim_stats(m->device).physical_bytes, info.reserved_bytes);
}

/* --- a run --- */

static void model_step(model *m)
{
    const size_t chance = test_random_below(&m->random, 100);
    if (chance == 0) {
        m->target = 1 + test_random_below(&m->random, MODEL_SLOTS - 1);
    } else if (chance == 1) {
        model_trim(m);
    } else if (chance == 2) {
        model_set_limit(m);
    } else if (chance == 3 && m->count < MODEL_SLOTS) {
        model_alloc_growable(m);
    } else if (chance < 10 && m->count) {
        model_realloc(m);
    } else if (chance < 15 && m->count) {
        model_record_use(m);
    } else if (chance < 20 && m->count) {
        model_find(m, model_choose_block(m));
    } else if (m->count < m->target && (chance < 75 || !m->count)) {
        model_alloc(m);
    } else if (m->count) {
        model_free(m);
    }
}

static void model_begin(model *m, const model_config *config, uint64_t seed)
{
    *m = (model){.config = config, .seed = seed, .random = {seed}, .target = MODEL_SLOTS / 2};
    CHECK_OK(loch_device_open(config->device, &m->device));
    m->is_sim = strncmp(config->device, "sim", 3) == 0;
    m->pool = pool_make(m->device, &config->options);
    for (int i = 1; i < MODEL_STREAMS && m->is_sim; i++)
        m->streams[i] = sim_stream(m->device, LOCH_STREAM_INDEPENDENT);
    if (m->is_sim) m->streams[0] = loch_stream_get_default(m->device);
}

static void model_end(model *m)
{
    CHECK_OK(loch_pool_set_limit(m->pool, 0));
    while (m->count)
        model_free(m);
    for (int i = 1; i < MODEL_STREAMS && m->is_sim; i++)
        loch_stream_close(m->streams[i]);
    if (m->is_sim)
        pool_end_sim(m->pool, m->device);
    else
        pool_end(m->pool, m->device);
}

static int model_teardown(void **state)
{
    if (model_under_way)
        print_error("that was %s with LOCH_TEST_SEED=%llu\n", model_under_way->config->device,
                    (unsigned long long)model_under_way->seed);
    const bool is_done = !model_under_way;
    free(model_under_way);
    model_under_way = NULL;
    return is_done ? sim_teardown(state) : -1;
}

static void a_random_program_agrees_with_the_model(void **state)
{
    const model_config *config = *state;
    const char *given = getenv("LOCH_TEST_SEED");
    const int runs = given && *given ? 1 : MODEL_RUNS;
    for (int run = 0; run < runs; run++) {
        model *m = model_under_way = malloc(sizeof *m);
        assert_non_null(m);
        model_begin(m, config, given && *given ? strtoull(given, NULL, 0) : (uint64_t)run + 1);
        for (int call = 0; call < MODEL_CALLS; call++) {
            model_step(m);
            if (call % 37 == 36) model_expect_figures(m);
        }
        model_end(m);
        free(m);
        model_under_way = NULL;
    }
}

#define MODEL_SIZE(type) .size = sizeof(type)

static model_config model_configs[] = {
    {"cpu", {MODEL_SIZE(loch_pool_options)}, true, TEST_GIB},
    {"cpu", {MODEL_SIZE(loch_pool_options), .preset = LOCH_POOL_WHOLE_BLOCKS}, true, 0},
    {"cpu", {MODEL_SIZE(loch_pool_options), .round_bytes = 1000, .idle_bytes = 32 * TEST_MIB}, true, TEST_GIB},
    {"sim:768MiB,id=1,granule=64KiB,backed", {MODEL_SIZE(loch_pool_options)}, true, 256 * TEST_MIB},
    {"sim:768MiB,id=2,granule=2MiB,backed", {MODEL_SIZE(loch_pool_options)}, true, 256 * TEST_MIB},
    {"sim:768MiB,id=3,granule=64KiB", {MODEL_SIZE(loch_pool_options)}, false, 256 * TEST_MIB},
    {"sim:768MiB,id=4,granule=2MiB", {MODEL_SIZE(loch_pool_options)}, false, 256 * TEST_MIB},
    {"sim:768MiB,id=5,granule=2MiB,clock=stepped", {MODEL_SIZE(loch_pool_options)}, false, 256 * TEST_MIB},
    {"sim:768MiB,id=6,backed,virtual=off", {MODEL_SIZE(loch_pool_options)}, true, 0},
    {"sim:768MiB,id=7,granule=64KiB,backed,alias=off", {MODEL_SIZE(loch_pool_options)}, true, 256 * TEST_MIB},
    {"sim:768MiB,id=8,granule=64KiB,backed,async=off", {MODEL_SIZE(loch_pool_options)}, true, 256 * TEST_MIB},
    {"sim:768MiB,id=9,granule=64KiB,backed,capture=off", {MODEL_SIZE(loch_pool_options)}, true, 256 * TEST_MIB},
    {"sim:768MiB,id=10", {MODEL_SIZE(loch_pool_options), .kind = LOCH_MEMORY_PINNED}, true, 0},
    {"sim:768MiB,id=11,granule=2MiB,backed",
     {MODEL_SIZE(loch_pool_options), .preset = LOCH_POOL_WHOLE_BLOCKS},
     true,
     0},
    {"sim:768MiB,id=12,granule=64KiB,backed",
     {MODEL_SIZE(loch_pool_options), .handle_bytes = 8 * TEST_MIB, .idle_bytes = 16 * TEST_MIB},
     true,
     64 * TEST_MIB},
};

int main(void)
{
    enum { COUNT = sizeof model_configs / sizeof *model_configs };
    struct CMUnitTest tests[COUNT];
    char names[COUNT][96];
    for (size_t i = 0; i < COUNT; i++) {
        const loch_pool_options *options = &model_configs[i].options;
        snprintf(names[i], sizeof names[i], "%s%s%s%s", model_configs[i].device,
                 options->preset == LOCH_POOL_WHOLE_BLOCKS ? ", whole blocks" : "",
                 options->kind == LOCH_MEMORY_PINNED ? ", pinned" : "", options->idle_bytes ? ", idle cap" : "");
        tests[i] = (struct CMUnitTest){names[i], a_random_program_agrees_with_the_model, sim_setup, model_teardown,
                                       &model_configs[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
