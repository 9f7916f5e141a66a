/* SPDX-License-Identifier: MIT */
/* Freeing by address alone: the outermost allocator that handed the block out gets it back, whatever stands around the
 * memory, on whatever device and from whatever thread; wrong addresses have their statuses; and a wrapper knows its
 * blocks from those of the allocator that it wraps. */
#include "allocators.h"
#include "base/hazard.h"
#include "base/regions.h"
#include "memory/owner.h"
#include "sweep.h"
#include "wrap_fixture.h"
#include <loch/host.h>
#include <sched.h>

static loch_allocator *owner_pool(const test_bed *bed)
{
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(bed->device, "pool", NULL, &pool));
    return pool;
}

static loch_allocator *owner_limit(loch_allocator *wrapped, size_t hard)
{
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = hard};
    loch_allocator *limit;
    CHECK_OK(loch_limit_create(wrapped, "limit", &options, &limit));
    return limit;
}

/* Whether a search for an address asks an allocator because of its memory. */
static bool owner_is_near(const loch_allocator *allocator, const void *address)
{
    void *owners[64];
    bool is_near = false;
    lochi_lock_take(&lochi_regions_lock);
    for (size_t count = lochi_regions_find((uintptr_t)address, owners, 64); count--;)
        is_near |= owners[count] == allocator;
    lochi_lock_drop(&lochi_regions_lock);
    return is_near;
}

/* --- which allocator gets the block --- */

/* The library's allocators are found by their memory, so that their number does not count. */
static void searches_know_the_memory_of_every_allocator(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static const char *const stacks[] = {"pool",        "pool-whole",       "direct",       "user",
                                         "limit/pool",  "tracking/pool",    "redzone/pool", "child-quota",
                                         "child-range", "limit/child-range"};
    loch_allocator *beside = owner_pool(bed);
    void *other = wrap_alloc(beside, 100);
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        loch_allocator *stack;
        CHECK_OK(test_stack_create(bed->device, stacks[i], &stack));
        void *blocks[] = {wrap_alloc(stack, 100), wrap_alloc(stack, 200000)};
        for (size_t at = 0; at < 2; at++) {
            for (loch_allocator *each = stack; each; each = loch_allocator_get_wrapped(each))
                if (strncmp(stacks[i], "redzone", 7) != 0 || each == stack)
                    assert_true(owner_is_near(each, blocks[at]));
            assert_false(owner_is_near(beside, blocks[at]));
            CHECK_OK(loch_address_free(blocks[at]));
        }
        loch_allocator_release(stack);
    }
    assert_true(owner_is_near(beside, other));
    CHECK_OK(loch_free(beside, other));
    loch_allocator_release(beside);
    assert_false(owner_is_near(beside, other));
}

static void many_allocators_have_blocks_in_one_place(void **state)
{
    const test_bed *bed = wrap_bed(state);
    enum { MANY = 200 }; /* more than a search by the index asks */
    loch_allocator *pool = owner_pool(bed), *limits[MANY];
    void *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        limits[i] = owner_limit(pool, 0);
        blocks[i] = wrap_alloc(limits[i], 16);
    }
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(loch_address_free(blocks[i]));
        assert_int_equal(loch_stats_of(pool).blocks, MANY - i - 1);
        CHECK_FAILS(loch_address_free(blocks[i]), DOUBLE_FREE);
        loch_allocator_release(limits[i]);
    }
    loch_allocator_release(pool);
}

static void a_block_of_every_stack_is_freed_by_its_address(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static const char *const stacks[] = {"pool",
                                         "pool-whole",
                                         "direct",
                                         "direct-deferred",
                                         "user",
                                         "limit/pool",
                                         "limit/direct",
                                         "tracking/pool",
                                         "redzone/pool",
                                         "wrapper/user",
                                         "wrapper/pool",
                                         "logging/pool",
                                         "locked/pool",
                                         "child-quota",
                                         "child-range",
                                         "limit/child-quota",
                                         "locked/user-unsafe",
                                         "fault/direct",
                                         "redzone/limit/pool",
                                         "tracking/limit/redzone/direct"};
    loch_allocator *beside = owner_pool(bed); /* another one, with a block of its own */
    void *other = wrap_alloc(beside, 100);
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        loch_allocator *stack;
        CHECK_OK(test_stack_create(bed->device, stacks[i], &stack));
        void *small = wrap_alloc(stack, 100), *large = wrap_alloc(stack, 200000);
        CHECK_FAILS(loch_address_free((char *)large + 64), INTERIOR);
        CHECK_OK(loch_address_free(large));
        CHECK_FAILS(loch_address_free(large), DOUBLE_FREE);
        assert_int_equal(wrap_stats(stack).blocks, 1);
        CHECK_OK(loch_address_free(small));
        assert_int_equal(wrap_stats(stack).blocks, 0);
        loch_allocator_release(stack);
    }
    assert_int_equal(wrap_stats(beside).blocks, 1);
    CHECK_OK(loch_address_free(other));
    loch_allocator_release(beside);
}

