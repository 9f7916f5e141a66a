/* SPDX-License-Identifier: MIT */
/* The table of live blocks, with the option "leaks" on. What is printed at the end is tested in
 * tests/environment/test_leaks.c; this program frees all its blocks and prints nothing. */
#include "memory/live/live.h"
#include "memory/live/table.h"
#include "test.h"
#include <pthread.h>

static loch_device *cpu;

static int set_up(void **state)
{
    (void)state;
    CHECK_OK(loch_option_set("leaks", "on"));
    CHECK_OK(loch_device_open("cpu", &cpu));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loch_device_release(cpu);
    return 0;
}

__attribute__((noinline, noclone)) static void *allocate(loch_allocator *allocator, size_t bytes)
{
    void *block;
    CHECK_OK(loch_alloc(allocator, bytes, &block));
    __asm__ volatile("" ::: "memory");
    return block;
}

/* Returns whether a stack has a frame in allocate(). */
static bool is_from_here(const lochi_live_stack *stack)
{
    for (uint32_t i = 0; stack && i < stack->count; i++)
        if (stack->frames[i] - (uintptr_t)allocate < 256) return true;
    return false;
}

static void the_stack_of_a_live_block_is_found(void **state)
{
    (void)state;
    loch_allocator *pool, *limit, *direct;
    CHECK_OK(loch_pool_create(cpu, "pool", NULL, &pool));
    CHECK_OK(loch_direct_create(cpu, "direct", NULL, &direct));
    CHECK_OK(loch_limit_create(pool, "limit", NULL, &limit));
    loch_allocator *const all[] = {pool, limit, direct};
    const size_t before = lochi_live_table_count();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *small = allocate(all[i], 100), *large = allocate(all[i], 3 * TEST_MIB);
        assert_int_equal(lochi_live_table_count(), before + 2);
        assert_true(is_from_here(lochi_live_find(all[i], small)));
        assert_ptr_not_equal(lochi_live_find(all[i], small), lochi_live_find(all[i], large));
        assert_null(lochi_live_find(all[i], (char *)small + 8));
        assert_null(lochi_live_find(all[i == 2 ? 0 : 2], small));
        CHECK_OK(loch_free(all[i], small));
        assert_null(lochi_live_find(all[i], small));
        CHECK_FAILS_SET(loch_free(all[i], small), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
        CHECK_OK(loch_free(all[i], large));
        assert_int_equal(lochi_live_table_count(), before);
    }
    assert_null(lochi_live_find(NULL, &cpu));
    assert_null(lochi_live_find(pool, NULL));
    loch_allocator_release(limit);
    loch_allocator_release(pool);
    loch_allocator_release(direct);
}

static void one_call_site_has_one_stack(void **state)
{
    (void)state;
    loch_allocator *pool;
    void *blocks[100];
    CHECK_OK(loch_pool_create(cpu, "pool", NULL, &pool));
    for (size_t i = 0; i < 100; i++)
        blocks[i] = allocate(pool, 100);
    for (size_t i = 1; i < 100; i++)
        assert_ptr_equal(lochi_live_find(pool, blocks[i]), lochi_live_find(pool, blocks[0]));
    for (size_t i = 0; i < 100; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    loch_allocator_release(pool);
}

static void hidden_blocks_are_not_listed(void **state)
{
    (void)state;
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(cpu, "pool", NULL, &pool));
    const size_t before = lochi_live_table_count();
    lochi_live_hide();
    lochi_live_hide();
    void *first = allocate(pool, 100);
    lochi_live_show();
    void *second = allocate(pool, 100);
    lochi_live_show();
    assert_int_equal(lochi_live_table_count(), before);
    void *third = allocate(pool, 100);
    assert_int_equal(lochi_live_table_count(), before + 1);
    lochi_live_forget(pool, third);
    assert_int_equal(lochi_live_table_count(), before);
    CHECK_OK(loch_free(pool, first));
    CHECK_OK(loch_free(pool, second));
    CHECK_OK(loch_free(pool, third));
    assert_int_equal(lochi_live_table_count(), before);
    loch_allocator_release(pool);
}

/* The table alone, against an array: chains of blocks whose places are taken are mended when one leaves. */
static void the_table_has_what_was_put_in(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static bool is_in[COUNT];
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(cpu, "pool", NULL, &pool)); /* the table is on */
    const size_t before = lochi_live_table_count();
    test_random random = {7};
    size_t live = 0;
    for (size_t round = 0; round < 10 * COUNT; round++) {
        const size_t i = test_random_below(&random, COUNT);
        const loch_allocator *owner = (const loch_allocator *)(uintptr_t)(64 + i % 3 * 8);
        const uintptr_t address = 4096 + i * 16;
        lochi_live_block block = {.address = address, .allocator = owner, .bytes = i}, found;
        assert_int_equal(lochi_live_table_find(owner, address, &found), is_in[i]);
        if (is_in[i]) {
            assert_true(lochi_live_table_take(owner, address, &found));
            assert_int_equal(found.bytes, i);
            live--;
        } else {
            lochi_live_table_put(&block);
            lochi_live_table_put(&block); /* replaces itself */
            live++;
        }
        is_in[i] = !is_in[i];
    }
    assert_int_equal(lochi_live_table_count(), before + live);
    for (size_t i = 0; i < COUNT; i++) {
        const loch_allocator *owner = (const loch_allocator *)(uintptr_t)(64 + i % 3 * 8);
        lochi_live_block found;
        assert_int_equal(lochi_live_table_take(owner, 4096 + i * 16, &found), is_in[i]);
    }
    assert_int_equal(lochi_live_table_count(), before);
    assert_int_equal(lochi_live_table_count_lost(), 0);
    loch_allocator_release(pool);
}

static void *allocate_and_free(void *user)
{
    loch_allocator *pool = user;
    void *blocks[64];
    for (unsigned round = 0; round < 50; round++) {
        for (size_t i = 0; i < 64; i++) {
            blocks[i] = allocate(pool, 100 + i * 100);
            assert_true(is_from_here(lochi_live_find(pool, blocks[i])));
        }
        for (size_t i = 0; i < 64; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
    }
    return NULL;
}

static void threads_share_the_table(void **state)
{
    (void)state;
    loch_allocator *pool;
    pthread_t threads[4];
    CHECK_OK(loch_pool_create(cpu, "pool", NULL, &pool));
    const size_t before = lochi_live_table_count();
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, pool), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(lochi_live_table_count(), before);
    loch_allocator_release(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stack_of_a_live_block_is_found),
        cmocka_unit_test(one_call_site_has_one_stack),
        cmocka_unit_test(hidden_blocks_are_not_listed),
        cmocka_unit_test(the_table_has_what_was_put_in),
        cmocka_unit_test(threads_share_the_table),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
