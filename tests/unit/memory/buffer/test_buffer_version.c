/* SPDX-License-Identifier: MIT */
/* The number of a buffer's contents, which every write raises, and what stands on it inside: watches, which know of
 * writes and of the end, and meters, which count bytes until they go. */
#include "memory/buffer/buffer.h"
#include "tensor_fixture.h"
#include <pthread.h>

/* `call` raises the number of `buffer`, or leaves it. */
#define EXPECT_RAISED(buffer, call)                                                                                    \
    do {                                                                                                               \
        const uint64_t version = loch_buffer_get_version(buffer);                                                      \
        call;                                                                                                          \
        assert_true(loch_buffer_get_version(buffer) > version);                                                        \
    } while (0)

#define EXPECT_LEFT(buffer, call)                                                                                      \
    do {                                                                                                               \
        const uint64_t version = loch_buffer_get_version(buffer);                                                      \
        call;                                                                                                          \
        assert_int_equal(loch_buffer_get_version(buffer), version);                                                    \
    } while (0)

static const char *const grounds[] = {"cpu", "sim:64MiB,backed", "sim:64MiB,backed,async=off"};

#define EACH_GROUND(device)                                                                                            \
    for (size_t ground = 0; ground < sizeof grounds / sizeof *grounds; ground++)                                       \
        for (loch_device *device = sim_open(grounds[ground]); device; loch_device_release(device), device = NULL)

static loch_tensor *tensor_on(loch_device *device, int64_t rows, int64_t columns)
{
    loch_tensor *tensor;
    const loch_tensor_options options = {.size = sizeof options, .device = device, .flags = LOCH_ALLOC_ZEROED};
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(rows, columns), &options, &tensor));
    return tensor;
}

static void writes_to_buffers_raise_the_version(void **state)
{
    (void)state;
    EACH_GROUND(device)
    {
        loch_buffer *a, *b, *part;
        CHECK_OK(loch_buffer_create_for_device(device, 1000, NULL, &a));
        CHECK_OK(loch_buffer_create_for_device(device, 1000, NULL, &b));
        CHECK_OK(loch_buffer_slice(a, 100, 50, &part));
        assert_true(loch_buffer_get_version(a) > 0);
        EXPECT_RAISED(a, loch_buffer_touch(a));
        EXPECT_RAISED(a, loch_buffer_touch(part));
        assert_int_equal(loch_buffer_get_version(a), loch_buffer_get_version(part));
        EXPECT_RAISED(a, CHECK_OK(loch_buffer_fill(part, "x", 1, NULL)));
        EXPECT_RAISED(a, CHECK_OK(loch_buffer_copy(a, b, NULL)));
        EXPECT_LEFT(b, CHECK_OK(loch_buffer_copy(a, b, NULL))); /* only read */
        loch_buffer_release(part);
        EXPECT_RAISED(a, CHECK_OK(loch_buffer_resize(a, 2000, LOCH_CONTENTS_KEEP, NULL)));
        void *block;
        EXPECT_RAISED(a, CHECK_OK(loch_buffer_detach(a, &block)));
        CHECK_OK(loch_free(loch_buffer_get_allocator(a), block));
        loch_buffer_release(a);
        loch_buffer_release(b);
    }
    loch_buffer_touch(NULL);
    assert_int_equal(loch_buffer_get_version(NULL), 0);
}

static void writes_to_tensors_raise_the_version(void **state)
{
    (void)state;
    EACH_GROUND(device)
    {
        float host[6] = {0};
        loch_mapping mapping;
        loch_tensor *a = tensor_on(device, 2, 3), *b = tensor_on(device, 2, 3), *column;
        loch_buffer *buffer = loch_tensor_get_buffer(a);
        CHECK_OK(loch_tensor_index(a, 1, 0, &column));
        EXPECT_RAISED(buffer, CHECK_OK(loch_tensor_copy(a, b, NULL)));
        EXPECT_RAISED(buffer, CHECK_OK(loch_tensor_fill(column, loch_scalar_of(1), NULL)));
        EXPECT_RAISED(buffer, CHECK_OK(loch_tensor_write(a, host, sizeof host, NULL)));
        EXPECT_RAISED(buffer, CHECK_OK(loch_tensor_write_item(a, LOCH_SHAPE(1, 1), loch_scalar_of(2), NULL)));
        for (loch_map_access access = LOCH_MAP_WRITE; access <= LOCH_MAP_READ_WRITE; access++) {
            CHECK_OK(loch_tensor_map(a, access, NULL, &mapping));
            for (size_t i = 0; i < 6; i++)
                ((float *)mapping.address)[i] = 1;
            EXPECT_RAISED(buffer, CHECK_OK(loch_tensor_unmap(&mapping, NULL)));
        }
        loch_tensor_release(column);
        loch_tensor_release(a);
        loch_tensor_release(b);
    }
}