/* Blocks of a pool, of two limits around it and of tracking around one of them: each goes back where it came from. */
static void a_block_goes_back_to_the_wrapper_that_it_came_from(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *pool = owner_pool(bed), *tracking;
    loch_allocator *left = owner_limit(pool, 1000), *right = owner_limit(pool, 1000);
    CHECK_OK(loch_tracking_create(left, "tracking", NULL, &tracking));
    loch_allocator *all[] = {pool, left, right, tracking};
    void *blocks[4][2];
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 2; j++)
            blocks[i][j] = wrap_alloc(all[i], 200);
    CHECK_FAILS(loch_alloc(left, 300, &(void *){NULL}), LIMIT); /* tracking's blocks are the left one's, too */
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_address_free(blocks[i][0]));
    assert_int_equal(wrap_stats(tracking).blocks, 1);
    assert_int_equal(wrap_stats(pool).blocks, 4);
    void *again = wrap_alloc(left, 600); /* two blocks are left, one of them tracked */
    CHECK_FAILS(loch_alloc(left, 1, &(void *){NULL}), LIMIT);
    CHECK_FAILS(loch_alloc(right, 801, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_address_free(again));
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_address_free(blocks[i][1]));
    for (size_t i = 4; i--;)
        loch_allocator_release(all[i]);
}

/* A wrapper refuses blocks that it did not hand out: its count of bytes cannot be lowered by them. */
static void a_wrapper_knows_its_own(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *pool = owner_pool(bed), *limit = owner_limit(pool, 1000);
    void *mine = wrap_alloc(limit, 1000), *foreign = wrap_alloc(pool, 600);
    CHECK_FAILS(loch_free(limit, foreign), FOREIGN);
    CHECK_FAILS(loch_alloc(limit, 1, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_free(pool, foreign));
    CHECK_OK(loch_free(limit, mine));
    CHECK_FAILS(loch_free(limit, mine), DOUBLE_FREE);
    loch_allocator_release(pool);
    loch_allocator_release(limit);
}

static void a_block_of_a_session_goes_back_to_it(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *pool = owner_pool(bed), *limit = owner_limit(pool, 1000);
    loch_session *session;
    size_t bytes = 0;
    CHECK_OK(loch_session_begin(limit, "request", &session));
    void *a = wrap_alloc(loch_session_get_allocator(session), 300);
    void *b = wrap_alloc(loch_session_get_allocator(session), 300);
    void *promoted = wrap_alloc(loch_session_get_allocator(session), 200);
    CHECK_OK(loch_session_enter(session));
    void *c = wrap_alloc(limit, 100);
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_address_free(a));
    CHECK_OK(loch_address_free(c));
    CHECK_OK(loch_session_promote(session, promoted));
    loch_session_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_session_get_stats(session, &stats));
    assert_int_equal(stats.blocks, 1);
    CHECK_OK(loch_session_end(session, NULL, &bytes));
    assert_int_equal(bytes, 300);
    CHECK_FAILS(loch_address_free(b), DOUBLE_FREE);
    CHECK_OK(loch_address_free(promoted));
    assert_int_equal(wrap_stats(pool).blocks, 0);
    loch_allocator_release(limit);
    loch_allocator_release(pool);
}

static void a_block_of_a_default_allocator_goes_back_to_it(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *shared, *scoped;
    CHECK_OK(loch_device_acquire_allocator(bed->device, (loch_attributes){0}, LOCH_FALLBACK_NONE, &shared));
    CHECK_OK(loch_device_acquire_allocator(bed->device, (loch_attributes){.scope = 7}, LOCH_FALLBACK_NONE, &scoped));
    void *a = wrap_alloc(shared, 5000), *b = wrap_alloc(scoped, 5000);
    CHECK_OK(loch_address_free(a));
    assert_int_equal(wrap_stats(scoped).blocks, 1);
    CHECK_OK(loch_address_free(b));
    assert_int_equal(wrap_stats(scoped).blocks, 0);
    loch_allocator_release(shared);
    loch_allocator_release(scoped);
    CHECK_OK(loch_device_set_allocator(bed->device, NULL));
}

/* The block is all that keeps its allocators. */
static void the_last_block_ends_its_allocators(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *pool = owner_pool(bed), *limit = owner_limit(pool, 0);
    void *block = wrap_alloc(limit, 5000);
    loch_allocator_release(pool);
    loch_allocator_release(limit);
    CHECK_OK(loch_address_free(block));
    /* no allocator is left that has recorded it; the bed counts what is left */
    CHECK_FAILS(loch_address_free(block), FOREIGN);
}

