/* SPDX-License-Identifier: MIT */
/* Sleeping pools whose memory graphs use: after the wake all memory of the graphs is mapped at its address, also memory
 * that is free, and a launch gives the same contents. */
#include "graph_fixture.h"
#include "memory/pool/heap/cells.h"

#define MIB TEST_MIB
#define KIB TEST_KIB
#define SIM "sim:256MiB,granule=64KiB,backed"

static const char *const devices[] = {SIM, "sim:256MiB,granule=2MiB,backed", SIM ",alias=off",
                                      SIM ",clock=stepped,lag=1000"};
#define DEVICES (sizeof devices / sizeof *devices)

static const loch_pool_options shared = {.size = sizeof shared, .captures = LOCH_POOL_CAPTURES_SHARED};
static const size_t sizes[] = {700, 40000, 3 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

static loch_tag red;

static size_t put_to_sleep(loch_allocator *pool, loch_sleep_contents contents, loch_tag tag)
{
    const loch_sleep_options options = {.size = sizeof options, .contents = contents, .tag = tag};
    size_t released;
    CHECK_OK(loch_pool_sleep(pool, &options, &released));
    pool_expect_whole(pool);
    return released;
}

static size_t wake(loch_allocator *pool)
{
    size_t restored;
    CHECK_OK(loch_pool_wake(pool, &restored));
    pool_expect_whole(pool);
    assert_int_equal(pool_info(pool).asleep_bytes, 0);
    return restored;
}

/* Tells whether an address has memory. */
static bool is_mapped(loch_allocator *allocator, const void *address)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    lochi_lock_take(&pool->lock);
    const pool_handle *handle = lochi_pool_find_handle(pool, (uintptr_t)address);
    const bool has_memory = handle && handle->handle;
    lochi_lock_drop(&pool->lock);
    return has_memory;
}

/* The pool holds nothing while it sleeps; then the graph finds its memory, and free memory serves its own stream. */
static void graphs_run_after_a_sleep(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (size_t s = 0; s < SIZES; s++)
            for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_FILE; contents++) {
                graph_rig rig = graph_open(devices[d], &shared, sizes[s]);
                graph_put(&rig, 1);
                for (uint64_t round = 0; round < 2; round++) {
                    graph_run(&rig, 1 + round);
                    const size_t reserved = pool_info(rig.pool).reserved_bytes;
                    assert_int_equal(put_to_sleep(rig.pool, contents, 0), reserved);
                    assert_int_equal(pool_info(rig.pool).reserved_bytes, 0);
                    assert_int_equal(sim_stats(rig.device).physical_bytes, 0);
                    assert_int_not_equal(loch_sim_graph_launch(rig.graph, rig.a), LOCH_OK);
                    void *none = TEST_UNTOUCHED;
                    CHECK_FAILS(pool_try_alloc(rig.pool, 100, 0, rig.a, &none), BUSY);
                    wake(rig.pool);
                    assert_int_equal(pool_info(rig.pool).reserved_bytes, reserved);
                    if (!graph_has(&rig, rig.output, 1 + round)) fail_msg("the output is lost");
                    graph_run(&rig, 1 + round);
                    graph_put(&rig, 2 + round);
                    graph_run(&rig, 2 + round);
                    char *again[GRAPH_LINKS], *other = pool_alloc_on(rig.pool, rig.bytes, rig.b);
                    for (size_t i = 0; i < GRAPH_LINKS; i++) {
                        again[i] = pool_alloc_on(rig.pool, rig.bytes, rig.a);
                        assert_ptr_not_equal(again[i], rig.other);
                        assert_ptr_not_equal(other, rig.links[i]);
                    }
                    for (size_t i = 0; i < GRAPH_LINKS; i++)
                        CHECK_OK(loch_free(rig.pool, again[i]));
                    CHECK_OK(loch_free(rig.pool, other));
                    assert_int_equal(pool_info(rig.pool).reserved_bytes, reserved);
                }
                graph_close(&rig);
            }
}

/* No live block is left: free memory comes back nevertheless. */
static void free_memory_comes_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        graph_rig rig = graph_open(devices[d], &shared, MIB);
        CHECK_OK(loch_free(rig.pool, rig.input));
        const size_t reserved = pool_info(rig.pool).reserved_bytes;
        put_to_sleep(rig.pool, LOCH_SLEEP_HOST, 0);
        CHECK_OK(loch_free(rig.pool, rig.output)); /* while it sleeps */
        for (size_t i = 0; i < GRAPH_LINKS; i++)
            assert_false(is_mapped(rig.pool, rig.links[i]));
        const loch_sim_fault fault = {.size = sizeof fault, .call = "fill"};
        CHECK_OK(loch_sim_set_fault(rig.device, &fault));
        CHECK_FAILS(loch_pool_wake(rig.pool, NULL), DRIVER); /* it is filled: new memory may have old contents */
        assert_int_equal(wake(rig.pool), 0);
        assert_int_equal(pool_info(rig.pool).reserved_bytes, reserved);
        for (size_t i = 0; i < GRAPH_LINKS; i++) {
            static const char zeros[MIB];
            assert_true(is_mapped(rig.pool, rig.links[i]));
            assert_memory_equal(rig.links[i], zeros, MIB);
        }
        CHECK_OK(loch_sim_graph_launch(rig.graph, rig.a));
        CHECK_OK(loch_device_sync(rig.device));
        rig.input = pool_alloc_on(rig.pool, MIB, rig.a);
        rig.output = pool_alloc_on(rig.pool, MIB, rig.a);
        graph_close(&rig);
    }
}