static void reading_leaves_the_version(void **state)
{
    (void)state;
    EACH_GROUND(device)
    {
        float host[6];
        loch_mapping mapping;
        loch_scalar item;
        loch_tensor *a = tensor_on(device, 2, 3), *b;
        const uint64_t before = loch_buffer_get_version(loch_tensor_get_buffer(a));
        CHECK_OK(loch_tensor_read(a, host, sizeof host, NULL));
        CHECK_OK(loch_tensor_read_item(a, LOCH_SHAPE(1, 1), NULL, &item));
        CHECK_OK(loch_tensor_map(a, LOCH_MAP_READ, NULL, &mapping));
        CHECK_OK(loch_tensor_unmap(&mapping, NULL));
        CHECK_OK(loch_tensor_clone(a, NULL, &b));
        /* shared with other libraries, which report their writes */
        if (loch_device_can(device, LOCH_CAN_HOST_ACCESS)) {
            struct DLManagedTensorVersioned *shared;
            loch_tensor *other;
            CHECK_OK(loch_tensor_to_dlpack(a, NULL, &shared));
            CHECK_OK(loch_tensor_from_dlpack(shared, NULL, &other));
            loch_tensor_release(other);
        }
        assert_int_equal(loch_buffer_get_version(loch_tensor_get_buffer(a)), before);
        loch_tensor_release(a);
        loch_tensor_release(b);
    }
}

/* Bytes may have been written before the driver failed. */
static void a_failed_write_raises_the_version(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_tensor *a = tensor_on(device, 2, 3), *b = tensor_on(device, 2, 3);
    const loch_sim_fault fault = {.size = sizeof fault, .call = "copy", .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(device, &fault));
    EXPECT_RAISED(loch_tensor_get_buffer(a), CHECK_FAILS(loch_tensor_copy(a, b, NULL), DRIVER));
    CHECK_OK(loch_sim_set_fault(device, NULL));
    loch_tensor_release(a);
    loch_tensor_release(b);
    loch_device_release(device);
}

/* --- watches --- */

