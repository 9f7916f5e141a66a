/* SPDX-License-Identifier: MIT */
/* Engines: the table of devices, direct memory, peers, summaries. */
#include "memory/allocator_state.h"
#include "engine_fixture.h"

/* Tells whether the timeline of an engine records spans of a level. */
static bool records(loch_engine *engine, int level)
{
    const loch_span_options options = {.size = sizeof options, .level = level};
    loch_span span = loch_span_begin(loch_engine_get_timeline(engine), "span", &options);
    const bool is_recorded = span.timeline != NULL;
    loch_span_end(&span);
    return is_recorded;
}

/* --- the table --- */

static void opens_several_devices_at_once(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    assert_int_equal(loch_engine_count(engine), 3);
    assert_string_equal(loch_device_get_name(loch_engine_get_device(engine, LOCH_SEAT(1))), SIM_A);
    assert_ptr_not_equal(loch_engine_get_device(engine, LOCH_SEAT(1)), loch_engine_get_device(engine, LOCH_SEAT(2)));
    for (unsigned i = 0; i < 3; i++) {
        loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(i));
        assert_string_equal(allocator->ops.kind, "pool");
        assert_ptr_equal(loch_allocator_get_device(allocator), loch_engine_get_device(engine, LOCH_SEAT(i)));
        assert_int_equal(loch_workers_get_threads(loch_engine_get_workers(engine, LOCH_SEAT(i))), 1);
        loch_stream *stream;
        CHECK_OK(loch_stream_pool_acquire(loch_engine_get_streams(engine, LOCH_SEAT(i)), &stream));
        assert_ptr_equal(loch_stream_get_device(stream), loch_engine_get_device(engine, LOCH_SEAT(i)));
        CHECK_OK(loch_stream_pool_release(loch_engine_get_streams(engine, LOCH_SEAT(i)), stream));
    }
    end_engine(engine);
}

/* A seat is a number of the table; the driver's own is in the info. */
static void seats_are_not_the_numbers_of_drivers(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    assert_int_equal(info_of(engine, 2).device_index, 7);
    assert_int_equal(info_of(engine, 2).total_bytes, 32 * MIB);
    end_engine(engine);
}

static void seats_that_are_not_there_are_refused(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    loch_engine_info info = {.size = sizeof info};
    assert_null(loch_engine_get_device(engine, LOCH_SEAT(3)));
    assert_null(loch_engine_get_allocator(engine, LOCH_SEAT(3)));
    assert_null(loch_engine_get_workers(engine, LOCH_SEAT(UINT32_MAX)));
    assert_null(loch_engine_get_streams(engine, LOCH_SEAT(3)));
    CHECK_FAILS(loch_engine_get_info(engine, LOCH_SEAT(3), &info), NOT_FOUND);
    CHECK_FAILS(loch_engine_lock(engine, LOCH_SEAT(3)), NOT_FOUND);
    CHECK_FAILS(loch_engine_unlock(engine, LOCH_SEAT(3)), NOT_FOUND);
    assert_false(loch_engine_can_reach(engine, LOCH_SEAT(0), LOCH_SEAT(3)));
    assert_false(loch_engine_can_reach(engine, LOCH_SEAT(3), LOCH_SEAT(0)));
    end_engine(engine);
    assert_int_equal(loch_engine_count(NULL), 0);
    assert_null(loch_engine_get_device(NULL, LOCH_SEAT(0)));
    assert_null(loch_engine_get_timeline(NULL));
}

static void bad_tables_are_refused(void **state)
{
    (void)state;
    loch_engine *engine = TEST_UNTOUCHED;
    const loch_engine_device cpu = device_named("cpu");
    CHECK_FAILS(loch_engine_open(NULL, &engine), INVALID);
    assert_null(engine);
    CHECK_FAILS(try_open(&cpu, 1, NULL), INVALID);
    CHECK_FAILS(try_open(NULL, 1, &engine), INVALID);
    CHECK_FAILS(try_open(&cpu, 0, &engine), INVALID);
    CHECK_FAILS(try_open(&cpu, SIZE_MAX, &engine), INVALID);
    loch_engine_options options = {.size = 0, .devices = &cpu, .devices_count = 1};
    CHECK_FAILS(loch_engine_open(&options, &engine), INVALID);
    options.size = sizeof options;
    options.memory = (loch_engine_memory)2;
    CHECK_FAILS(loch_engine_open(&options, &engine), INVALID);

    loch_engine_device table[] = {cpu, cpu};
    table[1].size = 0;
    CHECK_FAILS(try_open(table, 2, &engine), INVALID);
    expect_sentence("seat 1");
    table[1].size = sizeof table[1] - sizeof(size_t);
    CHECK_FAILS(try_open(table, 2, &engine), INVALID);
    table[0].size = 0;
    CHECK_FAILS(try_open(table, 2, &engine), INVALID);
    assert_null(engine);
}

