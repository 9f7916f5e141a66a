/* SPDX-License-Identifier: MIT */
/* Engines, opened, used and ended while every host allocation and every driver call fails in turn, once and for good.
 * An engine that does not open leaves nothing: no device, no thread, no stream, no memory. One that opened ends,
 * whatever fails meanwhile. */
#include "device/sim/sim.h"
#include "faulty_driver.h"
#include "sweep.h"
#include "test.h"
#include <pthread.h>
#include <loch/buffer.h>
#include <dirent.h>
#include <sched.h>

#define SEATS 4
#define SIM_A "sim:64MiB,granule=64KiB,backed"
#define SIM_B "sim:32MiB,granule=64KiB,backed,id=7"

/* What a sweep runs on. */
typedef struct ground {
    const char *name;
    const char *held;         /* the device that faults are set on, open all the while; NULL: none */
    const char *seats[SEATS]; /* of the engine */
    bool is_direct;
} ground;

typedef struct outcome {
    loch_status opened, used;
    const char *wrong; /* a promise that was broken */
    /* Blocks that could not be freed, because their streams could not be waited for: for after the fault. */
    loch_allocator *allocators[SEATS];
    void *blocks[SEATS];
} outcome;

static void check_record(outcome *o, loch_status status)
{
    if (status == LOCH_OK) return;
    if (loch_error_get()->status != status || !loch_error_get()->sentence[0]) o->wrong = "a failure without a sentence";
}

static loch_status use_one(loch_engine *engine, loch_seat seat, void *user)
{
    outcome *o = user;
    loch_stream *stream;
    void *block = NULL;
    loch_status status = loch_stream_pool_acquire(loch_engine_get_streams(engine, seat), &stream);
    if (status != LOCH_OK) return status;
    loch_allocator *allocator = loch_engine_get_allocator(engine, seat);
    const loch_request request = {.size = sizeof request, .bytes = 200000, .stream = stream};
    status = loch_allocator_alloc(allocator, &request, &block);
    if (status == LOCH_OK) status = loch_fill_on(block, 200000, "x", 1, stream);
    const loch_status freed = loch_free(allocator, block);
    if (freed != LOCH_OK) {
        o->allocators[seat.number] = allocator;
        o->blocks[seat.number] = block;
    }
    if (loch_stream_pool_release(loch_engine_get_streams(engine, seat), stream) != LOCH_OK) loch_stream_close(stream);
    if (status == LOCH_OK && freed != LOCH_OK) return loch_error_set(freed, NULL, 0, "a block could not be freed");
    return status == LOCH_OK ? LOCH_OK : loch_error_set(status, NULL, 0, "a seat could not be used");
}

static loch_status use(loch_engine *engine, outcome *o)
{
    char text[4000];
    size_t failed = 0, frozen;
    loch_engine_info info = {.size = sizeof info};
    loch_nccl *nccl;
    loch_status status = loch_engine_for_each(engine, use_one, o, &failed);
    check_record(o, status);
    if ((status == LOCH_OK) != (failed == 0)) o->wrong = "a failure that is not counted";
    if (status == LOCH_OK) status = loch_engine_get_info(engine, LOCH_SEAT(1), &info);
    if (status == LOCH_OK) status = loch_engine_lock(engine, LOCH_SEAT(2));
    if (status == LOCH_OK) {
        status = loch_engine_lock(engine, LOCH_SEAT(3));
        if (loch_engine_unlock(engine, LOCH_SEAT(2)) != LOCH_OK)
            o->wrong = "a lock that was taken cannot be given back";
        if (status == LOCH_OK) status = loch_engine_unlock(engine, LOCH_SEAT(3));
    }
    if (status == LOCH_OK) status = loch_engine_freeze(engine, 0, &frozen);
    check_record(o, status);
    if (test_engine_print(engine, text, sizeof text) == 0) o->wrong = "no summary";
    if (loch_engine_require_nccl(engine, &nccl) == LOCH_OK) o->wrong = "communicators of simulated devices";
    return status;
}

