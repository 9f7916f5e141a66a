/* SPDX-License-Identifier: MIT */
/* A request that fails changes nothing: one that can never fit leaves every figure as it was, and one that does not fit
 * now leaves the pool with no more than it held, and with the idle memory that it had. Headroom: idle memory leaves the
 * device some room, and requests may use it. */
#include "unit/memory/pool/child_fixture.h"

#define MIB TEST_MIB
#define SIM "sim:64MiB,granule=64KiB"
#define RAW "sim:64MiB,granule=64KiB,virtual=off"
#define HALF (32 * MIB)
#define CENTURIES (UINT64_MAX / 2)

/* --- kinds of pools --- */

typedef enum kind { PLAIN, QUOTA, QUOTA_OF_PARENT, RANGE, LIMITED, SOURCE, SOURCE_POOL } kind;

typedef struct ground {
    const char *name, *device;
    kind kind;
    loch_pool_options options;
} ground;

static const ground grounds[] = {
    {"sim", SIM, PLAIN, {.limit_bytes = 0}},
    {"sim with a limit", SIM, PLAIN, {.limit_bytes = HALF}},
    {"sim, raw", RAW, PLAIN, {.limit_bytes = 0}},
    {"sim, raw, with a limit", RAW, PLAIN, {.limit_bytes = HALF}},
    {"pinned", SIM, PLAIN, {.kind = LOCH_MEMORY_PINNED, .limit_bytes = HALF}},
    {"pinned, no limit", SIM, PLAIN, {.kind = LOCH_MEMORY_PINNED}},
    {"pinned, no split", SIM, PLAIN, {.kind = LOCH_MEMORY_PINNED, .preset = LOCH_POOL_NO_SPLIT, .limit_bytes = HALF}},
    {"cpu", "cpu", PLAIN, {.limit_bytes = HALF}},
    {"cpu, no limit", "cpu", PLAIN, {.limit_bytes = 0}},
    {"whole blocks", SIM, PLAIN, {.preset = LOCH_POOL_WHOLE_BLOCKS, .limit_bytes = HALF}},
    {"no split", SIM, PLAIN, {.preset = LOCH_POOL_NO_SPLIT, .limit_bytes = HALF}},
    {"graphs", SIM, PLAIN, {.captures = LOCH_POOL_CAPTURES_SHARED, .limit_bytes = HALF}},
    {"a quota", SIM, QUOTA, {.limit_bytes = HALF}},
    {"a quota on the cpu", "cpu", QUOTA, {.limit_bytes = HALF}},
    {"the parent's limit", SIM, QUOTA_OF_PARENT, {.limit_bytes = HALF}},
    {"a range", SIM, RANGE, {.limit_bytes = HALF}},
    {"a limit wrapper", SIM, LIMITED, {.limit_bytes = HALF}},
    {"a source", SIM, SOURCE, {.limit_bytes = HALF}},
    {"a pool as source", SIM, SOURCE_POOL, {.limit_bytes = HALF}},
    {"a pool of the cpu as source", "cpu", SOURCE_POOL, {.limit_bytes = HALF}},
};
#define GROUNDS (sizeof grounds / sizeof *grounds)

/* A pool of some kind that may hold HALF, or the device if it has no limit. */
typedef struct subject {
    loch_device *device;
    loch_allocator *below, *tested; /* parent, wrapped pool or source; NULL for none */
    size_t ceiling;                 /* a larger request can never fit */
    unsigned calls;                 /* of pressure functions */
} subject;

static size_t note_call(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes;
    ++*(unsigned *)user;
    return 0;
}

/* Returns what a pool without a limit may hold. */
static size_t total_of(const ground *on)
{
    loch_device_properties properties = {.size = sizeof properties};
    loch_device *device = sim_open(on->options.kind == LOCH_MEMORY_PINNED ? "cpu" : on->device);
    CHECK_OK(loch_device_get_properties(device, &properties));
    loch_device_release(device);
    return properties.total_bytes;
}

static void subject_make(subject *it, const ground *on)
{
    loch_pool_options options = on->options, plain = {.size = sizeof plain};
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = HALF};
    options.size = sizeof options;
    switch (on->kind) {
    case PLAIN: it->tested = pool_make(it->device, &options); break;
    case QUOTA:
        it->below = pool_make(it->device, &plain);
        it->tested = child_quota(it->below, 0, options.limit_bytes);
        break;
    case QUOTA_OF_PARENT:
        it->below = pool_make(it->device, &options);
        it->tested = child_quota(it->below, 0, 0);
        break;
    case RANGE:
        it->below = pool_make(it->device, &plain);
        it->tested = child_range(it->below, options.limit_bytes);
        break;
    case LIMITED:
        it->below = pool_make(it->device, &plain);
        CHECK_OK(loch_limit_create(it->below, "narrow", &limit, &it->tested));
        break;
    case SOURCE:
        CHECK_OK(loch_direct_create(it->device, "source", NULL, &it->below));
        options.source = it->below;
        it->tested = pool_make(it->device, &options);
        break;
    case SOURCE_POOL:
        it->below = pool_make(it->device, &options);
        plain.source = it->below;
        it->tested = pool_make(it->device, &plain);
        break;
    }
    it->ceiling = options.limit_bytes ? options.limit_bytes : total_of(on);
    CHECK_OK(loch_allocator_add_pressure(it->tested, note_call, &it->calls));
    if (it->below) CHECK_OK(loch_allocator_add_pressure(it->below, note_call, &it->calls));
}

