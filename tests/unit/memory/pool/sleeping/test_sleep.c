/* SPDX-License-Identifier: MIT */
/* Pools that sleep and wake: contents under every kind of block, what can be done meanwhile, and what goes back to the
 * device. */
#include "sleep_fixture.h"
#include <pthread.h>
#include <sched.h>

#define DEVICES (sizeof devices / sizeof *devices)

/* --- sleeping and waking --- */

static void contents_come_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_FILE; contents++) {
            bed b = bed_open(devices[d], NULL);
            bed_fill(&b);
            for (int i = 0; i < 2; i++) {
                const loch_stats before = pool_stats(b.pool);
                const size_t reserved = pool_info(b.pool).reserved_bytes;
                assert_int_equal(put_to_sleep(&b, contents, 0), reserved);
                assert_int_equal(pool_info(b.pool).reserved_bytes, 0);
                assert_true(pool_info(b.pool).asleep_bytes > 0 && pool_info(b.pool).asleep_bytes <= reserved);
                if (bed_is_sim(&b)) assert_int_equal(sim_stats(b.device).physical_bytes, 0);
                const loch_stats asleep = pool_stats(b.pool);
                assert_int_equal(asleep.requested_bytes, before.requested_bytes);
                assert_int_equal(asleep.cached_bytes, 0);
                assert_true(wake(&b) >= before.requested_bytes);
                assert_true(pool_info(b.pool).reserved_bytes <= reserved);
                if (bed_is_sim(&b))
                    assert_int_equal(sim_stats(b.device).physical_bytes, pool_info(b.pool).reserved_bytes);
                bed_expect(&b);
                bed_take(&b, 70 * KIB, 0, NULL);
            }
            bed_expect(&b);
            bed_close(&b);
        }
}

/* Counts the bytes of a block that are `byte`. All others must be those that were put there: they lie in handles that
 * other blocks kept awake. */
static size_t piece_count_bytes(const piece *p, uint64_t seed, unsigned char byte)
{
    char *host = bed_host(2 * p->bytes + 1), *old = host + p->bytes;
    test_pattern_write(old, p->bytes, seed);
    CHECK_OK(loch_copy(host, p->address, p->bytes));
    size_t dropped = 0;
    for (size_t i = 0; i < p->bytes; i++) {
        dropped += (unsigned char)host[i] == byte;
        if ((unsigned char)host[i] != byte && host[i] != old[i]) fail_msg("byte %zu is neither old nor %u", i, byte);
    }
    return dropped;
}

static void contents_may_be_dropped(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2 * DEVICES; d++) {
        const bool is_nan = d >= DEVICES;
        bed b = bed_open(devices[d % DEVICES], NULL);
        bed_fill(&b);
        CHECK_OK(loch_option_set("sleep_nan", is_nan ? "on" : "off")); /* as it is when the pool falls asleep */
        put_to_sleep(&b, LOCH_SLEEP_DROP, 0);
        CHECK_OK(loch_option_set("sleep_nan", "off"));
        assert_int_equal(wake(&b), 0);
        for (size_t i = 0; i < b.count; i++)
            if (b.pieces[i].address && piece_count_bytes(&b.pieces[i], i, is_nan ? 0xff : 0) != b.pieces[i].bytes)
                fail_msg("block %zu has other contents", i);
        for (size_t i = 0; i < b.count; i++)
            if (b.pieces[i].address) bed_put(&b, &b.pieces[i], i); /* there is memory */
        bed_expect(&b);
        bed_close(&b);
    }
}

