/* SPDX-License-Identifier: MIT */
/* Pressure functions and waiting, as programs use them: functions that evict one entry, functions of parents, wrappers
 * that forward requests, and threads that only free. */
#include "pool_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define MIB TEST_MIB
#define ENTRIES 64

/* A cache of blocks. It evicts one entry a call. */
typedef struct cache {
    loch_allocator *allocator;
    void *blocks[ENTRIES];
    size_t count;
    unsigned calls, *order, at; /* `at`: the place of its first call among all that share `order` */
    bool is_lying;
} cache;

static size_t cache_evict(loch_allocator *allocator, size_t bytes, void *user)
{
    cache *it = user;
    (void)allocator, (void)bytes;
    if (!it->calls++ && it->order) it->at = ++*it->order;
    if (it->is_lying) return bytes;
    if (!it->count) return 0;
    LOCH_CHECK(loch_free(it->allocator, it->blocks[--it->count]));
    return MIB;
}

static void cache_fill(cache *it, loch_allocator *allocator, size_t count, size_t bytes)
{
    it->allocator = allocator;
    for (; it->count < count; it->count++)
        it->blocks[it->count] = pool_alloc(allocator, bytes);
    CHECK_OK(loch_allocator_add_pressure(allocator, cache_evict, it));
}

static void cache_end(cache *it)
{
    CHECK_OK(loch_allocator_remove_pressure(it->allocator, cache_evict, it));
    while (it->count)
        CHECK_OK(loch_free(it->allocator, it->blocks[--it->count]));
}

static loch_allocator *pool_of(loch_device *device, const char *name, size_t limit)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit};
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(device, name, &options, &pool));
    return pool;
}

static loch_allocator *child_of(loch_allocator *parent, const char *name, size_t limit)
{
    const loch_child_options options = {.size = sizeof options, .limit_bytes = limit};
    loch_allocator *child;
    CHECK_OK(loch_pool_create_child(parent, name, &options, &child));
    return child;
}

static void a_function_that_evicts_one_entry_is_called_until_it_fits(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_of(device, "server", 256 * MIB);
    cache entries = {.count = 0};
    void *block;
    cache_fill(&entries, pool, ENTRIES, 4 * MIB);
    CHECK_OK(loch_alloc(pool, 16 * MIB, &block));
    assert_int_equal(entries.calls, 4);
    assert_int_equal(entries.count, ENTRIES - 4);
    assert_int_equal(pool_stats(pool).failures, 0);
    assert_int_equal(pool_stats(pool).retries, 4);
    CHECK_OK(loch_free(pool, block));
    cache_end(&entries);
    pool_end_sim(pool, device);
}

/* --- functions that free what is not the allocator's --- */

static void stack_evict(loch_allocator *asker, loch_allocator *holder, size_t bytes, unsigned most)
{
    cache entries = {.allocator = holder};
    void *block, *held;
    while (entries.count < ENTRIES && loch_alloc(holder, MIB, &held) == LOCH_OK)
        entries.blocks[entries.count++] = held;
    const size_t before = entries.count;
    CHECK_OK(loch_allocator_add_pressure(asker, cache_evict, &entries));
    CHECK_OK(loch_alloc(asker, bytes, &block));
    assert_in_range(entries.calls, 5, most); /* more than RETRY_IDLE_CALLS */
    assert_int_equal(entries.count, before - entries.calls);
    CHECK_OK(loch_free(asker, block));
    CHECK_OK(loch_allocator_remove_pressure(asker, cache_evict, &entries));
    while (entries.count)
        CHECK_OK(loch_free(holder, entries.blocks[--entries.count]));
}

static void a_function_may_evict_from_another_pool(void **state)
{
    (void)state;
    static const char *const devices[] = {"sim:64MiB,granule=64KiB", "sim:64MiB,granule=64KiB,virtual=off"};
    for (size_t i = 0; i < 2; i++) {
        loch_device *device = sim_open(devices[i]);
        loch_allocator *holder = pool_of(device, "holder", 0), *asker = pool_of(device, "asker", 0);
        stack_evict(asker, holder, 16 * MIB, 40); /* raw segments hold several entries */
        loch_allocator_release(asker);
        pool_end_sim(holder, device);
    }
}