static subject subject_open(const ground *on)
{
    return (subject){.device = sim_open(on->device)};
}

static void subject_close(subject *it)
{
    loch_sim_stats stats = {.size = sizeof stats};
    (void)pool_trim(it->tested, 0);
    loch_allocator_release(it->tested);
    if (it->below) (void)pool_trim(it->below, 0);
    loch_allocator_release(it->below);
    if (loch_sim_get_stats(it->device, &stats) == LOCH_OK) {
        assert_int_equal(stats.physical_bytes, 0);
        assert_int_equal(stats.pinned_bytes, 0);
        assert_int_equal(stats.mappings, 0);
        assert_int_equal(stats.events, 0);
    }
    loch_device_release(it->device);
}

/* All figures of a pool and of what is below it. */
typedef struct figures {
    loch_pool_info pool, below_pool;
    loch_stats stats, below;
    loch_sim_stats device;
} figures;

static figures subject_read(const subject *it)
{
    figures now;
    memset(&now, 0, sizeof now); /* compared by memory */
    now.pool.size = now.below_pool.size = sizeof now.pool;
    now.stats.size = now.below.size = sizeof now.stats;
    now.device.size = sizeof now.device;
    CHECK_OK(loch_pool_get_info(it->tested, &now.pool));
    CHECK_OK(loch_allocator_get_stats(it->tested, &now.stats));
    if (it->below) CHECK_OK(loch_allocator_get_stats(it->below, &now.below));
    if (it->below && lochi_pool_of(it->below)) CHECK_OK(loch_pool_get_info(it->below, &now.below_pool));
    if (loch_sim_get_stats(it->device, &now.device) != LOCH_OK) now.device.calls = 0; /* the cpu */
    now.device.modelled_ns = 0;
    return now;
}

/* --- hopeless --- */

#define IDLE 12

/* Leaves idle memory of many sizes in a pool, beside a live block. */
static void *leave_idle(loch_allocator *pool)
{
    static const size_t sizes[IDLE] = {100,     3000,    70000,   300000, MIB,      700000,
                                       2 * MIB, 5 * MIB, 3 * MIB, 200000, 90 << 10, 50};
    void *blocks[IDLE], *live;
    for (size_t i = 0; i < IDLE; i++)
        blocks[i] = pool_alloc(pool, sizes[i]);
    live = pool_alloc(pool, MIB);
    for (size_t i = 0; i < IDLE; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    return live;
}

static void expect_equal(const char *name, size_t bytes, const figures *before, figures *after)
{
    assert_int_equal(after->stats.failures, before->stats.failures + 1);
    after->stats.failures = before->stats.failures;
    after->below.failures = before->below.failures;
    if (after->device.calls != before->device.calls)
        fail_msg("%s, %zu: %llu calls of the driver", name, bytes,
                 (unsigned long long)(after->device.calls - before->device.calls));
    if (memcmp(&after->pool, &before->pool, sizeof after->pool) != 0) fail_msg("%s, %zu: the pool", name, bytes);
    if (memcmp(&after->below_pool, &before->below_pool, sizeof after->pool) != 0)
        fail_msg("%s, %zu: the pool below", name, bytes);
    if (memcmp(&after->stats, &before->stats, sizeof after->stats) != 0) fail_msg("%s, %zu: statistics", name, bytes);
    if (memcmp(&after->below, &before->below, sizeof after->below) != 0)
        fail_msg("%s, %zu: statistics below", name, bytes);
}

static void a_request_that_can_never_fit_changes_nothing(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        subject it = subject_open(&grounds[g]);
        subject_make(&it, &grounds[g]);
        void *live = leave_idle(it.tested);
        const size_t sizes[] = {it.ceiling + 1, 2 * it.ceiling, (size_t)1 << 40, (size_t)1 << 46};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const loch_request request = {.size = sizeof request, .bytes = sizes[i], .timeout_ns = CENTURIES};
            if (sizes[i] <= it.ceiling) continue; /* a large host */
            const figures before = subject_read(&it);
            void *block = TEST_UNTOUCHED;
            CHECK_FAILS_SET(loch_allocator_alloc(it.tested, &request, &block),
                            TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY));
            const loch_error *error = loch_error_get();
            assert_null(block);
            if (error->remedy != LOCH_REMEDY_NONE) fail_msg("%s: %s", grounds[g].name, error->sentence);
            assert_int_equal(error->attempts, 1);
            assert_true(error->missing_bytes && error->missing_bytes <= sizes[i]);
            assert_true(error->owner[0]);
            figures after = subject_read(&it);
            expect_equal(grounds[g].name, sizes[i], &before, &after);
        }
        assert_int_equal(it.calls, 0);
        CHECK_OK(loch_free(it.tested, live));
        subject_close(&it);
    }
}