static outcome run(const ground *on)
{
    outcome o = {.opened = LOCH_OK};
    loch_engine_device table[SEATS];
    const loch_engine_options options = {.size = sizeof options,
                                         .devices = table,
                                         .devices_count = SEATS,
                                         .memory = on->is_direct ? LOCH_ENGINE_DIRECT : LOCH_ENGINE_POOLS};
    for (size_t i = 0; i < SEATS; i++)
        table[i] = (loch_engine_device){.size = sizeof table[i], .name = on->seats[i], .workers = 1 + i % 2};
    table[0].limit_bytes = 8 * TEST_MIB;
    table[1].limit_fraction = 0.5;
    table[2].spare_bytes = TEST_MIB;
    loch_engine *engine = TEST_UNTOUCHED;
    o.opened = loch_engine_open(&options, &engine);
    check_record(&o, o.opened);
    if ((o.opened == LOCH_OK) != (engine != NULL)) o.wrong = "an engine beside a failure";
    if (!engine) return o;
    o.used = use(engine, &o);
    loch_engine_leaks leaks = {.size = sizeof leaks};
    if (loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks) != LOCH_OK)
        o.wrong = loch_error_get()->sentence;
    for (size_t i = 0; i < SEATS; i++)
        leaks.blocks -= o.blocks[i] != NULL;
    if (lochi_sim_get_current()) o.wrong = "a device is current in the calling thread";
    if (leaks.blocks) o.wrong = "the leaks are not those blocks that could not be freed";
    return o;
}

/* Threads of this process; sanitizers have some of their own. */
static size_t count_threads(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* One that was joined may be listed for a moment more. */
static void check_threads(size_t threads, const char *when)
{
    for (size_t tries = 0; count_threads() > threads; tries++) {
        if (tries > 100000) fail_msg("%s: a thread is left", when);
        sched_yield();
    }
}

static void run_faulted(test_round *round, const void *user)
{
    const ground *on = user;
    loch_device *held = NULL;
    const size_t threads = count_threads();
    if (on->held) CHECK_OK(loch_device_open(on->held, &held));
    test_round_begin(round, held);
    const outcome o = run(on);
    test_round_end(round);
    for (size_t i = 0; i < SEATS; i++)
        if (o.blocks[i]) CHECK_OK(loch_free(o.allocators[i], o.blocks[i]));
    round->is_felt = o.opened != LOCH_OK;
    if (o.wrong) fail_msg("%s: %s", round->when, o.wrong);
    if (!round->is_reached && o.used != LOCH_OK) fail_msg("%s: used without success", round->when);
    if (held) CHECK_OK(loch_device_sync(held));
    if (held) test_sim_expect_empty(held, false, round->when, NULL);
    loch_device_release(held);
    check_threads(threads, round->when);
}

static void sweep(const test_faults *from, const ground *on)
{
    const test_rounds rounds = test_rounds_run(from, on->name, run_faulted, on);
    assert_true(rounds.places > 10 && rounds.felt > 0);
}

static void an_engine_survives_failing_host_memory(void **state)
{
    (void)state;
    sweep(&test_host_faults, &(ground){"pools", NULL, {"cpu", SIM_A, SIM_B, SIM_A}, false});
    sweep(&test_host_faults, &(ground){"direct", NULL, {"cpu", SIM_A, SIM_B, SIM_A}, true});
}

static void an_engine_survives_failing_calls_of_each_device(void **state)
{
    (void)state;
    sweep(&test_sim_faults, &(ground){"pools, one device", SIM_A, {"cpu", SIM_A, SIM_B, SIM_A}, false});
    sweep(&test_sim_faults, &(ground){"pools, another device", SIM_B, {"cpu", SIM_A, SIM_B, SIM_A}, false});
    sweep(&test_sim_faults, &(ground){"direct", SIM_A, {"cpu", SIM_A, SIM_B, SIM_A}, true});
}

/* Opening itself fails here, too. */
static void an_engine_survives_failing_calls_of_a_driver_from_outside(void **state)
{
    (void)state;
    const ground on = {
        "a driver from outside", NULL, {"faulty:cpu", "faulty:" SIM_A, "faulty:" SIM_B, "faulty:" SIM_A}, false};
    sweep(&test_driver_faults, &on);
    assert_int_equal(test_faulty_open(), 0);
}

static void *end_at_once(void *user)
{
    return user;
}

/* Starts one thread. ThreadSanitizer adds a thread of its own with the first one; the counts begin after that. */
static bool start_the_first_thread(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, end_at_once, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_engine_survives_failing_host_memory),
                                       cmocka_unit_test(an_engine_survives_failing_calls_of_each_device),
                                       cmocka_unit_test(an_engine_survives_failing_calls_of_a_driver_from_outside)};
    if (test_heap_install() != LOCH_OK || test_faulty_register() != LOCH_OK || !start_the_first_thread()) return 1;
    return cmocka_run_group_tests_name("engine faults", tests, NULL, NULL);
}