static void bad_names_of_devices_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned expected;
    } cases[] = {{NULL, TEST_SET(INVALID)},
                 {"", TEST_SET(INVALID)},
                 {"nosuchdriver:1", TEST_SET(NOT_FOUND)},
                 {"sim:banana", TEST_SET(INVALID)},
                 {"cpu:numa9999", TEST_SET(NOT_FOUND) | TEST_SET(INVALID)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const loch_engine_device table[] = {device_named(SIM_A), device_named("cpu"), device_named(cases[i].name)};
        loch_engine *engine = TEST_UNTOUCHED;
        CHECK_FAILS_SET(try_open(table, 3, &engine), cases[i].expected);
        expect_sentence("seat 2: ");
        assert_null(engine);
    }
}

static void bad_numbers_of_threads_and_cpus_are_refused(void **state)
{
    (void)state;
    loch_engine *engine;
    unsigned cpus[] = {1000000};
    loch_engine_device table[] = {device_named(SIM_A), device_named("cpu")};
    table[1].cpus = cpus;
    CHECK_FAILS(try_open(table, 2, &engine), INVALID);
    table[1].cpus_count = 1;
    CHECK_FAILS(try_open(table, 2, &engine), INVALID);
    expect_sentence("seat 1");
    table[1].cpus = NULL;
    CHECK_FAILS(try_open(table, 2, &engine), INVALID);
}

/* The system gives no thread: devices, pools and streams, which are there by then, are undone. */
static void without_threads_an_engine_undoes_what_it_made(void **state)
{
    (void)state;
    pthread_attr_t usual, huge;
    const loch_engine_device table[] = {device_named(SIM_A), device_named("cpu")};
    loch_engine *engine = TEST_UNTOUCHED;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0); /* more than there are addresses */
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    CHECK_FAILS(try_open(table, 2, &engine), LIMIT);
    assert_null(engine);
    expect_sentence("seat 0");
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
    engine = open_engine(table, 2);
    end_engine(engine);
}

/* A program that was compiled with a shorter struct: its entries lie closer together. */
static void tables_of_older_programs_are_read(void **state)
{
    (void)state;
    typedef struct older {
        size_t size;
        const char *name;
        size_t limit_bytes;
    } older;
    const older table[] = {{sizeof(older), "cpu", 3 * MIB}, {sizeof(older), SIM_A, 4 * MIB}};
    loch_engine *engine = open_engine((const loch_engine_device *)(const void *)table, 2);
    assert_int_equal(info_of(engine, 0).limit_bytes, 3 * MIB);
    assert_int_equal(info_of(engine, 1).limit_bytes, 4 * MIB);
    end_engine(engine);
}

static void options_of_pools_threads_and_names_are_taken(void **state)
{
    (void)state;
    const loch_pool_options pool = {
        .size = sizeof pool, .limit_bytes = 1, .idle_bytes = 2 * MIB, .kind = LOCH_MEMORY_PINNED};
    loch_engine_device table[] = {device_named(SIM_A)};
    table[0].pool = &pool;
    table[0].workers = 3;
    const loch_timeline_options timeline = {.size = sizeof timeline, .level = 2};
    const loch_engine_options options = {
        .size = sizeof options, .name = "mine", .devices = table, .devices_count = 1, .timeline = &timeline};
    loch_engine *engine;
    CHECK_OK(loch_engine_open(&options, &engine));
    loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(0));
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(allocator, &info));
    assert_int_equal(info.limit_bytes, 0); /* the table's counts, and has none */
    assert_int_equal(info.idle_bytes, 2 * MIB);
    assert_true(loch_allocator_get_attributes(allocator).bits & LOCH_ATTRIBUTE_ON_HOST);
    assert_non_null(strstr(loch_allocator_get_name(allocator), "mine"));
    assert_int_equal(info_of(engine, 0).workers, 3);
    assert_true(records(engine, 2) && !records(engine, 3));
    end_engine(engine);
    engine = open_three();
    assert_false(records(engine, 0)); /* silent until it is told otherwise */
    end_engine(engine);
}