/* Growable blocks: the first size, and a growth. */
static void a_growth_that_can_never_fit_changes_nothing(void **state)
{
    (void)state;
    for (size_t g = 0; g < 2; g++) {
        subject it = subject_open(&grounds[g]);
        subject_make(&it, &grounds[g]);
        void *live = leave_idle(it.tested), *block, *none = TEST_UNTOUCHED;
        loch_request request = {.size = sizeof request, .bytes = MIB, .timeout_ns = CENTURIES};
        CHECK_OK(loch_pool_alloc_growable(it.tested, it.ceiling + MIB, &request, &block));
        figures before = subject_read(&it);
        CHECK_FAILS_SET(loch_pool_resize_growable(it.tested, block, it.ceiling + 1),
                        TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY));
        assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
        figures after = subject_read(&it);
        expect_equal("growth", it.ceiling + 1, &before, &after);
        before = subject_read(&it);
        request.bytes = it.ceiling + 1;
        CHECK_FAILS_SET(loch_pool_alloc_growable(it.tested, it.ceiling + MIB, &request, &none),
                        TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY));
        assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
        after = subject_read(&it);
        assert_int_equal(after.pool.reserved_bytes, before.pool.reserved_bytes);
        assert_int_equal(after.pool.handles_created, before.pool.handles_created);
        assert_int_equal(after.pool.handles_moved, before.pool.handles_moved);
        assert_int_equal(after.pool.handles_released, before.pool.handles_released);
        assert_int_equal(after.stats.retries, before.stats.retries);
        assert_int_equal(after.stats.waits_ns, before.stats.waits_ns);
        assert_int_equal(it.calls, 0);
        CHECK_OK(loch_free(it.tested, block));
        CHECK_OK(loch_free(it.tested, live));
        subject_close(&it);
    }
}

/* A limit below a granule: no block fits, however small. No stream is waited for to find that out. */
static void a_limit_below_a_granule_refuses_all_at_once(void **state)
{
    (void)state;
    const loch_pool_options narrow = {.size = sizeof narrow, .limit_bytes = 32 << 10};
    loch_device *device = sim_open(SIM);
    loch_allocator *parent = pool_make(device, NULL), *child = child_quota(parent, 0, narrow.limit_bytes);
    loch_allocator *const pools[] = {pool_make(device, &narrow), child};
    for (size_t i = 0; i < 2; i++) {
        unsigned calls = 0;
        CHECK_OK(loch_allocator_add_pressure(pools[i], note_call, &calls));
        for (size_t bytes = 1; bytes <= narrow.limit_bytes; bytes *= 8)
            for (int is_growable = 0; is_growable < 2; is_growable++) {
                const loch_request request = {.size = sizeof request, .bytes = bytes, .timeout_ns = CENTURIES};
                void *none = TEST_UNTOUCHED;
                CHECK_FAILS(is_growable ? loch_pool_alloc_growable(pools[i], MIB, &request, &none)
                                        : loch_allocator_alloc(pools[i], &request, &none),
                            LIMIT);
                assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
                assert_int_equal(loch_error_get()->attempts, 1);
            }
        const loch_pool_info info = pool_info(pools[i]);
        assert_int_equal(info.events_recorded, 0);
        assert_int_equal(info.waits_on_host, 0);
        assert_int_equal(calls, 0);
    }
    loch_allocator_release(pools[0]);
    loch_allocator_release(child);
    pool_end_sim(parent, device);
}

/* The host overcommits its memory, so a pool of segments can hold more than the host has. */
static void a_pool_that_holds_more_than_there_is_refuses_at_once(void **state)
{
    (void)state;
    const ground cpu = {"cpu", "cpu", PLAIN, {.preset = LOCH_POOL_NO_SPLIT}};
    const size_t part = total_of(&cpu) / 4 * 3;
    subject it = subject_open(&cpu);
    subject_make(&it, &cpu);
    void *blocks[2] = {NULL}, *none;
    for (size_t i = 0; i < 2; i++)
        if (pool_try_alloc(it.tested, part, 0, NULL, &blocks[i]) != LOCH_OK) break; /* a host that is strict */
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(loch_free(it.tested, blocks[i]));
    const figures before = subject_read(&it);
    CHECK_FAILS(loch_alloc(it.tested, it.ceiling + MIB, &none), DEVICE_MEMORY);
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
    figures after = subject_read(&it);
    expect_equal("cpu", it.ceiling + MIB, &before, &after);
    subject_close(&it);
}

/* A limit wrapper that is full now does not hide that a limit below it can never be kept. */
static void a_full_limit_does_not_hide_a_lower_one_below(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 4 * MIB};
    const loch_limit_options middle = {.size = sizeof middle, .hard_bytes = 5 * MIB};
    const loch_limit_options wide = {.size = sizeof wide, .hard_bytes = 7 * MIB};
    static const struct {
        size_t bytes;
        const char *owner;
        loch_remedy remedy;
    } asked[] = {{9 * MIB, "outer", LOCH_REMEDY_NONE},
                 {6 * MIB, "inner", LOCH_REMEDY_NONE},
                 {5 * MIB, "pool", LOCH_REMEDY_NONE},
                 {4 * MIB + 1, "pool", LOCH_REMEDY_NONE},
                 {4 * MIB, "outer", LOCH_REMEDY_FREE}};
    loch_device *device = sim_open(SIM);
    loch_allocator *pool, *inner, *outer;
    unsigned calls = 0;
    CHECK_OK(loch_pool_create(device, "pool", &options, &pool));
    CHECK_OK(loch_limit_create(pool, "inner", &middle, &inner));
    CHECK_OK(loch_limit_create(inner, "outer", &wide, &outer));
    CHECK_OK(loch_allocator_add_pressure(outer, note_call, &calls));
    void *live = pool_alloc(outer, 3 * MIB + 1), *none;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const bool is_hopeless = asked[i].remedy == LOCH_REMEDY_NONE;
        const loch_request request = {
            .size = sizeof request, .bytes = asked[i].bytes, .timeout_ns = is_hopeless ? CENTURIES : 0};
        CHECK_FAILS(loch_allocator_alloc(outer, &request, &none), LIMIT);
        assert_string_equal(loch_error_get()->owner, asked[i].owner);
        assert_int_equal(loch_error_get()->remedy, asked[i].remedy);
        assert_int_equal(calls, is_hopeless ? 0 : 1);
    }
    CHECK_OK(loch_free(outer, live));
    loch_allocator_release(outer);
    loch_allocator_release(inner);
    pool_end_sim(pool, device);
}

