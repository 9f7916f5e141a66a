/* SPDX-License-Identifier: MIT */
/* The loop over all places of a fault, and what programs under faults share. */
#include "sweep.h"
#include "base/sanitize.h"
#include "faulty_driver.h"
#include "test.h"

#define ROUNDS_MAX 100000

/* Every place is tried, except under TSan: it is slow, and few sweeps have a second thread that it could watch. There
 * only the first places are all tried. */
#if LOCHI_TSAN
#define PLACES_TRIED 40
#define STRIDE_BEYOND 11
#else
#define PLACES_TRIED ROUNDS_MAX
#define STRIDE_BEYOND 1
#endif

/* --- sources --- */

static void host_set(test_failing mode, uint64_t after, loch_device *device)
{
    (void)device;
    test_heap_set(mode, after);
}

static uint64_t host_count(loch_device *device)
{
    (void)device;
    return test_heap_count();
}

const test_faults test_host_faults = {.name = "host allocations", .set = host_set, .count = host_count};

static uint64_t sim_calls_before;

static uint64_t sim_calls(loch_device *device)
{
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(device, &stats));
    return stats.calls;
}

static void sim_set(test_failing mode, uint64_t after, loch_device *device)
{
    const loch_sim_fault fault = {
        .size = sizeof fault,
        .after = after,
        .mode = mode == TEST_FAILING_ONCE ? LOCH_SIM_FAULT_ONCE : LOCH_SIM_FAULT_FOREVER,
    };
    CHECK_OK(loch_sim_set_fault(device, mode == TEST_FAILING_NEVER ? NULL : &fault));
    sim_calls_before = sim_calls(device);
}

static uint64_t sim_count(loch_device *device)
{
    return sim_calls(device) - sim_calls_before;
}

const test_faults test_sim_faults = {.name = "driver calls", .set = sim_set, .count = sim_count};

static void driver_set(test_failing mode, uint64_t after, loch_device *device)
{
    (void)device;
    test_faulty_set(mode, after);
}

static uint64_t driver_count(loch_device *device)
{
    (void)device;
    return test_faulty_count();
}

const test_faults test_driver_faults = {.name = "calls of a faulty driver", .set = driver_set, .count = driver_count};

int test_faults_prepare(void **state)
{
    (void)state;
    loch_tag tag;
    test_heap_set(TEST_FAILING_NEVER, 0);
    test_faulty_set(TEST_FAILING_NEVER, 0);
    return test_heap_install() == LOCH_OK && test_faulty_register() == LOCH_OK &&
                   loch_tag_create("fault", &tag) == LOCH_OK
               ? 0
               : -1;
}

/* --- rounds --- */

void test_round_begin(test_round *round, loch_device *device)
{
    round->device = device;
    round->from->set(round->mode, round->after, device);
}

void test_round_end(test_round *round)
{
    round->is_reached = round->mode != TEST_FAILING_NEVER && round->from->count(round->device) > round->after;
    round->from->set(TEST_FAILING_NEVER, 0, round->device);
}

static void round_expect_usage(const test_round *round, const loch_host_usage *before)
{
    loch_host_usage after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&after));
    if (after.blocks != before->blocks || after.bytes != before->bytes)
        fail_msg("%s (%s): the bookkeeping holds %zu bytes in %zu pieces, before it were %zu in %zu", round->when,
                 round->call ? round->call : "coped", after.bytes, after.blocks, before->bytes, before->blocks);
    assert_int_equal(test_heap_wrong(), 0);
}

static void round_run(test_round *round, test_round_body *body, const void *user)
{
    loch_host_usage before = {.size = sizeof before};
    CHECK_OK(loch_host_get_usage(&before));
    round->is_felt = round->is_reached = false;
    round->call = NULL;
    loch_error_clear();
    body(round, user);
    if (round->is_felt && !round->is_reached)
        fail_msg("%s: %s failed without a fault", round->when, round->call ? round->call : "a call");
    if (round->mode != TEST_FAILING_NEVER) round_expect_usage(round, &before); /* the first makes what is made once */
}

test_rounds test_rounds_run(const test_faults *from, const char *ground, test_round_body *body, const void *user)
{
    const uint64_t stride = from->stride ? from->stride : 1;
    test_rounds rounds = {0, 0};
    test_round round = {.from = from, .mode = TEST_FAILING_NEVER};
    snprintf(round.when, sizeof round.when, "%.80s without a fault", ground);
    round_run(&round, body, user);
    for (round.mode = TEST_FAILING_ONCE; round.mode <= TEST_FAILING_FOREVER; round.mode++) {
        if (from->only != TEST_FAILING_NEVER && from->only != round.mode) continue;
        for (round.after = 0;; round.after += stride * (round.after < PLACES_TRIED ? 1 : STRIDE_BEYOND)) {
            snprintf(round.when, sizeof round.when, "%.80s, %s failing %s at %llu", ground, from->name,
                     round.mode == TEST_FAILING_ONCE ? "once" : "for good", (unsigned long long)round.after);
            round_run(&round, body, user);
            if (!round.is_reached) break;
            rounds.places++;
            rounds.felt += round.is_felt;
            assert_true(round.after < ROUNDS_MAX);
        }
    }
    print_message("%s, %s: %llu faults, %llu of them felt\n", ground, from->name, (unsigned long long)rounds.places,
                  (unsigned long long)rounds.felt);
    return rounds;
}