static void a_function_may_evict_from_the_source(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB");
    loch_allocator *source = pool_of(device, "source", 0), *asker;
    const loch_pool_options options = {.size = sizeof options, .source = source};
    CHECK_OK(loch_pool_create(device, "asker", &options, &asker));
    stack_evict(asker, source, 16 * MIB, 16);
    loch_allocator_release(asker);
    pool_end_sim(source, device);
}

static void a_function_may_evict_from_a_direct_allocator(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB");
    loch_allocator *holder, *asker = pool_of(device, "asker", 0);
    CHECK_OK(loch_direct_create(device, "holder", NULL, &holder));
    stack_evict(asker, holder, 16 * MIB, 16);
    loch_allocator_release(holder);
    pool_end_sim(asker, device);
}

/* Frees memory that no allocator knows of. */
typedef struct raw_cache {
    void *blocks[ENTRIES];
    size_t count;
} raw_cache;

static size_t raw_evict(loch_allocator *allocator, size_t bytes, void *user)
{
    raw_cache *it = user;
    (void)allocator, (void)bytes;
    if (!it->count) return 0;
    LOCH_CHECK(loch_raw_free(it->blocks[--it->count]));
    return MIB;
}

static void a_function_may_free_memory_of_the_device(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *pool = pool_of(device, "p", 0);
    raw_cache entries = {.count = 0};
    void *block;
    for (; entries.count < ENTRIES; entries.count++)
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, MIB, 0, &entries.blocks[entries.count]));
    CHECK_OK(loch_allocator_add_pressure(pool, raw_evict, &entries));
    CHECK_OK(loch_alloc(pool, 16 * MIB, &block));
    assert_int_equal(entries.count, ENTRIES - 16);
    CHECK_OK(loch_free(pool, block));
    CHECK_OK(loch_allocator_remove_pressure(pool, raw_evict, &entries));
    while (entries.count)
        CHECK_OK(loch_raw_free(entries.blocks[--entries.count]));
    pool_end_sim(pool, device);
}

/* Keeps the contents of an entry in another pool before it frees the entry. */
typedef struct spiller {
    cache from;
    loch_allocator *to;
    void *kept[ENTRIES];
    size_t count;
} spiller;

static size_t spill_one(loch_allocator *allocator, size_t bytes, void *user)
{
    spiller *it = user;
    LOCH_CHECK(loch_alloc(it->to, MIB, &it->kept[it->count++]));
    return cache_evict(allocator, bytes, &it->from);
}

static void a_function_may_keep_contents_elsewhere(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB"), *host = sim_open("cpu");
    loch_allocator *holder = pool_of(device, "holder", 0), *asker = pool_of(device, "asker", 0);
    spiller it = {.from = {.allocator = holder}, .to = pool_of(host, "host", 0)};
    void *block;
    for (; it.from.count < ENTRIES; it.from.count++)
        it.from.blocks[it.from.count] = pool_alloc(holder, MIB);
    CHECK_OK(loch_allocator_add_pressure(asker, spill_one, &it));
    CHECK_OK(loch_alloc(asker, 16 * MIB, &block));
    assert_int_equal(it.from.calls, 16);
    CHECK_OK(loch_free(asker, block));
    CHECK_OK(loch_allocator_remove_pressure(asker, spill_one, &it));
    while (it.from.count)
        CHECK_OK(loch_free(holder, it.from.blocks[--it.from.count]));
    while (it.count)
        CHECK_OK(loch_free(it.to, it.kept[--it.count]));
    loch_allocator_release(asker);
    pool_end(it.to, host);
    pool_end_sim(holder, device);
}