/* One tag is dropped and the rest is kept; blocks are freed and made in between. */
static void dropped_contents_are_never_read(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        bed b = bed_open(devices[d], NULL);
        bed_fill(&b);
        for (size_t i = 0; i < 4; i++)
            bed_take(&b, 4 * MIB, red, b.streams[i % 2]);
        const size_t first = b.count - 4;
        put_to_sleep(&b, LOCH_SLEEP_DROP, red);
        bed_give(&b, first + 1); /* while it sleeps */
        bed_take(&b, 4 * MIB, red, b.streams[1]);
        bed_take(&b, 500, red, NULL);
        const size_t later = b.count;
        put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
        wake(&b);
        for (size_t i = 0; i < later; i++) {
            if (!b.pieces[i].address) continue;
            const bool was_asleep = i >= first && i < first + 4, is_kept = piece_is_right(&b.pieces[i], i);
            if (was_asleep && piece_count_bytes(&b.pieces[i], i, 0) < 2 * MIB) fail_msg("block %zu can be read", i);
            if (b.pieces[i].tag != red && !is_kept) fail_msg("block %zu differs", i);
            if (!is_kept) bed_put(&b, &b.pieces[i], i);
        }
        bed_take(&b, 4 * MIB, red, b.streams[1]); /* in the memory of the freed block */
        bed_expect(&b);
        put_to_sleep(&b, LOCH_SLEEP_DROP, 0);
        for (size_t i = 0; i < b.count; i++)
            if (b.pieces[i].address) bed_give(&b, i);
        wake(&b);
        assert_int_equal(pool_info(b.pool).reserved_bytes, 0);
        for (size_t i = 0; i < b.count; i++) { /* again, in new memory */
            const size_t bytes = b.pieces[i].bytes;
            CHECK_OK(loch_alloc(b.pool, bytes, (void **)&b.pieces[i].address));
            bed_put(&b, &b.pieces[i], i);
        }
        bed_expect(&b);
        bed_close(&b);
    }
}

/* New memory of a driver may have old contents: the wake fills it. */
static void dropped_contents_are_zero_in_soiled_memory(void **state)
{
    (void)state;
    bed b = bed_open("faulty:" SIM, NULL);
    bed_fill(&b);
    put_to_sleep(&b, LOCH_SLEEP_DROP, 0);
    test_faulty_soil(true);
    wake(&b);
    test_faulty_soil(false);
    for (size_t i = 0; i < b.count; i++)
        if (b.pieces[i].address && piece_count_bytes(&b.pieces[i], i, 0) != b.pieces[i].bytes)
            fail_msg("block %zu has old contents", i);
    for (size_t i = 0; i < b.count; i++)
        if (b.pieces[i].address) bed_put(&b, &b.pieces[i], i);
    bed_close(&b);
}

/* Contents are lost only by name: NULL and zeroed options keep them. */
static void a_sleep_without_options_keeps_contents(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (int is_null = 0; is_null < 2; is_null++) {
            const loch_sleep_options zeroed = {.size = sizeof zeroed};
            bed b = bed_open(devices[d], NULL);
            bed_fill(&b);
            CHECK_OK(loch_pool_sleep(b.pool, is_null ? NULL : &zeroed, NULL));
            assert_true(wake(&b) > 0);
            bed_expect(&b);
            bed_close(&b);
        }
}

static void a_device_without_data_sleeps_by_dropping(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64GiB,unbacked");
    loch_allocator *pool = pool_make(device, NULL);
    void *block = pool_alloc(pool, 20 * TEST_GIB);
    const loch_sleep_options options = how(LOCH_SLEEP_DROP, 0);
    size_t released;
    const loch_sleep_options keep = how(LOCH_SLEEP_FILE, 0);
    CHECK_FAILS(loch_pool_sleep(pool, &keep, &released), UNSUPPORTED); /* there are no contents to keep */
    assert_int_equal(sim_stats(device).physical_bytes, 20 * TEST_GIB);
    CHECK_OK(loch_pool_sleep(pool, &options, &released));
    assert_int_equal(released, 20 * TEST_GIB);
    assert_int_equal(sim_stats(device).physical_bytes, 0);
    CHECK_OK(loch_pool_wake(pool, NULL));
    assert_int_equal(sim_stats(device).physical_bytes, 20 * TEST_GIB);
    CHECK_OK(loch_free(pool, block));
    test_end_defaults();
    pool_end_sim(pool, device);
}

/* Contents that fill both halves of the stage exactly. */
static void whole_stages_come_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_FILE; contents++)
            for (size_t halves = 1; halves <= 4; halves++) {
                bed b = bed_open(devices[d], NULL);
                bed_take(&b, halves * 4 * MIB, 0, NULL);
                put_to_sleep(&b, contents, 0);
                assert_int_equal(wake(&b), halves * 4 * MIB);
                bed_expect(&b);
                bed_close(&b);
            }
}

/* --- tags --- */