/* --- direct memory --- */

/* What a program does, whatever memory comes from. */
static void use_seat(loch_engine *engine, unsigned seat)
{
    loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(seat));
    void *block, *more = TEST_UNTOUCHED;
    size_t frozen = 1;
    CHECK_OK(loch_alloc(allocator, 3 * MIB, &block));
    CHECK_FAILS(loch_alloc(allocator, 6 * MIB, &more), LIMIT);
    assert_null(more);
    assert_true(info_of(engine, seat).used_bytes >= 3 * MIB);
    assert_int_equal(info_of(engine, seat).limit_bytes, 8 * MIB);
    CHECK_OK(loch_engine_freeze(engine, 0, &frozen));
    CHECK_OK(loch_free(allocator, block));
}

static void direct_memory_within_the_same_limits(void **state)
{
    (void)state;
    static const char *const values[] = {NULL, "on"};
    for (int by_option = 0; by_option < 2; by_option++) {
        CHECK_OK(loch_option_set("direct_memory", values[by_option]));
        loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A)};
        table[0].limit_bytes = 8 * MIB;
        table[1].limit_fraction = 0.125;
        const loch_engine_options options = {.size = sizeof options,
                                             .devices = table,
                                             .devices_count = 2,
                                             .memory = by_option ? LOCH_ENGINE_POOLS : LOCH_ENGINE_DIRECT};
        loch_engine *engine;
        CHECK_OK(loch_engine_open(&options, &engine));
        for (unsigned i = 0; i < 2; i++) {
            assert_string_equal(loch_engine_get_allocator(engine, LOCH_SEAT(i))->ops.kind, "direct");
            use_seat(engine, i);
        }
        void *block;
        size_t frozen = 1;
        loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(1));
        CHECK_OK(loch_alloc(allocator, MIB, &block));
        CHECK_OK(loch_engine_freeze(engine, 0, &frozen));
        assert_int_equal(frozen, 0); /* nothing moves, so there is nothing to freeze */
        assert_int_equal(test_call_count(loch_allocator_get_device(allocator), "raw_alloc"), 2);
        CHECK_OK(loch_free(allocator, block));
        end_engine(engine);
    }
    CHECK_OK(loch_option_set("direct_memory", NULL));
    loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A)};
    table[0].limit_bytes = 8 * MIB;
    table[1].limit_fraction = 0.125;
    loch_engine *engine = open_engine(table, 2);
    assert_string_equal(loch_engine_get_allocator(engine, LOCH_SEAT(0))->ops.kind, "pool");
    use_seat(engine, 0);
    use_seat(engine, 1);
    end_engine(engine);
}

/* Children of any depth and kind, and those that only their blocks keep. */
static void a_freeze_reaches_children_of_any_depth(void **state)
{
    (void)state;
    loch_tag weights;
    CHECK_OK(loch_tag_create("engine weights", &weights));
    loch_engine *engine = open_three();
    const loch_child_options quota = {.size = sizeof quota, .limit_bytes = 8 * MIB},
                             range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = 4 * MIB};
    loch_allocator *pools[3][3];
    loch_buffer *buffers[3][3];
    for (unsigned i = 0; i < 3; i++) {
        loch_allocator *own = loch_engine_get_allocator(engine, LOCH_SEAT(i));
        const loch_request request = {.size = sizeof request, .tag = weights, .flags = LOCH_ALLOC_MOVABLE};
        CHECK_OK(loch_pool_create_child(own, "child", &quota, &pools[i][0]));
        CHECK_OK(loch_pool_create_child(pools[i][0], "grandchild", &quota, &pools[i][1]));
        CHECK_OK(loch_pool_create_child(own, "range", &range, &pools[i][2]));
        for (unsigned k = 0; k < 3; k++)
            CHECK_OK(loch_buffer_create(pools[i][k], (k + 1) * 100000, &request, &buffers[i][k]));
        loch_allocator_release(pools[i][1]); /* its block keeps it */
    }
    size_t frozen = 0;
    CHECK_OK(loch_engine_freeze(engine, weights, &frozen));
    assert_int_equal(frozen, 3 * 600000);
    CHECK_OK(loch_engine_freeze(engine, 0, &frozen)); /* nothing new */
    assert_int_equal(frozen, 0);
    const loch_sleep_options drop = {.size = sizeof drop, .contents = LOCH_SLEEP_DROP};
    CHECK_OK(loch_pool_sleep(pools[1][0], &drop, NULL));
    CHECK_FAILS(loch_engine_freeze(engine, weights, &frozen), BUSY); /* a child's failure is the engine's */
    assert_non_null(strstr(loch_error_get()->sentence, "seat 1"));
    CHECK_OK(loch_pool_wake(pools[1][0], NULL));
    for (unsigned i = 0; i < 3; i++)
        for (unsigned k = 0; k < 3; k++) {
            if (k != 1) {
                size_t bytes;
                CHECK_OK(loch_pool_unfreeze(pools[i][k], weights, &bytes));
                assert_int_equal(bytes, (k + 1) * 100000);
            }
            loch_buffer_release(buffers[i][k]);
            if (k != 1) loch_allocator_release(pools[i][k]);
        }
    end_engine(engine);
}