/* Uses a scratch block, and frees nothing else. */
static size_t scratch(loch_allocator *allocator, size_t bytes, void *user)
{
    cache *it = user;
    void *block;
    (void)allocator;
    it->calls++;
    LOCH_CHECK(loch_alloc(it->allocator, 4096, &block));
    LOCH_CHECK(loch_free(it->allocator, block));
    return bytes;
}

static void a_scratch_block_is_no_progress(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_of(device, "server", 16 * MIB), *own = pool_of(device, "scratch", 0), *direct;
    void *held = pool_alloc(pool, 16 * MIB), *block;
    CHECK_OK(loch_direct_create(device, "direct", NULL, &direct));
    loch_allocator *const all[] = {own, direct};
    for (size_t i = 0; i < 2; i++) {
        cache entries = {.allocator = all[i]};
        CHECK_OK(loch_allocator_add_pressure(pool, scratch, &entries));
        CHECK_FAILS(loch_alloc(pool, MIB, &block), LIMIT);
        assert_int_equal(entries.calls, 4);
        CHECK_OK(loch_allocator_remove_pressure(pool, scratch, &entries));
    }
    CHECK_OK(loch_free(pool, held));
    loch_allocator_release(direct);
    loch_allocator_release(own);
    pool_end_sim(pool, device);
}

static void a_function_that_lies_gets_few_attempts(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_of(device, "server", 256 * MIB);
    cache entries = {.is_lying = true};
    void *block;
    cache_fill(&entries, pool, ENTRIES, 4 * MIB);
    CHECK_FAILS(loch_alloc(pool, 16 * MIB, &block), LIMIT);
    assert_int_equal(entries.calls, 4);
    assert_int_equal(loch_error_get()->attempts, 5);
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
    assert_int_equal(loch_error_get()->missing_bytes, 16 * MIB);
    assert_string_equal(loch_error_get()->owner, "server");
    assert_int_equal(pool_stats(pool).failures, 1);
    cache_end(&entries);
    pool_end_sim(pool, device);
}

static size_t remove_itself(loch_allocator *allocator, size_t bytes, void *user)
{
    unsigned *calls = user;
    ++*calls;
    LOCH_CHECK(loch_allocator_remove_pressure(allocator, remove_itself, user));
    return bytes; /* it would be called again */
}

static void a_function_may_remove_itself(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_of(device, "server", 16 * MIB);
    unsigned calls = 0;
    cache entries = {.count = 0};
    void *held = pool_alloc(pool, 16 * MIB), *block;
    CHECK_OK(loch_allocator_add_pressure(pool, remove_itself, &calls));
    cache_fill(&entries, pool, 0, MIB); /* the next function is asked nevertheless */
    for (unsigned i = 1; i <= 2; i++) {
        CHECK_FAILS(loch_alloc(pool, MIB, &block), LIMIT);
        assert_int_equal(calls, 1);
        assert_int_equal(entries.calls, i);
    }
    CHECK_FAILS(loch_allocator_remove_pressure(pool, remove_itself, &calls), NOT_FOUND);
    CHECK_OK(loch_allocator_add_pressure(pool, remove_itself, &calls));
    CHECK_OK(loch_allocator_remove_pressure(pool, remove_itself, &calls));
    CHECK_OK(loch_free(pool, held));
    cache_end(&entries);
    pool_end_sim(pool, device);
}

static size_t look_at_time(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes;
    *(uint64_t *)user = loch_pressure_get_left_ns();
    return 0;
}

