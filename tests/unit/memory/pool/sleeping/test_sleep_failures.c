/* SPDX-License-Identifier: MIT */
/* Pools that sleep and wake when something fails: requests that cannot be, files, full disks, lost devices, and every
 * fault in turn. */
#include "base/sanitize.h"
#include "sleep_fixture.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#if LOCHI_TSAN
#define FAULT_STEP 11 /* slow there, and nothing runs beside the faults */
#else
#define FAULT_STEP 1
#endif

/* --- what cannot be --- */

static void bad_requests_are_refused(void **state)
{
    (void)state;
    bed b = bed_open(SIM, NULL);
    bed_fill(&b);
    loch_sleep_options options = how((loch_sleep_contents)9, 0);
    size_t released = 7;
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, &released), INVALID);
    assert_int_equal(released, 0);
    options = how(LOCH_SLEEP_HOST, LOCH_TAG_COUNT_MAX);
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), INVALID);
    options = how(LOCH_SLEEP_HOST, LOCH_TAG_COUNT_MAX - 1); /* no such tag was created */
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), INVALID);
    options = how(LOCH_SLEEP_FILE, 0);
    options.path = "/no/such/folder/";
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), IO);
    options = how(LOCH_SLEEP_HOST, 0);
    options.path = "x";
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), INVALID);
    options = how(LOCH_SLEEP_HOST, 0);
    options.allocator = b.pool; /* no host memory */
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), INVALID);
    options.allocator = NULL;
    options.size = 1;
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), INVALID);
    CHECK_FAILS(loch_pool_sleep(NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_pool_wake(NULL, NULL), INVALID);
    loch_allocator *direct, *pinned;
    CHECK_OK(loch_direct_create(b.device, "direct", NULL, &direct));
    CHECK_FAILS(loch_pool_sleep(direct, NULL, NULL), INVALID);
    loch_allocator_release(direct);
    const loch_pool_options pinned_options = {.size = sizeof pinned_options, .kind = LOCH_MEMORY_PINNED};
    pinned = pool_make(b.device, &pinned_options);
    CHECK_FAILS(loch_pool_sleep(pinned, NULL, NULL), UNSUPPORTED);
    loch_allocator_release(pinned);
    bed_expect(&b);
    bed_close(&b);
    bed c = bed_open("cpu", NULL);
    bed_take(&c, MIB, 0, NULL);
    options = how(LOCH_SLEEP_HOST, 0);
    options.allocator = c.pool;
    CHECK_FAILS(loch_pool_sleep(c.pool, &options, NULL), INVALID);
    bed_expect(&c);
    bed_close(&c);
}

/* A pool stays awake while a stream is captured, and the capture goes on. Of one tag, memory sleeps beside that of
 * captures. */
static void a_capture_in_progress_keeps_its_pool_awake(void **state)
{
    (void)state;
    bed b = bed_open(SIM, NULL);
    bed_take(&b, 5 * MIB, red, NULL);
    CHECK_OK(loch_sim_capture_begin(b.streams[0]));
    void *captured = pool_alloc_on(b.pool, 3 * MIB, b.streams[0]);
    loch_capture_info info = {.size = sizeof info};
    CHECK_OK(loch_stream_query_capture(b.streams[0], &info));
    const loch_sleep_options options = how(LOCH_SLEEP_HOST, 0), of_tag = how(LOCH_SLEEP_HOST, red);
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), BUSY);
    CHECK_FAILS(loch_pool_sleep(b.pool, &of_tag, NULL), BUSY);
    CHECK_FAILS(loch_pool_release_capture(b.pool, info.id), BUSY);
    pool_expect_whole(b.pool);
    bed_expect(&b);
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_end(b.streams[0], &graph));
    CHECK_OK(loch_sim_capture_begin(b.streams[1])); /* a stream that has nothing in the pool */
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), BUSY);
    loch_sim_graph *other;
    CHECK_OK(loch_sim_capture_end(b.streams[1], &other));
    loch_sim_graph_destroy(other);
    assert_true(put_to_sleep(&b, LOCH_SLEEP_HOST, red) >= 4 * MIB);
    CHECK_OK(loch_sim_graph_launch(graph, b.streams[0]));
    wake(&b);
    CHECK_OK(loch_free(b.pool, captured));
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_pool_release_capture(b.pool, info.id));
    put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
    wake(&b);
    bed_expect(&b);
    bed_close(&b);
}