static void a_freeze_reaches_the_pools_of_all_seats(void **state)
{
    (void)state;
    loch_tag weights;
    CHECK_OK(loch_tag_create("engine weights", &weights));
    loch_engine *engine = open_three();
    void *blocks[3], *others[3];
    for (unsigned i = 0; i < 3; i++) {
        loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(i));
        const loch_request request = {.size = sizeof request, .bytes = (i + 1) * MIB, .tag = weights};
        CHECK_OK(loch_allocator_alloc(allocator, &request, &blocks[i]));
        CHECK_OK(loch_alloc(allocator, 100000, &others[i]));
    }
    size_t frozen = 0;
    CHECK_OK(loch_engine_freeze(engine, weights, &frozen));
    assert_int_equal(frozen, 6 * MIB);
    CHECK_FAILS(loch_engine_freeze(NULL, 0, &frozen), INVALID);
    for (unsigned i = 0; i < 3; i++) {
        loch_stream_pool_info info = {.size = sizeof info};
        CHECK_OK(loch_stream_pool_get_info(loch_engine_get_streams(engine, LOCH_SEAT(i)), &info));
        assert_int_equal(info.streams_out, 0);
        CHECK_OK(loch_free(loch_engine_get_allocator(engine, LOCH_SEAT(i)), blocks[i]));
        CHECK_OK(loch_free(loch_engine_get_allocator(engine, LOCH_SEAT(i)), others[i]));
    }
    end_engine(engine);
}

/* --- peers --- */

/* Work of seat `from` writes memory of seat `to`. */
static loch_status touch(loch_engine *engine, unsigned from, unsigned to)
{
    void *block;
    loch_stream *stream;
    loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(to));
    CHECK_OK(loch_alloc(allocator, MIB, &block));
    CHECK_OK(loch_stream_create(loch_engine_get_device(engine, LOCH_SEAT(from)), NULL, &stream));
    const loch_sim_range range = {block, MIB};
    const loch_sim_kernel kernel = {.size = sizeof kernel, .writes = &range, .writes_count = 1};
    const loch_status status = loch_sim_launch(stream, &kernel);
    CHECK_OK(loch_stream_sync(stream));
    loch_stream_close(stream);
    CHECK_OK(loch_free(allocator, block));
    return status;
}

static void seats_reach_each_other_where_they_can(void **state)
{
    (void)state;
    static const loch_engine_memory memories[] = {LOCH_ENGINE_POOLS, LOCH_ENGINE_DIRECT};
    for (int m = 0; m < 2; m++) {
        const loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A), device_named(SIM_B),
                                            device_named(SIM_A)};
        const loch_engine_options options = {
            .size = sizeof options, .devices = table, .devices_count = 4, .memory = memories[m]};
        loch_engine *engine;
        loch_error_clear();
        CHECK_OK(loch_engine_open(&options, &engine));
        assert_int_equal(loch_error_get()->status, LOCH_OK); /* that some cannot is no failure */
        for (unsigned from = 0; from < 4; from++)
            for (unsigned to = 0; to < 4; to++)
                assert_int_equal(!loch_engine_can_reach(engine, LOCH_SEAT(from), LOCH_SEAT(to)), !from != !to);
        for (unsigned from = 1; from < 4; from++) /* and it is so, for memory of pools, too */
            for (unsigned to = 1; to < 4; to++)
                CHECK_OK(touch(engine, from, to));
        end_engine(engine);
    }
}