/* Memory of captures that were not released, in an ordinary pool. */
static void memory_of_captures_sleeps(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (int is_released = 0; is_released < 2; is_released++) {
            graph_rig rig = graph_open(devices[d], NULL, MIB);
            char *plain = pool_alloc_on(rig.pool, 5 * MIB, rig.b);
            CHECK_OK(loch_free(rig.pool, pool_alloc_on(rig.pool, 9 * MIB, rig.b)));
            graph_put(&rig, 7);
            graph_run(&rig, 7);
            put_to_sleep(rig.pool, LOCH_SLEEP_HOST, 0);
            assert_int_equal(sim_stats(rig.device).physical_bytes, 0);
            if (is_released) { /* no graph is launched any more: only live blocks come back */
                CHECK_OK(loch_pool_release_capture(rig.pool, rig.capture));
                pool_expect_whole(rig.pool);
                loch_sim_graph_destroy(rig.graph);
                rig.graph = NULL;
            }
            wake(rig.pool);
            for (size_t i = 0; i < GRAPH_LINKS; i++)
                assert_true(is_mapped(rig.pool, rig.links[i]) || is_released);
            if (!graph_has(&rig, rig.output, 7)) fail_msg("the output is lost");
            if (!is_released) graph_run(&rig, 7);
            CHECK_OK(loch_free(rig.pool, plain));
            (void)pool_trim(rig.pool, 0);
            if (!is_released) graph_run(&rig, 7);
            graph_close(&rig);
        }
}

/* One tag sleeps: free memory of graphs stays, because graphs of other tags use it. */
static void a_tag_sleeps_beside_graphs(void **state)
{
    (void)state;
    graph_rig rig = graph_open(SIM, &shared, MIB);
    const loch_request request = {.size = sizeof request, .bytes = 20 * MIB, .tag = red, .stream = rig.a};
    void *weights;
    CHECK_OK(loch_allocator_alloc(rig.pool, &request, &weights));
    graph_put(&rig, 3);
    assert_true(put_to_sleep(rig.pool, LOCH_SLEEP_HOST, red) >= 15 * MIB);
    graph_run(&rig, 3);
    CHECK_OK(loch_free(rig.pool, weights));
    graph_run(&rig, 3);
    wake(rig.pool);
    graph_run(&rig, 3);
    graph_close(&rig);
}

/* Pools of graphs may end while they sleep, and lend their memory to their family. */
static void a_sleeping_child_of_graphs_lends_and_ends(void **state)
{
    (void)state;
    for (int is_awake = 0; is_awake < 2; is_awake++) {
        loch_device *device = sim_open(SIM);
        const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = 32 * MIB};
        loch_allocator *parent = pool_make(device, &limited);
        const loch_child_options options = {.size = sizeof options, .pool = &shared};
        graph_rig rig = {.device = device};
        CHECK_OK(loch_pool_create_child(parent, "graphs", &options, &rig.pool));
        rig.a = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        rig.b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        graph_capture(&rig, 2 * MIB);
        graph_put(&rig, 5);
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS_SET(pool_try_alloc(parent, 24 * MIB, 0, NULL, &none), POOL_SHORT);
        put_to_sleep(rig.pool, LOCH_SLEEP_PINNED, 0);
        void *theirs = pool_alloc(parent, 24 * MIB);
        CHECK_FAILS(loch_pool_wake(rig.pool, NULL), LIMIT);
        pool_expect_whole(rig.pool);
        CHECK_OK(loch_free(parent, theirs));
        if (is_awake) {
            wake(rig.pool);
            graph_run(&rig, 5);
        }
        loch_allocator_release(rig.pool); /* while blocks are live */
        CHECK_OK(loch_free(rig.pool, rig.input));
        CHECK_OK(loch_free(rig.pool, rig.output));
        loch_sim_graph_destroy(rig.graph);
        loch_stream_close(rig.a);
        loch_stream_close(rig.b);
        test_end_defaults();
        pool_end_sim(parent, device);
    }
}

/* A use on a further stream that was captured does not keep the pool awake. */
static void uses_in_captures_end_before_the_sleep(void **state)
{
    (void)state;
    graph_rig rig = graph_open(SIM ",clock=stepped,lag=1000", &shared, MIB);
    CHECK_OK(loch_sim_capture_begin(rig.a));
    pool_order(rig.device, rig.a, rig.b);
    char *block = pool_alloc_on(rig.pool, MIB, rig.a);
    CHECK_OK(sim_writes(rig.b, block, MIB));
    CHECK_OK(loch_allocator_record_use(rig.pool, block, rig.b));
    CHECK_OK(loch_free(rig.pool, block));
    pool_order(rig.device, rig.b, rig.a);
    loch_sim_graph *second;
    CHECK_OK(loch_sim_capture_end(rig.a, &second));
    CHECK_OK(loch_sim_graph_launch(second, rig.a));
    graph_put(&rig, 9);
    put_to_sleep(rig.pool, LOCH_SLEEP_HOST, 0);
    wake(rig.pool);
    assert_int_equal(pool_info(rig.pool).waiting_bytes, 0);
    CHECK_OK(loch_sim_graph_launch(second, rig.a));
    graph_run(&rig, 9);
    loch_sim_graph_destroy(second);
    graph_close(&rig);
}

int main(void)
{
    if (loch_tag_create("red", &red) != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        POOL_TEST(graphs_run_after_a_sleep),
        POOL_TEST(free_memory_comes_back),
        POOL_TEST(memory_of_captures_sleeps),
        POOL_TEST(a_tag_sleeps_beside_graphs),
        POOL_TEST(a_sleeping_child_of_graphs_lends_and_ends),
        POOL_TEST(uses_in_captures_end_before_the_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