/* A sleep that drops raises the versions of its tag, also of parts and through wrappers; any other leaves them. */
static void a_sleep_that_drops_raises_the_version(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,granule=64KiB");
    loch_allocator *pool, *limited;
    loch_tag weights, caches;
    loch_buffer *kept, *dropped, *part, *plain, *wrapped;
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    CHECK_OK(loch_limit_create(pool, "limit",
                               &(loch_limit_options){.size = sizeof(loch_limit_options), .hard_bytes = TEST_MIB * 16},
                               &limited));
    CHECK_OK(loch_tag_create("version weights", &weights));
    CHECK_OK(loch_tag_create("version caches", &caches));
    const loch_request of_weights = {.size = sizeof of_weights, .tag = weights},
                       of_caches = {.size = sizeof of_caches, .tag = caches, .flags = LOCH_ALLOC_MOVABLE};
    CHECK_OK(loch_buffer_create(pool, TEST_MIB, &of_weights, &kept));
    CHECK_OK(loch_buffer_create(pool, TEST_MIB, &of_caches, &dropped));
    CHECK_OK(loch_buffer_slice(dropped, 0, 4096, &part));
    CHECK_OK(loch_buffer_create(pool, TEST_MIB, NULL, &plain));
    CHECK_OK(loch_buffer_create(limited, TEST_MIB, &of_weights, &wrapped));
    loch_buffer *all[] = {kept, dropped, part, plain, wrapped};
    uint64_t before[5], now[5];
#define VERSIONS(into)                                                                                                 \
    for (size_t i = 0; i < 5; i++)                                                                                     \
    (into)[i] = loch_buffer_get_version(all[i])
    VERSIONS(before);
    loch_sleep_options options = {.size = sizeof options, .tag = caches, .contents = LOCH_SLEEP_HOST};
    CHECK_OK(loch_pool_sleep(pool, &options, NULL));
    CHECK_OK(loch_pool_wake(pool, NULL));
    VERSIONS(now);
    assert_memory_equal(before, now, sizeof now);
    options.contents = LOCH_SLEEP_DROP;
    CHECK_OK(loch_pool_sleep(pool, &options, NULL));
    VERSIONS(now);
    assert_true(now[1] > before[1] && now[2] > before[2] && now[1] == now[2]);
    assert_true(now[0] == before[0] && now[3] == before[3] && now[4] == before[4]);
    CHECK_OK(loch_pool_wake(pool, NULL));
    VERSIONS(before);
    assert_memory_equal(before, now, sizeof now);
    options.tag = 0;
    CHECK_OK(loch_pool_sleep(pool, &options, NULL));
    CHECK_FAILS(loch_pool_sleep(pool, &options, NULL), BUSY); /* one that fails raises nothing */
    VERSIONS(now);
    CHECK_OK(loch_pool_wake(pool, NULL));
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(now[i], before[i] + 1);
#undef VERSIONS
    for (size_t i = 0; i < 5; i++)
        loch_buffer_release(all[i]);
    loch_allocator_release(limited);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void a_watch_knows_of_writes_and_of_the_end(void **state)
{
    (void)state;
    loch_tensor *a = tensor_on(NULL, 2, 3);
    lochi_watch *watch, *again;
    CHECK_OK(lochi_buffer_watch(loch_tensor_get_buffer(a), &watch));
    CHECK_OK(lochi_buffer_watch(loch_tensor_get_buffer(a), &again));
    assert_ptr_equal(watch, again);
    lochi_watch_release(again);
    const uint64_t start = lochi_watch_read(watch), all = lochi_watch_count_changes();
    CHECK_OK(loch_tensor_fill(a, loch_scalar_of(1), NULL));
    assert_true(lochi_watch_read(watch) > start && lochi_watch_count_changes() > all);
    const uint64_t written = lochi_watch_read(watch);
    loch_tensor_release(a);
    assert_true(lochi_watch_read(watch) > written);
    lochi_watch_release(watch);
}

/* For a watcher, a buffer has ended even if its memory still waits for work of another device. */
static void a_watch_does_not_wait_for_work(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped");
    static float host[64];
    loch_tensor *a = tensor_on(device, 8, 8), *b;
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(8, 8), host, NULL, &b));
    lochi_watch *watch;
    CHECK_OK(lochi_buffer_watch(loch_tensor_get_buffer(b), &watch));
    const uint64_t start = lochi_watch_read(watch);
    CHECK_OK(sim_busy(loch_stream_get_default(device), 1000000));
    CHECK_OK(loch_buffer_record_use(loch_tensor_get_buffer(b), loch_stream_get_default(device)));
    size_t waiting;
    loch_tensor_release(b);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_QUEUED, &waiting));
    assert_int_equal(waiting, 1);
    assert_true(lochi_watch_read(watch) > start);
    lochi_watch_release(watch);
    loch_tensor_release(a);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    loch_device_release(device);
}

/* --- meters --- */

static void expect_meter(const lochi_meter *meter, size_t count, size_t used, size_t peak)
{
    const lochi_meter_reading reading = lochi_meter_read(meter);
    assert_int_equal(reading.count, count);
    assert_int_equal(reading.used_bytes, used);
    assert_int_equal(reading.peak_bytes, peak);
}