/* --- small programs --- */

const char *test_kept;

typedef struct host_program {
    loch_status (*run)(const void *user);
    const void *user;
} host_program;

static void host_round(test_round *round, const void *user)
{
    const host_program *program = user;
    test_kept = NULL;
    test_round_begin(round, NULL);
    const loch_status status = program->run(program->user);
    test_round_end(round);
    if (test_kept) fail_msg("%s: %s failed, it gives something back", round->when, test_kept);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) {
        assert_int_equal(status, LOCH_E_HOST_MEMORY);
        assert_int_equal(loch_error_get()->status, status);
        assert_true(loch_error_get()->sentence[0] != '\0');
    }
    CHECK_OK(program->run(program->user));
}

void test_host_sweep(loch_status (*run)(const void *user), const void *user)
{
    const host_program program = {run, user};
    const test_rounds rounds = test_rounds_run(&test_host_faults, "a small program", host_round, &program);
    assert_true(rounds.felt > 4);
}

/* --- larger programs --- */

void test_notes_step(test_notes *notes)
{
    if (++notes->steps == notes->lose_before && loch_sim_lose(notes->device) != LOCH_OK)
        notes->wrong = "the device cannot be lost";
}

bool test_notes_take(test_notes *notes, loch_status status, const char *call)
{
    if (status == LOCH_OK) return true;
    notes->status = status;
    notes->call = call;
    notes->error = *loch_error_get();
    if (notes->error.status != status || !notes->error.sentence[0]) notes->wrong = "a failure without a sentence";
    return false;
}

void test_notes_check(const test_notes *notes, test_round *round)
{
    round->is_felt = notes->status != LOCH_OK;
    round->call = notes->call;
    if (notes->wrong) fail_msg("%s (%s): %s", round->when, notes->call ? notes->call : "coped", notes->wrong);
}

void test_sim_expect_empty(loch_device *device, bool is_ordered, const char *when, const char *call)
{
    loch_sim_stats stats = {.size = sizeof stats};
    if (loch_sim_get_stats(device, &stats) != LOCH_OK) return;
    if (stats.violations && is_ordered) {
        loch_sim_violation first = {0};
        size_t count = 0;
        CHECK_OK(test_sim_violations(device, &first, 1, &count));
        fail_msg("%s: %zu uses without order, the first: %s", when, count, first.text);
    }
    CHECK_OK(loch_sim_clear_violations(device));
    if (stats.physical_bytes || stats.reserved_bytes || stats.pinned_bytes || stats.handles || stats.mappings ||
        stats.streams || stats.events || stats.pending)
        fail_msg("%s (%s): left on the device: %zu bytes, %zu reserved, %zu pinned, %zu handles, %zu mappings, "
                 "%zu streams, %zu events, %zu operations",
                 when, call ? call : "coped", stats.physical_bytes, stats.reserved_bytes, stats.pinned_bytes,
                 stats.handles, stats.mappings, stats.streams, stats.events, stats.pending);
}

/* --- the scenario --- */

/* Runs it without a fault: it has to succeed. */
static void scenario_run_plain(const test_sweep *sweep, const char *when)
{
    test_scenario run;
    test_scenario_run(&run, sweep->device, sweep->other);
    if (run.status != LOCH_OK)
        fail_msg("after %s: %s gave %s: %s", when, run.call, loch_status_name(run.status), run.error.sentence);
}

static void scenario_round(test_round *round, const void *user)
{
    const test_sweep *sweep = user;
    loch_host_usage before = {.size = sizeof before};
    loch_device *held = NULL;
    test_scenario run;

    CHECK_OK(loch_host_get_usage(&before));
    if (sweep->hold) CHECK_OK(loch_device_open(sweep->device, &held));
    test_round_begin(round, held);
    test_scenario_run(&run, sweep->device, sweep->other);
    test_round_end(round);
    round->is_felt = run.status != LOCH_OK;
    round->call = run.call;
    if (run.kept) fail_msg("%s: %s failed, it gives something back", round->when, run.kept);
    if (run.status == LOCH_E_CORRUPT) fail_msg("%s: %s: memory does not hold what was copied", round->when, run.call);
    if (round->is_felt && (run.error.status != run.status || !run.error.sentence[0]))
        fail_msg("%s: %s gave %s, but the record says %s, \"%s\"", round->when, run.call, loch_status_name(run.status),
                 loch_status_name(run.error.status), run.error.sentence);
    /* advances simulated time, so that queued work ends; memory may have been freed under work that could not be waited
     * for */
    if (held) CHECK_OK(loch_device_sync(held));
    if (held) test_sim_expect_empty(held, false, round->when, run.call);
    if (!held && round->mode != TEST_FAILING_NEVER) round_expect_usage(round, &before);
    scenario_run_plain(sweep, round->when);
    if (held) test_sim_expect_empty(held, false, round->when, "without a fault");
    loch_device_release(held);
}

void test_scenario_sweep(const test_sweep *sweep)
{
    const test_rounds rounds = test_rounds_run(sweep->from, sweep->device, scenario_round, sweep);
    assert_true(rounds.places > 40 && rounds.felt > rounds.places / 4);
}