/* --- figures --- */

static void a_summary_has_a_line_for_each_seat(void **state)
{
    (void)state;
    loch_tag tag;
    CHECK_OK(loch_tag_create("engine cache", &tag));
    loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A)};
    table[1].limit_bytes = 12 * MIB;
    const loch_engine_options options = {.size = sizeof options, .name = "shown", .devices = table, .devices_count = 2};
    loch_engine *engine;
    CHECK_OK(loch_engine_open(&options, &engine));
    loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(1));
    const loch_request request = {.size = sizeof request, .bytes = 3 * MIB, .tag = tag};
    void *block, *other;
    CHECK_OK(loch_allocator_alloc(allocator, &request, &block));
    CHECK_OK(loch_alloc(allocator, MIB, &other));
    char text[2000], small[20];
    const size_t length = test_engine_print(engine, text, sizeof text);
    assert_int_equal(length, strlen(text));
    static const char *const parts[] = {"\"shown\"",
                                        "seat 0: cpu",
                                        "seat 1: sim:64MiB",
                                        "limit 12.0 MiB",
                                        "no limit",
                                        "engine cache",
                                        "3.0 MiB in 1 blocks",
                                        "(no tag)",
                                        "1.0 MiB in 1 blocks",
                                        "fragmentation",
                                        "reserved ",
                                        "peak ",
                                        "pools"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text, parts[i])) fail_msg("\"%s\" is not in\n%s", parts[i], text);
    assert_int_equal(test_engine_print(engine, NULL, 0), length);
    assert_int_equal(test_engine_print(engine, small, sizeof small), length);
    assert_int_equal(strlen(small), sizeof small - 1);
    assert_memory_equal(small, text, sizeof small - 1);
    CHECK_OK(loch_free(allocator, block));
    CHECK_OK(loch_free(allocator, other));
    end_engine(engine);
    CHECK_FAILS(loch_engine_print(NULL, text, sizeof text, NULL), INVALID);
    assert_string_equal(text, "");
}

static void a_shorter_struct_gets_the_figures_that_it_knows(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    loch_engine_info info;
    memset(&info, 0x5a, sizeof info);
    info.size = offsetof(loch_engine_info, free_bytes);
    CHECK_OK(loch_engine_get_info(engine, LOCH_SEAT(1), &info));
    assert_int_equal(info.total_bytes, 64 * MIB);
    assert_int_equal(info.free_bytes, (size_t)0x5a5a5a5a5a5a5a5a);
    info.size = 0;
    CHECK_FAILS(loch_engine_get_info(engine, LOCH_SEAT(1), &info), INVALID);
    CHECK_FAILS(loch_engine_get_info(engine, LOCH_SEAT(1), NULL), INVALID);
    end_engine(engine);
}

/* Devices that NCCL does not know: the answer is the same every time, and the engine goes on. */
static void communicators_are_refused_where_there_are_none(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    loch_nccl *nccl = TEST_UNTOUCHED;
    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(loch_engine_require_nccl(engine, &nccl), UNSUPPORTED);
        assert_null(nccl);
    }
    CHECK_FAILS(loch_engine_require_nccl(engine, NULL), INVALID);
    CHECK_FAILS(loch_engine_require_nccl(NULL, &nccl), INVALID);
    end_engine(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_several_devices_at_once),
        TEST(seats_are_not_the_numbers_of_drivers),
        TEST(seats_that_are_not_there_are_refused),
        TEST(bad_tables_are_refused),
        TEST(bad_names_of_devices_are_refused),
        TEST(bad_numbers_of_threads_and_cpus_are_refused),
        TEST(without_threads_an_engine_undoes_what_it_made),
        TEST(tables_of_older_programs_are_read),
        TEST(options_of_pools_threads_and_names_are_taken),
        TEST(direct_memory_within_the_same_limits),
        TEST(a_freeze_reaches_the_pools_of_all_seats),
        TEST(a_freeze_reaches_children_of_any_depth),
        TEST(seats_reach_each_other_where_they_can),
        TEST(a_summary_has_a_line_for_each_seat),
        TEST(a_shorter_struct_gets_the_figures_that_it_knows),
        TEST(communicators_are_refused_where_there_are_none),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