/* The other model takes the memory: waking fails until it has gone, and says why. */
static void without_memory_to_wake_in_the_pool_sleeps_on(void **state)
{
    (void)state;
    bed b = bed_open("sim:64MiB,granule=64KiB,backed", NULL);
    bed_take(&b, 40 * MIB, 0, NULL);
    put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
    loch_allocator *other = pool_make(b.device, NULL);
    void *theirs = pool_alloc(other, 50 * MIB);
    size_t restored = 7;
    CHECK_FAILS(loch_pool_wake(b.pool, &restored), DEVICE_MEMORY);
    assert_int_equal(restored, 0);
    pool_expect_whole(b.pool);
    assert_int_equal(sim_stats(b.device).physical_bytes, 50 * MIB);
    CHECK_OK(loch_free(other, theirs)); /* the sibling gives it back when it is asked */
    assert_int_equal(wake(&b), 40 * MIB);
    bed_expect(&b);
    pool_expect_empty(other);
    loch_allocator_release(other);
    CHECK_OK(loch_pool_set_limit(b.pool, 45 * MIB));
    put_to_sleep(&b, LOCH_SLEEP_PINNED, 0);
    CHECK_OK(loch_pool_set_limit(b.pool, 30 * MIB));
    CHECK_FAILS(loch_pool_wake(b.pool, NULL), LIMIT);
    pool_expect_whole(b.pool);
    CHECK_OK(loch_pool_set_limit(b.pool, 0));
    wake(&b);
    bed_expect(&b);
    bed_take(&b, 16 * MIB, red, NULL);
    put_to_sleep(&b, LOCH_SLEEP_PINNED, red);
    CHECK_OK(loch_free(b.pool, pool_alloc(b.pool, 20 * MIB))); /* its own free memory goes back, too */
    wake(&b);
    bed_expect(&b);
    bed_close(&b);
}

/* --- files --- */

static void a_file_with_a_name_is_replaced_and_goes(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-test-sleep-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    bed b = bed_open(SIM, NULL);
    bed_fill(&b);
    loch_sleep_options options = how(LOCH_SLEEP_FILE, 0);
    options.path = path; /* one that is there is replaced */
    CHECK_OK(loch_pool_sleep(b.pool, &options, NULL));
    struct stat about, old;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(fstat(file, &old), 0);
    assert_int_equal(old.st_size, 0);
    assert_true((size_t)about.st_size >= pool_stats(b.pool).requested_bytes);
    wake(&b);
    assert_int_not_equal(stat(path, &about), 0); /* and removed */
    close(file);
    bed_expect(&b);
    options.path = "/nowhere/at/all";
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), IO);
    options.path = "/tmp";
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), IO);
    bed_expect(&b);
    pool_expect_whole(b.pool);
    bed_close(&b);
}

static void a_full_disk_leaves_the_pool_awake(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        bed b = bed_open(devices[d], NULL);
        bed_fill(&b);
        loch_sleep_options options = how(LOCH_SLEEP_FILE, 0);
        options.path = "/dev/full";
        CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), IO);
        assert_int_equal(access("/dev/full", F_OK), 0);
        pool_expect_whole(b.pool);
        bed_expect(&b);
        char path[64];
        snprintf(path, sizeof path, "/tmp/loch-test-sleep-full-%ld", (long)getpid());
        options.path = path;
        struct rlimit before, small;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        small = before;
        small.rlim_cur = MIB + 5; /* the last write before it is short */
        void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        const loch_status status = loch_pool_sleep(b.pool, &options, NULL);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        signal(SIGXFSZ, handler);
        assert_int_equal(status, LOCH_E_IO);
        assert_int_not_equal(access(path, F_OK), 0);
        pool_expect_whole(b.pool);
        bed_expect(&b);
        put_to_sleep(&b, LOCH_SLEEP_FILE, 0);
        wake(&b);
        bed_expect(&b);
        bed_close(&b);
    }
}

/* --- faults --- */

/* What a sweep runs on. */
typedef struct sleep_ground {
    const char *device;
    loch_sleep_contents contents;
    bool is_waking; /* faults come in loch_pool_wake, else in loch_pool_sleep */
} sleep_ground;

