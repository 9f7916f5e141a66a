/* SPDX-License-Identifier: MIT */
/* Engines, opened, used and ended while every host allocation and every driver call fails in turn, once and for good. An engine
 * that does not open leaves nothing: no device, no thread, no stream, no memory. One that opened ends, whatever fails meanwhile. */
#include "device/sim/sim.h"
#include "faulty_driver.h"
#include "sweep.h"
#include "test.h"
#include <loch/buffer.h>
#include <dirent.h>
#include <sched.h>

#define SEATS 4
#define ROUNDS_MAX 5000
#define SIM_A "sim:64MiB,granule=64KiB,backed"
#define SIM_B "sim:32MiB,granule=64KiB,backed,id=7"

typedef struct source {
    const char *name;
    void (*set)(test_failing mode, uint64_t after, loch_device *device);
    uint64_t (*count)(loch_device *device);
    const char *held;         /* the device that faults are set on, open all the while; NULL: none */
    const char *seats[SEATS]; /* of the engine */
    bool is_direct;
} source;

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

static outcome run(const source *from)
{
    outcome o = {.opened = LOCH_OK};
    loch_engine_device table[SEATS];
    const loch_engine_options options = {.size = sizeof options,
                                         .devices = table,
                                         .devices_count = SEATS,
                                         .memory = from->is_direct ? LOCH_ENGINE_DIRECT : LOCH_ENGINE_POOLS};
    for (size_t i = 0; i < SEATS; i++)
        table[i] = (loch_engine_device){.size = sizeof table[i], .name = from->seats[i], .workers = 1 + i % 2};
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
static void check_threads(const source *from, size_t threads, const char *when)
{
    for (size_t tries = 0; count_threads() > threads; tries++) {
        if (tries > 100000) fail_msg("%s, %s: a thread is left", from->name, when);
        sched_yield();
    }
}

static void check_device(const source *from, loch_device *device, const char *when)
{
    loch_sim_stats stats = {.size = sizeof stats};
    if (!device || strncmp(from->held, "sim:", 4) != 0) return;
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_sim_get_stats(device, &stats));
    if (stats.physical_bytes || stats.mappings || stats.reserved_bytes || stats.events || stats.streams)
        fail_msg("%s, %s: %zu bytes, %zu mappings, %zu events, %zu streams are left", from->name, when,
                 stats.physical_bytes, stats.mappings, stats.events, stats.streams);
}

static bool sweep_at(const source *from, test_failing mode, uint64_t after, uint64_t *felt)
{
    char when[64];
    loch_host_usage before = {.size = sizeof before}, now = {.size = sizeof now};
    loch_device *held = NULL;
    snprintf(when, sizeof when, "mode %d at %llu", (int)mode, (unsigned long long)after);
    CHECK_OK(loch_host_get_usage(&before));
    const size_t threads = count_threads();
    if (from->held) CHECK_OK(loch_device_open(from->held, &held));
    from->set(mode, after, held);
    const outcome o = run(from);
    const bool is_reached = from->count(held) > after;
    from->set(TEST_FAILING_NEVER, 0, held);
    for (size_t i = 0; i < SEATS; i++)
        if (o.blocks[i]) CHECK_OK(loch_free(o.allocators[i], o.blocks[i]));
    *felt += o.opened != LOCH_OK;
    if (o.wrong) fail_msg("%s, %s: %s", from->name, when, o.wrong);
    if (!is_reached && (o.opened != LOCH_OK || o.used != LOCH_OK)) fail_msg("%s failed without a fault", from->name);
    check_device(from, held, when);
    loch_device_release(held);
    check_threads(from, threads, when);
    CHECK_OK(loch_host_get_usage(&now));
    if (now.blocks != before.blocks || now.bytes != before.bytes)
        fail_msg("%s, %s: the bookkeeping holds %zu bytes in %zu pieces, before it were %zu in %zu", from->name, when,
                 now.bytes, now.blocks, before.bytes, before.blocks);
    return is_reached;
}

static void sweep(const source *from)
{
    uint64_t places = 0, felt = 0;
    const outcome plain = run(from);
    if (plain.wrong || plain.opened != LOCH_OK || plain.used != LOCH_OK) fail_msg("%s: fails by itself", from->name);
    for (test_failing mode = TEST_FAILING_ONCE; mode <= TEST_FAILING_FOREVER; mode++) {
        uint64_t after = 0;
        while (sweep_at(from, mode, after, &felt))
            assert_true(++after < ROUNDS_MAX);
        places += after;
    }
    print_message("%s: %llu faults, %llu engines did not open\n", from->name, (unsigned long long)places,
                  (unsigned long long)felt);
    assert_true(places > 10 && felt > 0);
}

static void host_memory(void **state)
{
    (void)state;
    const source pools = {"host memory", test_host_set, test_host_count, NULL, {"cpu", SIM_A, SIM_B, SIM_A}, false};
    const source direct = {"host memory, direct",        test_host_set, test_host_count, NULL,
                           {"cpu", SIM_A, SIM_B, SIM_A}, true};
    sweep(&pools);
    sweep(&direct);
}

static void driver_calls_of_each_device(void **state)
{
    (void)state;
    const source first = {"calls of one", test_sim_set, test_sim_count, SIM_A, {"cpu", SIM_A, SIM_B, SIM_A}, false};
    const source second = {"calls of another",           test_sim_set, test_sim_count, SIM_B,
                           {"cpu", SIM_A, SIM_B, SIM_A}, false};
    const source direct = {"calls, direct", test_sim_set, test_sim_count, SIM_A, {"cpu", SIM_A, SIM_B, SIM_A}, true};
    sweep(&first);
    sweep(&second);
    sweep(&direct);
}

/* Opening itself fails here, too. */
static void driver_calls_of_a_driver_from_outside(void **state)
{
    (void)state;
    const source from = {"a driver from outside",
                         test_faulty_set_on,
                         test_faulty_count_on,
                         NULL,
                         {"faulty:cpu", "faulty:" SIM_A, "faulty:" SIM_B, "faulty:" SIM_A},
                         false};
    sweep(&from);
    assert_int_equal(test_faulty_open(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(host_memory), cmocka_unit_test(driver_calls_of_each_device),
                                       cmocka_unit_test(driver_calls_of_a_driver_from_outside)};
    if (test_heap_install() != LOCH_OK || test_faulty_register() != LOCH_OK) return 1;
    return cmocka_run_group_tests_name("engine faults", tests, NULL, NULL);
}