/* --- not now --- */

#define LIVE 64

/* Fills a pool with blocks of random sizes, frees some, and asks for more than is left. */
static void refuse_at_random(const ground *on, test_random *random)
{
    subject it = subject_open(on);
    void *blocks[LIVE] = {NULL};
    size_t sizes[LIVE], count = 0;
    subject_make(&it, on);
    for (; count < LIVE; count++) {
        sizes[count] = 1 + test_random_below(random, test_random_below(random, 4) ? 2 * MIB : 20000);
        if (pool_try_alloc(it.tested, sizes[count], 0, NULL, &blocks[count]) != LOCH_OK) break;
    }
    for (size_t i = 0; i < count; i++)
        if (test_random_below(random, 2)) {
            CHECK_OK(loch_free(it.tested, blocks[i]));
            blocks[i] = NULL;
        }
    for (size_t round = 0; round < 4; round++) {
        const figures before = subject_read(&it);
        const size_t room = it.ceiling - before.stats.requested_bytes, bytes = room + 1 + round * 4096;
        void *block = TEST_UNTOUCHED;
        if (bytes > it.ceiling) break;
        CHECK_FAILS_SET(pool_try_alloc(it.tested, bytes, 0, NULL, &block), POOL_SHORT);
        const loch_error error = *loch_error_get();
        const figures after = subject_read(&it);
        if (after.pool.reserved_bytes > before.pool.reserved_bytes)
            fail_msg("%s: %zu held before, %zu after %zu were refused", on->name, before.pool.reserved_bytes,
                     after.pool.reserved_bytes, bytes);
        if (after.stats.cached_bytes < before.stats.cached_bytes)
            fail_msg("%s: %llu idle before, %llu after %zu were refused", on->name,
                     (unsigned long long)before.stats.cached_bytes, (unsigned long long)after.stats.cached_bytes,
                     bytes);
        if (after.below.reserved_bytes > before.below.reserved_bytes) fail_msg("%s: more below", on->name);
        if (after.pool.handles_created != before.pool.handles_created ||
            after.pool.handles_released != before.pool.handles_released)
            fail_msg("%s: %zu were refused, %llu handles created, %llu released", on->name, bytes,
                     (unsigned long long)(after.pool.handles_created - before.pool.handles_created),
                     (unsigned long long)(after.pool.handles_released - before.pool.handles_released));
        if (error.remedy != LOCH_REMEDY_FREE || error.attempts != 1)
            fail_msg("%s, %zu: %s", on->name, bytes, error.sentence);
    }
    for (size_t i = 0; i < count; i++)
        CHECK_OK(loch_free(it.tested, blocks[i]));
    subject_close(&it);
}

static void a_request_that_does_not_fit_now_takes_and_costs_no_memory(void **state)
{
    (void)state;
    test_random random = {test_seed(31)};
    for (size_t round = 0; round < 6; round++)
        for (size_t g = 0; g < GROUNDS; g++)
            if (grounds[g].options.limit_bytes || grounds[g].options.kind == LOCH_MEMORY_DEVICE)
                refuse_at_random(&grounds[g], &random); /* how much the host can pin is not known */
}

/* Two blocks of three eighths are live: the third does not fit, and takes nothing. */
static void blocks_beside_a_refused_one_hold_their_own_memory_alone(void **state)
{
    (void)state;
    const char *const devices[] = {"sim:8GiB", "sim:8GiB,virtual=off"};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open(devices[i]);
        loch_allocator *pool = pool_make(device, NULL);
        void *one = pool_alloc(pool, 3 * TEST_GIB), *two = pool_alloc(pool, 3 * TEST_GIB), *three;
        CHECK_FAILS(loch_alloc(pool, 3 * TEST_GIB, &three), DEVICE_MEMORY);
        assert_int_equal(pool_info(pool).reserved_bytes, 6 * TEST_GIB);
        assert_int_equal(loch_error_get()->missing_bytes, TEST_GIB);
        assert_string_equal(loch_error_get()->owner, loch_device_get_name(device));
        CHECK_OK(loch_free(pool, one));
        CHECK_OK(loch_free(pool, two));
        pool_end_sim(pool, device);
    }
}