static void a_tag_sleeps_alone(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        bed b = bed_open(devices[d], NULL);
        bed_fill(&b);
        bed_take(&b, 16 * MIB, red, NULL);
        const size_t released = put_to_sleep(&b, LOCH_SLEEP_PINNED, red);
        assert_true(released >= 8 * MIB);
        assert_true(pool_info(b.pool).reserved_bytes > 0);
        for (size_t i = 0; i < b.count; i++) /* others are as they were */
            if (b.pieces[i].address && b.pieces[i].tag != red && !piece_is_right(&b.pieces[i], i))
                fail_msg("block %zu differs while others sleep", i);
        for (size_t i = 0; i < 30; i++) { /* and the pool works: nothing that sleeps is handed out */
            bed_take(&b, i % 2 ? 100 + 1000 * i : 40 * KIB * i + 1, i % 3 ? 0 : red, b.streams[i % 2]);
            if (!piece_is_right(&b.pieces[b.count - 1], b.count - 1)) fail_msg("a new block does not hold");
            bed_give(&b, --b.count);
            pool_expect_whole(b.pool);
        }
        const loch_sleep_options again = how(LOCH_SLEEP_HOST, red);
        CHECK_FAILS(loch_pool_sleep(b.pool, &again, NULL), BUSY);
        put_to_sleep(&b, LOCH_SLEEP_HOST, blue); /* a second one adds to the first */
        put_to_sleep(&b, LOCH_SLEEP_FILE, 0);    /* and all the rest */
        assert_int_equal(pool_info(b.pool).reserved_bytes, 0);
        CHECK_FAILS(loch_pool_sleep(b.pool, &again, NULL), BUSY);
        wake(&b);
        bed_expect(&b);
        bed_close(&b);
    }
}

/* Blocks of all sizes and tags come and go, before, while and after others sleep. */
static void random_programs_keep_contents_over_sleep(void **state)
{
    (void)state;
    test_random random = {test_seed(0x51ee9)};
    for (size_t d = 0; d < DEVICES; d++) {
        bed b = bed_open(devices[d], NULL);
        b.count = BLOCKS;
        bool is_whole = false, is_awake = true;
        for (int step = 0; step < 300; step++) {
            const size_t i = test_random_below(&random, BLOCKS), what = test_random_below(&random, 20);
            const loch_tag tags[] = {0, red, blue}, tag = tags[test_random_below(&random, 3)];
            piece *p = &b.pieces[i];
            if (what == 0) {
                const loch_sleep_options options =
                    how(LOCH_SLEEP_PINNED + (loch_sleep_contents)test_random_below(&random, 3), tag);
                const loch_status status = loch_pool_sleep(b.pool, &options, NULL);
                assert_true(status == LOCH_OK || (status == LOCH_E_BUSY && !is_awake));
                is_awake = false;
                is_whole |= !tag;
            } else if (what == 1) {
                wake(&b);
                bed_expect(&b);
                is_awake = true;
                is_whole = false;
            } else if (p->address) {
                bed_give(&b, i);
            } else if (!is_whole) {
                const size_t most = test_random_below(&random, 2) ? 9 * KIB : MIB;
                const loch_request request = {.size = sizeof request,
                                              .bytes = 1 + test_random_below(&random, most),
                                              .tag = tag,
                                              .stream = b.streams[test_random_below(&random, 2)]};
                void *address;
                if (test_random_below(&random, 8))
                    CHECK_OK(loch_allocator_alloc(b.pool, &request, &address));
                else
                    CHECK_OK(loch_pool_alloc_growable(b.pool, 4 * MIB, &request, &address));
                *p = (piece){address, request.bytes, tag};
                bed_put(&b, p, i);
            }
            pool_expect_whole(b.pool);
        }
        wake(&b);
        bed_expect(&b);
        bed_close(&b);
    }
}

/* --- while it sleeps --- */

static loch_status count_block(const loch_block *block, void *user)
{
    (void)block;
    ++*(size_t *)user;
    return LOCH_OK;
}