static void a_function_knows_how_long_the_request_may_wait(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_of(device, "server", 16 * MIB);
    void *held = pool_alloc(pool, 16 * MIB), *block;
    loch_request request = {.size = sizeof request, .bytes = MIB};
    uint64_t left_ns = 0;
    CHECK_OK(loch_allocator_add_pressure(pool, look_at_time, &left_ns));
    CHECK_FAILS(loch_allocator_alloc(pool, &request, &block), LIMIT);
    assert_int_equal(left_ns, UINT64_MAX);
    request.timeout_ns = 20000000;
    CHECK_FAILS(loch_allocator_alloc(pool, &request, &block), LIMIT);
    assert_true(left_ns <= request.timeout_ns);
    assert_int_equal(loch_pressure_get_left_ns(), UINT64_MAX);
    CHECK_OK(loch_allocator_remove_pressure(pool, look_at_time, &left_ns));
    CHECK_OK(loch_free(pool, held));
    pool_end_sim(pool, device);
}

/* Fails in a pool of its own, with the status of the request that it is called for. */
static size_t fail_elsewhere(loch_allocator *allocator, size_t bytes, void *user)
{
    void *block;
    (void)allocator, (void)bytes;
    CHECK_FAILS(loch_alloc(user, 3 * MIB, &block), LIMIT);
    return 0;
}

static void what_fails_in_a_function_is_not_the_request(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_of(device, "server", 16 * MIB), *spill = pool_of(device, "spill", 2 * MIB);
    void *held = pool_alloc(pool, 16 * MIB), *block;
    CHECK_FAILS(loch_alloc(pool, MIB, &block), LIMIT);
    const loch_error alone = *loch_error_get();
    CHECK_OK(loch_allocator_add_pressure(pool, fail_elsewhere, spill));
    CHECK_FAILS(loch_alloc(pool, MIB, &block), LIMIT);
    assert_string_equal(loch_error_get()->sentence, alone.sentence);
    assert_string_equal(loch_error_get()->owner, "server");
    assert_int_equal(loch_error_get()->missing_bytes, alone.missing_bytes);
    CHECK_OK(loch_allocator_remove_pressure(pool, fail_elsewhere, spill));
    CHECK_OK(loch_free(pool, held));
    loch_allocator_release(spill);
    pool_end_sim(pool, device);
}

/* --- functions and other threads --- */

/* Another thread that uses a pool all the time. With `slot`, it keeps a block there. */
typedef struct busy {
    loch_allocator *allocator;
    _Atomic(void *) *slot;
    atomic_bool is_over;
    atomic_uint turns;
} busy;

static void *busy_run(void *user)
{
    busy *it = user;
    while (!atomic_load(&it->is_over)) {
        void *block;
        if (it->slot && atomic_load(it->slot)) {
            sched_yield();
            continue;
        }
        LOCH_CHECK(loch_alloc(it->allocator, MIB, &block));
        if (it->slot)
            atomic_store(it->slot, block);
        else
            LOCH_CHECK(loch_free(it->allocator, block));
        atomic_fetch_add(&it->turns, 1);
    }
    return NULL;
}

static pthread_t busy_begin(busy *it)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, busy_run, it), 0);
    while (!atomic_load(&it->turns))
        sched_yield();
    return thread;
}