static void a_meter_follows_memory(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    lochi_meter *meter;
    CHECK_OK(lochi_meter_create(&meter));
    for (uint32_t flags = 0; flags <= LOCH_ALLOC_MOVABLE; flags += LOCH_ALLOC_MOVABLE) {
        loch_buffer *a, *b, *part;
        void *block;
        const loch_request request = {.size = sizeof request, .flags = flags};
        const size_t peak = lochi_meter_read(meter).peak_bytes;
        CHECK_OK(loch_buffer_create(pool, 100000, &request, &a));
        CHECK_OK(loch_buffer_create(pool, 50000, &request, &b));
        expect_meter(meter, 0, 0, peak);
        lochi_buffer_set_meter(a, meter);
        lochi_buffer_set_meter(b, meter);
        expect_meter(meter, 2, 150000, 150000 > peak ? 150000 : peak);
        CHECK_OK(loch_buffer_resize(a, 200000, LOCH_CONTENTS_DROP, NULL));
        expect_meter(meter, 2, 250000, 250000);
        CHECK_OK(loch_buffer_resize(a, 1000, LOCH_CONTENTS_KEEP, NULL));
        expect_meter(meter, 2, 51000, 250000);
        CHECK_OK(loch_buffer_slice(a, 0, 10, &part)); /* a part keeps the memory */
        loch_buffer_release(a);
        expect_meter(meter, 2, 51000, 250000);
        loch_buffer_release(part);
        expect_meter(meter, 1, 50000, 250000);
        CHECK_OK(loch_buffer_detach(b, &block));
        expect_meter(meter, 0, 0, 250000);
        CHECK_OK(loch_free(pool, block));
        CHECK_OK(loch_buffer_resize(b, 70000, LOCH_CONTENTS_DROP, NULL)); /* no meter counts the buffer any more */
        expect_meter(meter, 0, 0, 250000);
        loch_buffer_release(b);
    }
    lochi_meter_release(meter);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void a_meter_outlives_who_made_it(void **state)
{
    (void)state;
    loch_buffer *buffer;
    lochi_meter *meter;
    CHECK_OK(lochi_meter_create(&meter));
    CHECK_OK(loch_buffer_create_for_device(NULL, 1000, NULL, &buffer));
    lochi_buffer_set_meter(buffer, meter);
    lochi_meter_release(meter);
    CHECK_OK(loch_buffer_resize(buffer, 5000, LOCH_CONTENTS_KEEP, NULL));
    loch_buffer_release(buffer);
}

/* --- threads --- */

enum { THREADS = 4, STEPS = 2000 };

typedef struct writer {
    pthread_t thread;
    loch_tensor *part;
} writer;

/* Each writes a part of its own, and watches: the first to come makes the watch. */
static void *writer_run(void *user)
{
    writer *w = user;
    for (int i = 0; i < STEPS; i++) {
        lochi_watch *watch;
        if (lochi_buffer_watch(loch_tensor_get_buffer(w->part), &watch) != LOCH_OK) return w;
        const uint64_t before = lochi_watch_read(watch);
        if (loch_tensor_fill(w->part, loch_scalar_of(i), NULL) != LOCH_OK) return w;
        const bool is_raised = lochi_watch_read(watch) > before;
        lochi_watch_release(watch);
        if (!is_raised) return w;
    }
    return NULL;
}

static void threads_write_and_watch_parts_of_one_buffer(void **state)
{
    (void)state;
    loch_tensor *all = tensor_on(NULL, THREADS, 16);
    const uint64_t before = loch_buffer_get_version(loch_tensor_get_buffer(all));
    writer writers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK_OK(loch_tensor_index(all, 0, i, &writers[i].part));
        assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_run, &writers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(writers[i].thread, &failed), 0);
        assert_null(failed);
        loch_tensor_release(writers[i].part);
    }
    assert_int_equal(loch_buffer_get_version(loch_tensor_get_buffer(all)), before + (uint64_t)THREADS * STEPS);
    loch_tensor_release(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(writes_to_buffers_raise_the_version),
        TENSOR_TEST(writes_to_tensors_raise_the_version),
        TENSOR_TEST(reading_leaves_the_version),
        TENSOR_TEST(a_failed_write_raises_the_version),
        TENSOR_TEST(a_sleep_that_drops_raises_the_version),
        TENSOR_TEST(a_watch_knows_of_writes_and_of_the_end),
        TENSOR_TEST(a_watch_does_not_wait_for_work),
        TENSOR_TEST(a_meter_follows_memory),
        TENSOR_TEST(a_meter_outlives_who_made_it),
        TENSOR_TEST(threads_write_and_watch_parts_of_one_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