/* A request that waits for memory of the CPU creates nothing on each try, and says what is missing. */
static void a_waiting_request_on_the_cpu_creates_nothing(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    const size_t part = device->properties.total_bytes / 8 / (2 * MIB) * (2 * MIB);
    void *live = pool_alloc(pool, 4 * part), *blocks[8], *none = TEST_UNTOUCHED;
    for (size_t i = 0; i < 8; i++)
        blocks[i] = pool_alloc(pool, (i + 1) * MIB);
    for (size_t i = 0; i < 8; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    const loch_pool_info before = pool_info(pool);
    const size_t idle = before.free_bytes + before.thread_bytes;
    const loch_request request = {.size = sizeof request, .bytes = 6 * part, .timeout_ns = 20000000};
    CHECK_FAILS(loch_allocator_alloc(pool, &request, &none), DEVICE_MEMORY);
    const loch_error error = *loch_error_get();
    const loch_pool_info after = pool_info(pool);
    assert_int_equal(after.handles_created, before.handles_created);
    assert_int_equal(after.handles_released, before.handles_released);
    assert_int_equal(after.free_bytes + after.thread_bytes, idle);
    assert_string_equal(error.owner, "cpu");
    assert_int_equal(error.remedy, LOCH_REMEDY_FREE);
    assert_true(error.attempts > 1);
    const size_t left = device->properties.total_bytes - before.reserved_bytes;
    assert_int_equal(error.missing_bytes, 6 * part - left - idle);
    /* What is left is served, however little of it the system has now. */
    void *rest = pool_alloc(pool, left / (2 * MIB) * (2 * MIB));
    CHECK_OK(loch_free(pool, rest));
    CHECK_OK(loch_free(pool, live));
    pool_end(pool, device);
}

/* --- pinned memory --- */

#define SEGMENTS 20

static void pin_blocks(loch_allocator *pool, void *blocks[SEGMENTS])
{
    for (size_t i = 0; i < SEGMENTS; i++)
        blocks[i] = pool_alloc(pool, (i + 1) * MIB + i * 4096);
}

static void free_blocks(loch_allocator *pool, void *blocks[SEGMENTS])
{
    for (size_t i = 0; i < SEGMENTS; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
}

/* Refuses a request of a pool with free segments of many sizes. They are there afterwards, each of them. With
 * `is_faulty` the host could serve the request, but the driver fails once. */
static void refuse_beside_segments(const loch_pool_options *options, size_t bytes, bool is_faulty)
{
    loch_device *device = sim_open("sim:1GiB,unbacked");
    loch_allocator *pool = pool_make(device, options);
    void *live = pool_alloc(pool, 100 * MIB), *blocks[SEGMENTS], *none = TEST_UNTOUCHED;
    pin_blocks(pool, blocks);
    free_blocks(pool, blocks);
    const loch_pool_info before = pool_info(pool);
    const size_t idle = pool_stats(pool).cached_bytes;
    const loch_sim_fault fault = {.size = sizeof fault, .call = "pinned_alloc", .status = LOCH_E_DRIVER};
    if (is_faulty) CHECK_OK(loch_sim_set_fault(device, &fault));
    CHECK_FAILS_SET(loch_alloc(pool, bytes, &none), is_faulty ? TEST_SET(DRIVER) : TEST_SET(LIMIT));
    if (!is_faulty) assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
    if (!is_faulty) assert_int_equal(loch_error_get()->attempts, 1);
    CHECK_OK(loch_sim_set_fault(device, NULL));
    const loch_pool_info refused = pool_info(pool);
    assert_int_equal(refused.reserved_bytes, before.reserved_bytes);
    assert_int_equal(refused.handles, before.handles);
    assert_int_equal(pool_stats(pool).cached_bytes, idle);
    if (!is_faulty) assert_int_equal(refused.handles_released, before.handles_released);
    pin_blocks(pool, blocks);
    assert_int_equal(pool_info(pool).handles_created, refused.handles_created); /* each size is there */
    free_blocks(pool, blocks);
    CHECK_OK(loch_free(pool, live));
    pool_end_sim(pool, device);
}

static void free_segments_outlive_a_refusal(void **state)
{
    (void)state;
    const loch_pool_preset presets[] = {LOCH_POOL_STANDARD, LOCH_POOL_NO_SPLIT};
    for (size_t i = 0; i < 2; i++) {
        loch_pool_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED, .preset = presets[i]};
        refuse_beside_segments(&options, 600 * MIB, true);
        options.limit_bytes = 320 * MIB;
        refuse_beside_segments(&options, 240 * MIB, false); /* the limit leaves 220 */
        refuse_beside_segments(&options, 215 * MIB, true);
    }
}

/* --- growable blocks --- */

/* Fills a pool beside a growable block with blocks smaller than handles, and frees all of the first quarter and every
 * other one of the rest: a part of what is free lies in handles that are in use. */
static size_t grow_beside(loch_allocator *pool, void *blocks[1024])
{
    size_t count = 0;
    while (count < 1024 && pool_try_alloc(pool, 48 << 10, 0, NULL, &blocks[count]) == LOCH_OK)
        count++;
    for (size_t i = 0; i < count; i++)
        if (i < count / 4 || i % 2) {
            CHECK_OK(loch_free(pool, blocks[i]));
            blocks[i] = NULL;
        }
    return count;
}

static void expect_growth_refused(loch_allocator *pool, const loch_pool_info *before, size_t idle, const char *owner)
{
    const loch_error error = *loch_error_get();
    const loch_pool_info after = pool_info(pool);
    assert_string_equal(error.owner, owner);
    assert_int_equal(error.remedy, LOCH_REMEDY_FREE);
    assert_true(error.attempts);
    assert_null(strstr(error.sentence, "64 KiB do not fit")); /* all of the growth, not its last handle */
    assert_null(strstr(error.sentence, "memory of \"\""));
    assert_int_equal(after.handles_created, before->handles_created);
    assert_int_equal(after.handles_released, before->handles_released);
    assert_int_equal(after.reserved_bytes, before->reserved_bytes);
    assert_int_equal(pool_stats(pool).cached_bytes, idle);
}

static void a_growth_that_does_not_fit_now_takes_and_costs_no_memory(void **state)
{
    (void)state;
    const size_t limits[] = {16 * MIB, 0};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open("sim:20MiB,granule=64KiB");
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = limits[i]};
        loch_allocator *pool = pool_make(device, &options);
        loch_request request = {.size = sizeof request, .bytes = MIB};
        void *grown, *blocks[1024], *none = TEST_UNTOUCHED;
        CHECK_OK(loch_pool_alloc_growable(pool, 256 * MIB, &request, &grown));
        const size_t count = grow_beside(pool, blocks);
        const size_t idle = pool_stats(pool).cached_bytes;
        loch_pool_info before = pool_info(pool);
        CHECK_FAILS_SET(loch_pool_resize_growable(pool, grown, MIB + idle / 10 * 9), POOL_SHORT);
        expect_growth_refused(pool, &before, idle, "pool");
        assert_int_equal(loch_error_get()->status, LOCH_E_FRAGMENTED);
        CHECK_FAILS_SET(loch_pool_resize_growable(pool, grown, MIB + idle + 2 * MIB), POOL_SHORT);
        expect_growth_refused(pool, &before, idle, i ? loch_device_get_name(device) : "pool");
        assert_int_equal(loch_error_get()->missing_bytes, 2 * MIB);
        request.bytes = idle / 10 * 9;
        request.timeout_ns = 20000000;
        before = pool_info(pool);
        CHECK_FAILS_SET(loch_pool_alloc_growable(pool, 64 * MIB, &request, &none), POOL_SHORT);
        expect_growth_refused(pool, &before, idle, "pool");
        assert_true(loch_error_get()->attempts > 1);
        CHECK_OK(loch_pool_resize_growable(pool, grown, 3 * MIB)); /* whole handles are free for that */
        for (size_t b = 0; b < count; b++)
            CHECK_OK(loch_free(pool, blocks[b]));
        CHECK_OK(loch_free(pool, grown));
        pool_end_sim(pool, device);
    }
}