/* After a fault the pool is as it was, and the call succeeds. */
static void sleep_faulted(test_round *round, const void *user)
{
    const sleep_ground *on = user;
    bed b = bed_open(on->device, NULL);
    for (size_t i = 0; i < 5; i++)
        bed_take(&b, i % 2 ? 300 : 100 * KIB, i % 2 ? red : 0, b.streams[i % 2]);
    bed_grow(&b, 80 * KIB, 4 * MIB, 0);
    CHECK_OK(loch_allocator_record_use(b.pool, b.pieces[2].address, b.streams[1]));
    bed_give(&b, 2);
    const loch_sleep_options options = how(on->contents, 0);
    if (on->is_waking) CHECK_OK(loch_pool_sleep(b.pool, &options, NULL));
    if (on->is_waking) bed_give(&b, 0);
    test_round_begin(round, b.device);
    const loch_status status = on->is_waking ? loch_pool_wake(b.pool, NULL) : loch_pool_sleep(b.pool, &options, NULL);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    const loch_error error = *loch_error_get();
    pool_expect_whole(b.pool);
    const size_t asleep = pool_info(b.pool).asleep_bytes;
    if (status != LOCH_OK) {
        assert_int_equal(error.status, status);
        assert_true(error.sentence[0] != '\0');
        if (on->is_waking) assert_int_equal(pool_info(b.pool).reserved_bytes, 0);
        if (!on->is_waking) bed_expect(&b);
    }
    assert_int_equal(asleep != 0, on->is_waking == (status != LOCH_OK));
    if (!on->is_waking && status != LOCH_OK) put_to_sleep(&b, on->contents, 0);
    wake(&b);
    bed_expect(&b);
    for (size_t i = 0; i < b.count; i++)
        if (b.pieces[i].address) bed_give(&b, i);
    loch_stream_close(b.streams[0]);
    loch_stream_close(b.streams[1]);
    test_end_defaults();
    pool_end(b.pool, b.device);
}

static void sweep(test_faults from, const char *device)
{
    uint64_t felt = 0;
    from.stride = FAULT_STEP;
    for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_FILE; contents++)
        for (int is_waking = 0; is_waking < 2; is_waking++) {
            const sleep_ground on = {device, contents, is_waking};
            felt += test_rounds_run(&from, is_waking ? "waking" : "falling asleep", sleep_faulted, &on).felt;
        }
    assert_true(felt > 20 / FAULT_STEP);
}

static void everything_fails_in_turn(void **state)
{
    (void)state;
    sweep(test_driver_faults, "faulty:" SIM);
    sweep(test_driver_faults, "faulty:cpu");
    sweep(test_host_faults, SIM);
}

static void a_lost_device_leaves_the_pool_whole(void **state)
{
    (void)state;
    bed b = bed_open(SIM, NULL);
    bed_fill(&b);
    put_to_sleep(&b, LOCH_SLEEP_HOST, red);
    CHECK_OK(loch_sim_lose(b.device));
    const loch_sleep_options options = how(LOCH_SLEEP_HOST, 0);
    CHECK_FAILS(loch_pool_sleep(b.pool, &options, NULL), DEVICE_LOST);
    pool_expect_whole(b.pool);
    CHECK_FAILS(loch_pool_wake(b.pool, NULL), DEVICE_LOST);
    pool_expect_whole(b.pool);
    for (size_t i = 0; i < b.count; i++)
        if (b.pieces[i].address) bed_give(&b, i);
    loch_stream_close(b.streams[0]);
    loch_stream_close(b.streams[1]);
    loch_allocator_release(b.pool);
    test_end_defaults();
    loch_device_release(b.device);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK || test_faulty_register() != LOCH_OK) return 1;
    if (loch_tag_create("red", &red) != LOCH_OK || loch_tag_create("blue", &blue) != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        POOL_TEST(bad_requests_are_refused),
        POOL_TEST(a_capture_in_progress_keeps_its_pool_awake),
        POOL_TEST(without_memory_to_wake_in_the_pool_sleeps_on),
        POOL_TEST(a_file_with_a_name_is_replaced_and_goes),
        POOL_TEST(a_full_disk_leaves_the_pool_awake),
        POOL_TEST(everything_fails_in_turn),
        POOL_TEST(a_lost_device_leaves_the_pool_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