static void busy_end(busy *it, pthread_t thread)
{
    atomic_store(&it->is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Lies while another thread frees blocks of the pool. Waits for a free, as a cache does that frees on a thread of its
 * own. */
static size_t lie_among_frees(loch_allocator *allocator, size_t bytes, void *user)
{
    busy *it = user;
    const uint64_t start_ns = loch_host_now_ns();
    (void)allocator;
    const unsigned turns = atomic_load(&it->turns);
    while (atomic_load(&it->turns) < turns + 2 && loch_host_now_ns() - start_ns < 1000000000)
        sched_yield();
    return bytes;
}

static void a_function_that_lies_in_a_busy_pool_does_not_hold_the_request(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_of(device, "server", 16 * MIB);
    busy other = {.allocator = pool};
    void *held = pool_alloc(pool, 12 * MIB), *block;
    const pthread_t thread = busy_begin(&other);
    CHECK_OK(loch_allocator_add_pressure(pool, lie_among_frees, &other));
    CHECK_FAILS(loch_alloc(pool, 8 * MIB, &block), LIMIT);
    assert_true(loch_error_get()->attempts < 1000);
    CHECK_OK(loch_allocator_remove_pressure(pool, lie_among_frees, &other));
    busy_end(&other, thread);
    CHECK_OK(loch_free(pool, held));
    pool_end_sim(pool, device);
}

/* Frees the block that another thread keeps, and that takes one again. */
static size_t evict_for_another(loch_allocator *allocator, size_t bytes, void *user)
{
    busy *it = user;
    void *block = NULL;
    (void)allocator, (void)bytes;
    while (!block)
        block = atomic_exchange(it->slot, NULL);
    LOCH_CHECK(loch_free(it->allocator, block));
    return MIB;
}

static void a_deadline_holds_while_others_take_what_functions_free(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB"), *host = sim_open("cpu");
    loch_allocator *pool = pool_of(device, "server", 16 * MIB), *elsewhere = pool_of(host, "elsewhere", 0);
    loch_allocator *const from[] = {pool, elsewhere};
    void *held = pool_alloc(pool, 12 * MIB), *block;
    for (size_t i = 0; i < 2; i++) {
        _Atomic(void *) slot = NULL;
        busy other = {.allocator = from[i], .slot = &slot};
        const loch_request request = {.size = sizeof request, .bytes = 8 * MIB, .timeout_ns = 50000000};
        const pthread_t thread = busy_begin(&other);
        CHECK_OK(loch_allocator_add_pressure(pool, evict_for_another, &other));
        const uint64_t start_ns = loch_host_now_ns();
        CHECK_FAILS(loch_allocator_alloc(pool, &request, &block), LIMIT);
        const uint64_t waited_ns = loch_host_now_ns() - start_ns;
        assert_true(waited_ns >= request.timeout_ns && waited_ns < 20000000000u);
        CHECK_OK(loch_allocator_remove_pressure(pool, evict_for_another, &other));
        busy_end(&other, thread);
        CHECK_OK(loch_free(from[i], atomic_load(&slot)));
    }
    CHECK_OK(loch_free(pool, held));
    pool_end(elsewhere, host);
    pool_end_sim(pool, device);
}

/* Frees a block, and takes it again at the next call. */
typedef struct turner {
    loch_allocator *allocator;
    void *block;
    unsigned calls;
} turner;

static size_t free_and_take(loch_allocator *allocator, size_t bytes, void *user)
{
    turner *it = user;
    (void)allocator;
    it->calls++;
    if (it->block) {
        LOCH_CHECK(loch_free(it->allocator, it->block));
        it->block = NULL;
    } else {
        it->block = pool_alloc(it->allocator, MIB);
    }
    return bytes;
}

static void a_function_that_takes_again_what_it_frees_ends(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB"), *host = sim_open("cpu");
    loch_allocator *pool = pool_of(device, "server", 16 * MIB);
    turner it = {.allocator = pool_of(host, "elsewhere", 0)};
    void *held = pool_alloc(pool, 16 * MIB), *block;
    it.block = pool_alloc(it.allocator, MIB);
    CHECK_OK(loch_allocator_add_pressure(pool, free_and_take, &it));
    CHECK_FAILS(loch_alloc(pool, MIB, &block), LIMIT);
    assert_int_equal(loch_error_get()->attempts, it.calls + 1);
    CHECK_OK(loch_allocator_remove_pressure(pool, free_and_take, &it));
    CHECK_OK(loch_free(it.allocator, it.block));
    CHECK_OK(loch_free(pool, held));
    pool_end(it.allocator, host);
    pool_end_sim(pool, device);
}

/* --- functions of parents --- */

/* Grandparent, parent and child: the nearest is asked first, and nothing above the pool that is full. */
static void parents_are_asked_for_children(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    unsigned order = 0;
    loch_allocator *top = pool_of(device, "top", 64 * MIB), *middle = child_of(top, "middle", 32 * MIB);
    loch_allocator *child = child_of(middle, "child", 0);
    cache far = {.order = &order}, near = {.order = &order}, own = {.order = &order};
    void *block;
    cache_fill(&far, top, 8, 4 * MIB);
    cache_fill(&near, middle, 8, 4 * MIB);
    cache_fill(&own, child, 0, 4 * MIB);
    CHECK_OK(loch_alloc(child, 8 * MIB, &block)); /* "middle" is full, and so is "top" */
    assert_int_equal(own.at, 1);
    assert_int_equal(near.at, 2);
    assert_int_equal(near.calls, 2);
    assert_int_equal(far.calls, 0);
    CHECK_OK(loch_free(child, block));
    CHECK_OK(loch_allocator_trim(child, 0, NULL));
    cache_end(&own);
    cache_end(&near);
    cache_end(&far);
    loch_allocator_release(child);
    loch_allocator_release(middle);
    pool_end_sim(top, device);
}

static void the_record_names_whose_limit_it_is(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *parent = pool_of(device, "server", 64 * MIB), *child = child_of(parent, "request", 32 * MIB);
    cache entries = {.count = 0};
    void *most, *block;
    cache_fill(&entries, parent, 0, MIB);
    CHECK_FAILS(loch_alloc(child, 128 * MIB, &block), LIMIT);
    assert_string_equal(loch_error_get()->owner, "request");
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
    assert_int_equal(loch_error_get()->missing_bytes, 96 * MIB);
    assert_int_equal(entries.calls, 0);
    CHECK_OK(loch_alloc(parent, 60 * MIB, &most));
    CHECK_FAILS(loch_alloc(child, 16 * MIB, &block), LIMIT);
    assert_string_equal(loch_error_get()->owner, "server");
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
    assert_int_equal(loch_error_get()->missing_bytes, 12 * MIB);
    assert_int_equal(entries.calls, 1);
    CHECK_OK(loch_free(parent, most));
    cache_end(&entries);
    loch_allocator_release(child);
    pool_end_sim(parent, device);
}

/* --- wrappers --- */

static loch_status forward(void *self, const loch_request *request, void **out)
{
    return loch_allocator_alloc(self, request, out);
}

static loch_status forward_rounded(void *self, const loch_request *request, void **out)
{
    loch_request rounded = *request;
    rounded.bytes = (request->bytes + 4095) & ~(size_t)4095;
    return loch_allocator_alloc(self, &rounded, out);
}

static loch_allocator *wrap(loch_allocator *pool, loch_status (*alloc)(void *, const loch_request *, void **))
{
    const loch_allocator_ops ops = {.size = sizeof ops, .kind = "user", .alloc = alloc};
    loch_allocator *wrapper;
    CHECK_OK(loch_wrapper_create(pool, "user", &ops, pool, &wrapper));
    return wrapper;
}

static void a_wrapper_that_forwards_retries_at_one_level(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *pool = pool_of(device, "p", 4 * MIB), *wrapper = wrap(pool, forward);
    cache entries = {.count = 0};
    void *held = pool_alloc(pool, 3 * MIB), *block;
    loch_request request = {.size = sizeof request, .bytes = 2 * MIB};
    cache_fill(&entries, pool, 0, MIB);
    CHECK_FAILS(loch_allocator_alloc(wrapper, &request, &block), LIMIT);
    assert_int_equal(entries.calls, 1);
    assert_int_equal(pool_stats(pool).failures, 1);
    assert_int_equal(pool_stats(wrapper).failures, 1);
    request.timeout_ns = 50000000;
    const uint64_t start_ns = loch_host_now_ns();
    CHECK_FAILS(loch_allocator_alloc(wrapper, &request, &block), LIMIT);
    assert_true(loch_host_now_ns() - start_ns >= request.timeout_ns);
    const uint64_t waited_ns = pool_stats(pool).waits_ns + pool_stats(wrapper).waits_ns;
    assert_true(waited_ns >= request.timeout_ns);
    assert_int_equal(pool_stats(pool).failures, 2);
    CHECK_OK(loch_free(pool, held));
    cache_end(&entries);
    loch_allocator_release(wrapper);
    pool_end_sim(pool, device);
}

static void a_wrapper_that_changes_the_size_frees(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_of(device, "p", 0), *rounded = wrap(pool, forward_rounded), *limited;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = MIB};
    CHECK_OK(loch_limit_create(rounded, "limited", &options, &limited));
    loch_allocator *const all[] = {rounded, limited};
    for (size_t i = 0; i < 2; i++) {
        void *block = pool_alloc(all[i], 100);
        CHECK_OK(loch_free(all[i], block));
    }
    loch_allocator_release(limited);
    loch_allocator_release(rounded);
    pool_end(pool, device);
}

/* --- waiting --- */

typedef struct tenant {
    loch_allocator *allocator;
    void *block;
    loch_status status;
} tenant;

static void *tenant_free_later(void *user)
{
    tenant *it = user;
    usleep(30000);
    it->status = loch_free(it->allocator, it->block);
    return NULL;
}

/* `holder` has the memory, and a thread that does nothing else frees it while `asker` waits. */
static void wait_for(loch_allocator *holder, loch_allocator *asker)
{
    tenant other = {.allocator = holder, .block = pool_alloc(holder, 6 * MIB)};
    const loch_request request = {.size = sizeof request, .bytes = 6 * MIB, .timeout_ns = 60000000000u};
    pthread_t thread;
    void *block = NULL;
    assert_int_equal(pthread_create(&thread, NULL, tenant_free_later, &other), 0);
    const loch_status status = loch_allocator_alloc(asker, &request, &block);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(status);
    CHECK_OK(other.status);
    CHECK_OK(loch_free(asker, block));
    CHECK_OK(loch_allocator_trim(asker, 0, NULL));
}

static void a_request_waits_for_a_sibling_another_pool_and_itself(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB"), *small = sim_open("sim:8MiB");
    loch_allocator *parent = pool_of(device, "parent", 8 * MIB);
    loch_allocator *a = child_of(parent, "a", 0), *b = child_of(parent, "b", 0);
    wait_for(a, b);
    wait_for(a, a);
    wait_for(parent, b);
    loch_allocator_release(a);
    loch_allocator_release(b);
    pool_end_sim(parent, device);
    a = pool_of(small, "a", 0);
    b = pool_of(small, "b", 0);
    wait_for(a, b);
    loch_allocator_release(b);
    pool_end_sim(a, small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_function_that_evicts_one_entry_is_called_until_it_fits),
        POOL_TEST(a_function_may_evict_from_another_pool),
        POOL_TEST(a_function_may_evict_from_the_source),
        POOL_TEST(a_function_may_evict_from_a_direct_allocator),
        POOL_TEST(a_function_may_free_memory_of_the_device),
        POOL_TEST(a_function_may_keep_contents_elsewhere),
        POOL_TEST(a_scratch_block_is_no_progress),
        POOL_TEST(a_function_that_lies_gets_few_attempts),
        POOL_TEST(a_function_may_remove_itself),
        POOL_TEST(a_function_knows_how_long_the_request_may_wait),
        POOL_TEST(what_fails_in_a_function_is_not_the_request),
        POOL_TEST(a_function_that_lies_in_a_busy_pool_does_not_hold_the_request),
        POOL_TEST(a_deadline_holds_while_others_take_what_functions_free),
        POOL_TEST(a_function_that_takes_again_what_it_frees_ends),
        POOL_TEST(parents_are_asked_for_children),
        POOL_TEST(the_record_names_whose_limit_it_is),
        POOL_TEST(a_wrapper_that_forwards_retries_at_one_level),
        POOL_TEST(a_wrapper_that_changes_the_size_frees),
        POOL_TEST(a_request_waits_for_a_sibling_another_pool_and_itself),
    };
    return cmocka_run_group_tests_name("pressure and waiting", tests, NULL, NULL);
}