/* --- addresses of no allocator, or of two --- */

static void bad_addresses_have_statuses_of_their_own(void **state)
{
    const test_bed *bed = wrap_bed(state);
    int here = 0;
    CHECK_OK(loch_address_free(NULL));
    CHECK_FAILS(loch_address_free(&here), FOREIGN);
    CHECK_FAILS(loch_address_free((void *)UINTPTR_MAX), FOREIGN);
    void *raw = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096); /* a driver's block, and no allocator's */
    CHECK_FAILS(loch_address_free(raw), FOREIGN);
    CHECK_OK(loch_raw_free(raw));
}

/* Cuts up one block of another allocator. */
typedef struct arena {
    char *block;
    size_t used;
} arena;

static loch_status arena_alloc(void *self, const loch_request *request, void **out)
{
    arena *cut = self;
    *out = cut->block + cut->used;
    cut->used += (request->bytes + 255) & ~(size_t)255;
    return LOCH_OK;
}

static loch_status arena_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    (void)self, (void)address, (void)bytes, (void)stream;
    return LOCH_OK;
}

static void an_address_that_two_allocators_know_is_refused(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const loch_allocator_ops ops = {.size = sizeof ops,
                                    .kind = "arena",
                                    .traits = LOCH_TRAIT_THREAD_SAFE,
                                    .alloc = arena_alloc,
                                    .free = arena_free};
    loch_allocator *pool = owner_pool(bed), *allocator;
    arena cut = {.block = wrap_alloc(pool, 100000)};
    CHECK_OK(loch_allocator_create(bed->device, "arena", &ops, &cut, &allocator));
    void *first = wrap_alloc(allocator, 100), *second = wrap_alloc(allocator, 100);
    assert_ptr_equal(first, cut.block);
    CHECK_FAILS(loch_address_free(first), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "\"pool\" and \"arena\""));
    CHECK_OK(loch_address_free(second)); /* inside the pool's block, and the start of the arena's */
    CHECK_OK(loch_free(allocator, first));
    CHECK_OK(loch_address_free(cut.block));
    loch_allocator_release(allocator);
    loch_allocator_release(pool);
}

/* --- threads --- */

#define THREADS 4
#define ROUNDS 200

typedef struct shared_work {
    loch_device *device;
    _Atomic(void *) handed[THREADS];
} shared_work;

/* Makes allocators and ends them while others ask, and frees what another thread allocated. */
static void *thread_runs(void *user)
{
    shared_work *work = user;
    for (unsigned i = 0; i < ROUNDS; i++) {
        loch_allocator *pool, *limit;
        void *block;
        CHECK_OK(loch_pool_create(work->device, "own", NULL, &pool));
        CHECK_OK(loch_limit_create(pool, NULL, NULL, &limit));
        CHECK_OK(loch_alloc(limit, 1000 + i, &block));
        loch_allocator_release(limit);
        loch_allocator_release(pool);
        void *other = atomic_exchange(&work->handed[i % THREADS], block);
        CHECK_OK(loch_address_free(other));
    }
    return NULL;
}

static void any_thread_frees_by_address(void **state)
{
    const test_bed *bed = wrap_bed(state);
    shared_work work = {.device = bed->device};
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_runs, &work), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_OK(loch_address_free(work.handed[i]));
}

static void *thread_frees(void *address)
{
    return loch_address_free(address) == LOCH_OK ? address : NULL;
}

/* An allocator that is not thread safe and knows its blocks itself is asked by its own thread alone. */
static void an_unsafe_allocator_is_asked_by_its_own_thread_alone(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *allocator;
    CHECK_OK(test_stack_create(bed->device, "user-full", &allocator));
    const bool is_safe = loch_allocator_get_traits(allocator) & LOCH_TRAIT_THREAD_SAFE;
    void *block = wrap_alloc(allocator, 100), *freed;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, thread_frees, block), 0);
    pthread_join(thread, &freed);
    assert_int_equal(freed != NULL, is_safe);
    if (!freed) CHECK_OK(loch_address_free(block));
    loch_allocator_release(allocator);
}

/* Two threads of the shared slot, while other threads hold all other slots. */
typedef struct crowded {
    loch_allocator *allocator;
    pthread_barrier_t slots_taken, end;
    atomic_bool has_entered, is_removing, has_left;
    bool are_shared[2]; /* whether the two threads have the shared slot */
    bool has_waited;
} crowded;

static void *thread_holds_a_slot(void *user)
{
    crowded *work = user;
    (void)lochi_thread_slot();
    pthread_barrier_wait(&work->slots_taken);
    pthread_barrier_wait(&work->end);
    return NULL;
}