/* --- headroom --- */

static size_t room_of(loch_device *device)
{
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_calculate_memory(device, &info));
    return info.free_bytes;
}

/* A program that filled the device and freed all of it leaves the headroom to other libraries, without a further
 * request: those ask the driver, not the pool. */
static void idle_memory_leaves_the_headroom_free(void **state)
{
    (void)state;
    const char *const devices[] = {SIM, RAW};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open(devices[i]);
        const loch_pool_options options = {.size = sizeof options, .headroom_bytes = 8 * MIB};
        loch_allocator *pool = pool_make(device, &options);
        void *blocks[32];
        size_t count = 0;
        while (loch_alloc(pool, 4 * MIB, &blocks[count]) == LOCH_OK)
            count++;
        assert_true(count > 12 && room_of(device) < 8 * MIB); /* live blocks may use the headroom */
        const size_t held = pool_info(pool).reserved_bytes;
        while (count)
            CHECK_OK(loch_free(pool, blocks[--count]));
        assert_true(room_of(device) >= 8 * MIB);
        assert_true(pool_info(pool).reserved_bytes >= held - 16 * MIB); /* no more than that goes back */
        const uint64_t created = lochi_pool_of(pool)->counts.handles_created;
        void *again = pool_alloc(pool, 4 * MIB);
        CHECK_OK(loch_free(pool, again));
        assert_int_equal(lochi_pool_of(pool)->counts.handles_created,
                         created); /* above the headroom the cache is kept */
        pool_end_sim(pool, device);
    }
}

static void a_large_block_goes_back_for_the_headroom_when_it_is_freed(void **state)
{
    (void)state;
    const char *const devices[] = {SIM, RAW};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open(devices[i]);
        const loch_pool_options options = {.size = sizeof options, .headroom_bytes = 8 * MIB};
        loch_allocator *pool = pool_make(device, &options);
        void *first = pool_alloc(pool, 3 * MIB), *large;
        CHECK_OK(loch_free(pool, first)); /* the thread caches it */
        large = pool_alloc(pool, 58 * MIB);
        assert_true(room_of(device) < 8 * MIB);
        CHECK_OK(loch_free(pool, large)); /* and not this one */
        assert_true(room_of(device) >= 8 * MIB);
        CHECK_OK(loch_free(pool, pool_alloc(pool, MIB)));
        CHECK_OK(loch_free(pool, pool_alloc(pool, MIB)));
        assert_true(pool_info(pool).thread_bytes >= MIB); /* threads cache again */
        pool_end_sim(pool, device);
    }
}

static void a_request_may_use_the_headroom(void **state)
{
    (void)state;
    const char *const devices[] = {SIM, RAW};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open(devices[i]);
        const loch_pool_options options = {.size = sizeof options, .headroom_bytes = 16 * MIB};
        loch_allocator *pool = pool_make(device, &options);
        void *all = pool_alloc(pool, 62 * MIB);
        assert_int_equal(pool_info(pool).reserved_bytes, 62 * MIB); /* exactly what it needs */
        CHECK_OK(loch_free(pool, all));
        pool_end_sim(pool, device);
    }
}

/* Another user of the device takes memory past all allocators: the next call that takes memory gives idle memory
 * back. */
static void a_call_that_finds_the_device_full_gives_idle_memory_back(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    const loch_pool_options options = {.size = sizeof options, .headroom_bytes = 8 * MIB};
    loch_allocator *pool = pool_make(device, &options);
    void *idle[22], *live = pool_alloc(pool, 4 * MIB);
    for (size_t i = 0; i < 22; i++)
        idle[i] = pool_alloc(pool, 2 * MIB);
    for (size_t i = 0; i < 22; i += 2)
        CHECK_OK(loch_free(pool, idle[i])); /* 22 MiB idle, in pieces */
    void *other = sim_raw(device, room_of(device) - MIB);
    const size_t held = pool_info(pool).reserved_bytes;
    void *more = pool_alloc(pool, 3 * MIB); /* no piece is so large */
    assert_true(pool_info(pool).reserved_bytes < held);
    assert_true(room_of(device) >= 8 * MIB);
    CHECK_OK(loch_raw_free(other));
    for (size_t i = 1; i < 22; i += 2)
        CHECK_OK(loch_free(pool, idle[i]));
    CHECK_OK(loch_free(pool, more));
    CHECK_OK(loch_free(pool, live));
    pool_end_sim(pool, device);
}