static void a_sleeping_pool_hands_nothing_out(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        bed b = bed_open(devices[d], NULL);
        bed_fill(&b);
        CHECK_OK(loch_free(b.pool, pool_alloc(b.pool, 30))); /* the thread keeps some */
        CHECK_OK(loch_free(b.pool, pool_alloc(b.pool, 30 * KIB)));
        put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS(pool_try_alloc(b.pool, 30, 0, NULL, &none), BUSY);
        assert_null(none);
        CHECK_FAILS(pool_try_alloc(b.pool, 30 * KIB, 0, b.streams[0], &none), BUSY);
        const loch_request request = {.size = sizeof request, .bytes = 1};
        CHECK_FAILS(loch_pool_alloc_growable(b.pool, MIB, &request, &none), BUSY);
        CHECK_FAILS(loch_allocator_realloc(b.pool, b.pieces[0].address, 60, NULL, &none), BUSY);
        CHECK_FAILS(loch_pool_resize_growable(b.pool, b.pieces[27].address, 2 * MIB), BUSY);
        CHECK_FAILS(loch_pool_resize_growable(b.pool, b.pieces[27].address, 1), BUSY);
        const loch_sleep_options again = how(LOCH_SLEEP_DROP, 0);
        CHECK_FAILS(loch_pool_sleep(b.pool, &again, NULL), BUSY);
        loch_block found = {.size = sizeof found};
        CHECK_OK(loch_allocator_find(b.pool, b.pieces[24].address, &found));
        assert_int_equal(found.requested_bytes, b.pieces[24].bytes);
        size_t walked = 0;
        CHECK_OK(loch_allocator_walk(b.pool, count_block, &walked));
        assert_int_equal(walked, pool_stats(b.pool).blocks);
        CHECK_OK(loch_allocator_record_use(b.pool, b.pieces[24].address, b.streams[1]));
        char text[2000];
        assert_true(test_pool_print(b.pool, text, sizeof text) < sizeof text);
        assert_non_null(strstr(text, "asleep"));
        assert_int_equal(pool_trim(b.pool, 0), 0);
        pool_expect_whole(b.pool);
        wake(&b);
        assert_int_equal(wake(&b), 0); /* a pool that is awake succeeds */
        bed_expect(&b);
        bed_close(&b);
    }
}

static void *free_some(void *user)
{
    bed *b = user;
    for (size_t i = 0; i < b->count; i += 4) {
        if (b->pieces[i].address && loch_free(b->pool, b->pieces[i].address) != LOCH_OK) return user;
        b->pieces[i].address = NULL;
    }
    return NULL;
}

static void blocks_are_freed_while_they_sleep(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (int all = 0; all < 2; all++) {
            bed b = bed_open(devices[d], NULL);
            bed_fill(&b);
            CHECK_OK(loch_allocator_record_use(b.pool, b.pieces[22].address, b.streams[1]));
            put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
            CHECK_OK(loch_device_measure_calls(b.device, LOCH_MEASURE_OFF));
            const uint64_t unmaps = test_call_count(b.device, "unmap"), maps = test_call_count(b.device, "map");
            pthread_t thread;
            void *failed;
            assert_int_equal(pthread_create(&thread, NULL, free_some, &b), 0);
            assert_int_equal(pthread_join(thread, &failed), 0);
            assert_null(failed);
            pool_expect_whole(b.pool);
            for (size_t i = 0; i < b.count; i++)
                if (b.pieces[i].address && (all || i % 3 == 0)) {
                    char *address = b.pieces[i].address;
                    bed_give(&b, i);
                    CHECK_FAILS_SET(loch_free(b.pool, address), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
                    pool_expect_whole(b.pool);
                }
            assert_int_equal(test_call_count(b.device, "unmap"), unmaps);
            assert_int_equal(test_call_count(b.device, "map"), maps);
            const size_t left = pool_stats(b.pool).requested_bytes;
            const size_t restored = wake(&b);
            assert_true(restored >= left && (left || !restored));
            if (all) assert_int_equal(pool_info(b.pool).reserved_bytes, 0);
            bed_expect(&b);
            bed_take(&b, 5 * MIB, 0, NULL);
            bed_take(&b, 50, 0, NULL);
            bed_expect(&b);
            bed_close(&b);
        }
}

static void a_pool_may_end_while_it_sleeps(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++)
        for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_DROP; contents++) {
            bed b = bed_open(devices[d], NULL);
            bed_fill(&b);
            put_to_sleep(&b, contents, 0);
            for (size_t i = 0; i < b.count; i++)
                if (b.pieces[i].address) bed_give(&b, i);
            loch_stream_close(b.streams[0]);
            loch_stream_close(b.streams[1]);
            loch_allocator_release(b.pool);
            test_end_defaults();
            if (bed_is_sim(&b)) assert_int_equal(sim_stats(b.device).reserved_bytes, 0);
            if (bed_is_sim(&b)) assert_int_equal(sim_stats(b.device).pinned_bytes, 0);
            loch_device_release(b.device);
        }
}