/* Stays in the allocator for a while after the other thread has begun to remove the allocator. */
static void *thread_stays(void *user)
{
    crowded *work = user;
    work->are_shared[0] = lochi_thread_slot() == LOCHI_SLOT_SHARED;
    const uint32_t mark = lochi_hazard_enter(work->allocator);
    atomic_store(&work->has_entered, true);
    while (!atomic_load(&work->is_removing))
        sched_yield();
    const uint64_t until_ns = loch_host_now_ns() + 50000000;
    while (loch_host_now_ns() < until_ns)
        sched_yield();
    atomic_store(&work->has_left, true);
    lochi_hazard_leave(mark);
    return NULL;
}

static void *thread_removes(void *user)
{
    crowded *work = user;
    work->are_shared[1] = lochi_thread_slot() == LOCHI_SLOT_SHARED;
    while (!atomic_load(&work->has_entered))
        sched_yield();
    atomic_store(&work->is_removing, true);
    lochi_owner_remove(work->allocator);
    work->has_waited = atomic_load(&work->has_left);
    lochi_owner_add(work->allocator);
    return NULL;
}

/* An allocator that leaves the table waits for threads of the shared slot too, without a mark of its own. */
static void removing_waits_for_threads_without_slots_of_their_own(void **state)
{
    const test_bed *bed = wrap_bed(state);
    enum { COUNT = LOCHI_SLOT_SHARED };
    static pthread_t holders[COUNT];
    pthread_t stays, removes;
    pthread_attr_t attributes;
    crowded work = {.allocator = owner_pool(bed)};
    assert_int_equal(pthread_barrier_init(&work.slots_taken, NULL, COUNT + 1), 0);
    assert_int_equal(pthread_barrier_init(&work.end, NULL, COUNT + 1), 0);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 256 * TEST_KIB), 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(pthread_create(&holders[i], &attributes, thread_holds_a_slot, &work), 0);
    pthread_barrier_wait(&work.slots_taken);
    assert_int_equal(pthread_create(&stays, &attributes, thread_stays, &work), 0);
    assert_int_equal(pthread_create(&removes, &attributes, thread_removes, &work), 0);
    pthread_join(stays, NULL);
    pthread_join(removes, NULL);
    pthread_barrier_wait(&work.end);
    for (size_t i = 0; i < COUNT; i++)
        pthread_join(holders[i], NULL);
    pthread_attr_destroy(&attributes);
    pthread_barrier_destroy(&work.slots_taken);
    pthread_barrier_destroy(&work.end);
    loch_allocator_release(work.allocator);
    assert_true(work.are_shared[0] && work.are_shared[1]);
    assert_true(work.has_waited);
}

/* --- failing host memory: a free needs none --- */

static loch_status scenario(const void *user)
{
    const test_bed *bed = user;
    loch_allocator *pool = NULL, *limit = NULL;
    void *a = NULL, *b = NULL;
    loch_status status = loch_pool_create(bed->device, NULL, NULL, &pool);
    if (status == LOCH_OK) status = loch_limit_create(pool, NULL, NULL, &limit);
    if (status == LOCH_OK) status = loch_alloc(limit, 600, &a);
    if (status == LOCH_OK) status = loch_alloc(pool, 40000, &b);
    TEST_BACK(loch_address_free(a));
    TEST_BACK(loch_address_free(b));
    loch_allocator_release(limit);
    loch_allocator_release(pool);
    return status;
}

static void a_free_by_address_needs_no_host_memory(void **state)
{
    test_host_sweep(scenario, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searches_know_the_memory_of_every_allocator),
        cmocka_unit_test(many_allocators_have_blocks_in_one_place),
        cmocka_unit_test(a_block_of_every_stack_is_freed_by_its_address),
        cmocka_unit_test(a_block_goes_back_to_the_wrapper_that_it_came_from),
        cmocka_unit_test(a_wrapper_knows_its_own),
        cmocka_unit_test(a_block_of_a_session_goes_back_to_it),
        cmocka_unit_test(a_block_of_a_default_allocator_goes_back_to_it),
        cmocka_unit_test(the_last_block_ends_its_allocators),
        cmocka_unit_test(bad_addresses_have_statuses_of_their_own),
        cmocka_unit_test(an_address_that_two_allocators_know_is_refused),
        cmocka_unit_test(any_thread_frees_by_address),
        cmocka_unit_test(an_unsafe_allocator_is_asked_by_its_own_thread_alone),
        cmocka_unit_test(removing_waits_for_threads_without_slots_of_their_own),
        cmocka_unit_test(a_free_by_address_needs_no_host_memory),
    };
    return WRAP_RUN(tests);
}