static void an_option_sets_the_headroom(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    const loch_pool_options own = {.size = sizeof own, .headroom_bytes = 3 * MIB};
    const loch_pool_options most = {.size = sizeof most, .headroom_bytes = SIZE_MAX};
    loch_allocator *pool = pool_make(device, NULL);
    assert_int_equal(lochi_pool_of(pool)->room.headroom, 0); /* none where no library is beside the pool */
    loch_allocator_release(pool);
    CHECK_OK(loch_option_set("pool_headroom", "5MiB"));
    pool = pool_make(device, NULL);
    assert_int_equal(lochi_pool_of(pool)->room.headroom, 5 * MIB);
    loch_allocator_release(pool);
    pool = pool_make(device, &own);
    assert_int_equal(lochi_pool_of(pool)->room.headroom, 3 * MIB);
    loch_allocator_release(pool);
    pool = pool_make(device, &most);
    assert_int_equal(lochi_pool_of(pool)->room.headroom, 64 * MIB); /* not more than the device */
    loch_allocator_release(pool);
    CHECK_OK(loch_option_set("pool_headroom", NULL));
    loch_device_release(device);
}

/* --- other pools --- */

/* Pool "b" cannot use what pool "a" has idle: its own limit leaves nothing, or the idle memory lies in parts of
 * handles. So "a" keeps it. */
static void other_pools_keep_what_cannot_help(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        loch_device *device = sim_open(i % 2 ? RAW : SIM);
        const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = i < 2 ? 8 * MIB : 0};
        loch_allocator *a = pool_make(device, NULL), *b = pool_make(device, &limited), *in = i < 2 ? b : a;
        static void *blocks[2048];
        void *block, *idle = pool_alloc(a, i < 2 ? 16 * MIB : 2 * MIB);
        size_t count = 0;
        CHECK_OK(loch_free(a, idle));
        while (count < 768 && loch_alloc(in, 48 << 10, &blocks[count]) == LOCH_OK)
            count++;
        for (size_t at = 0; at < count; at += 2)
            CHECK_OK(loch_free(in, blocks[at]));
        const size_t held = pool_info(a).reserved_bytes, left = 64 * MIB - held;
        if (i < 2)
            CHECK_FAILS(loch_alloc(b, 4 * MIB, &block), FRAGMENTED);
        else
            CHECK_FAILS(loch_alloc(b, left + 8 * MIB, &block), DEVICE_MEMORY);
        assert_int_equal(pool_info(a).reserved_bytes, held);
        for (size_t at = 1; at < count; at += 2)
            CHECK_OK(loch_free(in, blocks[at]));
        loch_allocator_release(b);
        pool_end_sim(a, device);
    }
}

/* Parent and child have no limit: the device is full, and not a limit. Memory that the other pools of the family have
 * idle serves the request. */
static void a_family_without_a_limit_is_short_of_the_device(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *parent = pool_make(device, NULL), *a = child_quota(parent, 0, 0), *b = child_quota(parent, 0, 0);
    void *held = pool_alloc(a, 40 * MIB), *block;
    loch_allocator *const all[] = {parent, a, b};
    for (size_t i = 0; i < 3; i++) {
        CHECK_FAILS(loch_alloc(all[i], 32 * MIB, &block), DEVICE_MEMORY);
        assert_string_equal(loch_error_get()->owner, loch_device_get_name(device));
        assert_int_equal(loch_error_get()->missing_bytes, 8 * MIB);
        assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
    }
    CHECK_OK(loch_free(a, held));
    CHECK_OK(loch_alloc(b, 60 * MIB, &block));
    CHECK_OK(loch_free(b, block));
    CHECK_OK(loch_alloc(parent, 60 * MIB, &block));
    CHECK_OK(loch_free(parent, block));
    loch_allocator_release(a);
    loch_allocator_release(b);
    pool_end_sim(parent, device);
}

/* Asks `from` for more than the pools of its family can give back, and expects that all of them keep what they have
 * idle. */
static void ask_family_in_vain(loch_allocator *const family[4], loch_allocator *from, const char *owner)
{
    loch_request request = {.size = sizeof request, .bytes = 32 * MIB};
    size_t before[4];
    void *none, *grown;
    for (size_t i = 0; i < 4; i++)
        before[i] = pool_info(family[i]).reserved_bytes;
    for (size_t tries = 0; tries < 3; tries++) {
        if (tries == 2) {
            const loch_request empty = {.size = sizeof empty};
            CHECK_OK(loch_pool_alloc_growable(from, 64 * MIB, &empty, &grown));
            CHECK_FAILS(loch_pool_resize_growable(from, grown, request.bytes), LIMIT);
            CHECK_OK(loch_free(from, grown));
        } else {
            CHECK_FAILS(loch_allocator_alloc(from, &request, &none), LIMIT);
        }
        assert_string_equal(loch_error_get()->owner, owner);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(pool_info(family[i]).reserved_bytes, before[i]);
        request.timeout_ns = 30000000;
    }
}