/* --- the preset of whole blocks, other options --- */

static void pools_of_every_kind_sleep_and_wake(void **state)
{
    (void)state;
    const loch_pool_options kinds[] = {
        {.size = sizeof kinds[0], .preset = LOCH_POOL_WHOLE_BLOCKS},
        {.size = sizeof kinds[0], .idle_bytes = MIB, .limit_bytes = 100 * MIB},
        {.size = sizeof kinds[0], .round_bytes = 1000, .handle_bytes = 8 * MIB},
        {.size = sizeof kinds[0], .captures = LOCH_POOL_CAPTURES_NONE},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t d = 0; d < 2; d++) {
            bed b = bed_open(devices[d], &kinds[k]);
            bed_fill(&b);
            put_to_sleep(&b, LOCH_SLEEP_PINNED, red);
            bed_give(&b, 0);
            bed_take(&b, 3 * MIB, 0, NULL);
            put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
            for (size_t i = 2; i < b.count; i += 5)
                if (b.pieces[i].address) bed_give(&b, i);
            pool_expect_whole(b.pool);
            wake(&b);
            bed_expect(&b);
            bed_close(&b);
        }
}

/* --- threads --- */

typedef struct worker {
    loch_allocator *pool;
    atomic_bool *is_over;
    bool may_be_busy;
    uint64_t done;
    char failure[300];
} worker;

static void work(worker *w)
{
    test_random random = {(uintptr_t)w};
    while (!atomic_load(w->is_over) || w->done < 100) {
        void *block = NULL;
        const size_t bytes = test_random_below(&random, 4) ? 200 : 300 * KIB;
        const loch_status status = pool_try_alloc(w->pool, bytes, 0, NULL, &block);
        if (w->may_be_busy && status == LOCH_E_BUSY) {
            if (atomic_load(w->is_over)) return;
            sched_yield();
            continue;
        }
        TRY(status);
        TRY(loch_free(w->pool, block));
        w->done++;
    }
}

static void *work_thread(void *user)
{
    work(user);
    return NULL;
}

/* Threads use another pool, and this one: with a tag asleep it works on, as a whole it refuses. */
static void threads_work_on_while_a_tag_sleeps(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        bed b = bed_open(devices[d], NULL);
        bed_fill(&b);
        loch_allocator *other = pool_make(b.device, NULL);
        atomic_bool is_over = false;
        worker workers[4] = {{.pool = other}, {.pool = other}, {.pool = b.pool}, {.pool = b.pool}};
        pthread_t threads[4];
        for (size_t i = 0; i < 4; i++) {
            workers[i].is_over = &is_over;
            workers[i].may_be_busy = i >= 2;
            assert_int_equal(pthread_create(&threads[i], NULL, work_thread, &workers[i]), 0);
        }
        for (int i = 0; i < 12; i++) {
            const loch_sleep_options options = how(LOCH_SLEEP_PINNED + (loch_sleep_contents)i % 3, i % 2 ? red : 0);
            CHECK_OK(loch_pool_sleep(b.pool, &options, NULL));
            CHECK_OK(loch_pool_wake(b.pool, NULL));
        }
        atomic_store(&is_over, true);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
        }
        bed_expect(&b);
        pool_expect_empty(other);
        loch_allocator_release(other);
        bed_close(&b);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK || test_faulty_register() != LOCH_OK) return 1;
    if (loch_tag_create("red", &red) != LOCH_OK || loch_tag_create("blue", &blue) != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        POOL_TEST(threads_work_on_while_a_tag_sleeps),
        POOL_TEST(contents_come_back),
        POOL_TEST(whole_stages_come_back),
        POOL_TEST(contents_may_be_dropped),
        POOL_TEST(dropped_contents_are_never_read),
        POOL_TEST(dropped_contents_are_zero_in_soiled_memory),
        POOL_TEST(a_sleep_without_options_keeps_contents),
        POOL_TEST(a_device_without_data_sleeps_by_dropping),
        POOL_TEST(a_tag_sleeps_alone),
        POOL_TEST(random_programs_keep_contents_over_sleep),
        POOL_TEST(a_sleeping_pool_hands_nothing_out),
        POOL_TEST(blocks_are_freed_while_they_sleep),
        POOL_TEST(a_pool_may_end_while_it_sleeps),
        POOL_TEST(pools_of_every_kind_sleep_and_wake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