static void a_family_keeps_what_cannot_help(void **state)
{
    (void)state;
    const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = 56 * MIB};
    loch_device *device = sim_open("sim:256MiB,granule=64KiB");
    loch_allocator *top = pool_make(device, &limited), *a = child_quota(top, 0, 0), *b = child_quota(top, 0, 40 * MIB);
    loch_allocator *c = child_quota(b, 0, 0), *const family[] = {top, a, b, c};
    void *live[] = {pool_alloc(a, 24 * MIB), pool_alloc(b, 12 * MIB), pool_alloc(top, 2 * MIB)}, *idle, *block;
    const size_t sizes[] = {2 * MIB, 8 * MIB, 3 * MIB, 2 * MIB};
    for (size_t i = 0; i < 4; i++) {
        idle = pool_alloc(family[i], sizes[i]);
        CHECK_OK(loch_free(family[i], idle));
    }
    /* 38 MiB are live, and 14 idle beside 32 MiB for "c", which has 2 of its own: the nearest limit refuses it, and the
     * topmost one too. */
    ask_family_in_vain(family, c, loch_allocator_get_name(b));
    ask_family_in_vain(family, a, loch_allocator_get_name(top));
    const size_t held = pool_info(a).reserved_bytes;
    const loch_child_options child = {.size = sizeof child, .minimum_bytes = 20 * MIB};
    CHECK_FAILS(loch_pool_create_child(top, "much", &child, &(loch_allocator *){NULL}), LIMIT);
    assert_int_equal(pool_info(a).reserved_bytes, held);
    CHECK_OK(loch_alloc(c, 16 * MIB, &block)); /* what the others have idle is enough for that */
    assert_true(pool_info(a).reserved_bytes < held);
    CHECK_OK(loch_free(c, block));
    CHECK_OK(loch_free(a, live[0]));
    CHECK_OK(loch_free(b, live[1]));
    CHECK_OK(loch_free(top, live[2]));
    loch_allocator_release(c);
    loch_allocator_release(b);
    loch_allocator_release(a);
    pool_end_sim(top, device);
}

/* A pool on a source asks it for larger segments than a request needs. Other pools give nothing back for that, also if
 * the source has a source itself. */
static void larger_segments_take_nothing_from_other_pools(void **state)
{
    (void)state;
    for (size_t depth = 1; depth <= 2; depth++) {
        loch_device *device = sim_open(SIM);
        loch_allocator *source = pool_make(device, NULL), *other = pool_make(device, NULL);
        loch_pool_options options = {.size = sizeof options, .source = source};
        loch_allocator *between = depth > 1 ? pool_make(device, &options) : NULL;
        if (between) options.source = between;
        options.handle_bytes = 32 * MIB;
        loch_allocator *pool = pool_make(device, &options);
        void *idle = pool_alloc(other, 40 * MIB);
        CHECK_OK(loch_free(other, idle));
        const size_t held = pool_info(other).reserved_bytes;
        void *block = pool_alloc(pool, 2 * MIB), *large;
        assert_int_equal(pool_info(other).reserved_bytes, held);
        CHECK_OK(loch_alloc(pool, 40 * MIB, &large)); /* needed: they do */
        assert_true(pool_info(other).reserved_bytes < held);
        CHECK_OK(loch_free(pool, large));
        CHECK_OK(loch_free(pool, block));
        loch_allocator_release(pool);
        loch_allocator_release(between);
        loch_allocator_release(other);
        pool_end_sim(source, device);
    }
}

/* What threads cache is counted too: it can be given back. */
static void other_pools_give_what_their_threads_cache(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *a = pool_make(device, NULL), *b = pool_make(device, NULL);
    void *first = pool_alloc(a, 40 * MIB), *second;
    CHECK_OK(loch_free(a, first)); /* the thread's last block */
    CHECK_OK(loch_alloc(b, 48 * MIB, &second));
    CHECK_OK(loch_free(b, second));
    loch_allocator_release(b);
    pool_end_sim(a, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_request_that_can_never_fit_changes_nothing),
        POOL_TEST(a_growth_that_can_never_fit_changes_nothing),
        POOL_TEST(a_limit_below_a_granule_refuses_all_at_once),
        POOL_TEST(a_pool_that_holds_more_than_there_is_refuses_at_once),
        POOL_TEST(a_full_limit_does_not_hide_a_lower_one_below),
        POOL_TEST(a_request_that_does_not_fit_now_takes_and_costs_no_memory),
        POOL_TEST(blocks_beside_a_refused_one_hold_their_own_memory_alone),
        POOL_TEST(a_waiting_request_on_the_cpu_creates_nothing),
        POOL_TEST(free_segments_outlive_a_refusal),
        POOL_TEST(a_growth_that_does_not_fit_now_takes_and_costs_no_memory),
        POOL_TEST(idle_memory_leaves_the_headroom_free),
        POOL_TEST(a_large_block_goes_back_for_the_headroom_when_it_is_freed),
        POOL_TEST(a_request_may_use_the_headroom),
        POOL_TEST(a_call_that_finds_the_device_full_gives_idle_memory_back),
        POOL_TEST(an_option_sets_the_headroom),
        POOL_TEST(other_pools_keep_what_cannot_help),
        POOL_TEST(a_family_without_a_limit_is_short_of_the_device),
        POOL_TEST(a_family_keeps_what_cannot_help),
        POOL_TEST(larger_segments_take_nothing_from_other_pools),
        POOL_TEST(other_pools_give_what_their_threads_cache),
    };
    return cmocka_run_group_tests_name("refused requests", tests, NULL, NULL);
}
