/* SPDX-License-Identifier: MIT */
/* Devices of a fleet: what they run is what `loch replay` runs; limits, failures, several processes, no memory. */
#include "test.h"
#include "sweep.h"
#include "tool_heap.h"
#include "fleet_programs.h"
#include "fleet_run.h"
#include <signal.h>
#include <unistd.h>

#define PROGRAMS 3
#define MILLISECOND UINT64_C(1000000)

/* Programs that are made up: steps of blocks of many sizes, on one stream, on two, and with alignments and tags. */
static char paths[PROGRAMS][64];
static fleet_mix mix;
static fleet_programs programs;
static fleet_kind kind = {.device = "sim:4GiB", .lag_ns = 2000000};

static void write_program(const char *path, unsigned number)
{
    test_random random = {test_seed(31) + number};
    size_t live[64], count = 0, next = 0;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t step = 0; step < 800; step++) {
        const size_t time_us = 60 * step, stream = number == 1 ? test_random_below(&random, 2) : 0;
        if (count < 64 && test_random_below(&random, 100) < 55) {
            const size_t bytes = (size_t)1 << test_random_below(&random, 25);
            fprintf(file, "a %zu %zu %zu %zu", next, bytes + test_random_below(&random, bytes), stream, time_us);
            fputs(number == 2 && next % 5 == 0 ? " align=4096 tag=fleet\n" : "\n", file);
            live[count++] = next++;
        } else if (count) {
            const size_t at = test_random_below(&random, count);
            if (number == 1 && live[at] % 3 == 0) fprintf(file, "u %zu %zu %zu\n", live[at], 1 - stream, time_us);
            fprintf(file, "f %zu %zu\n", live[at], time_us);
            live[at] = live[--count];
        }
    }
    fprintf(file, "a %zu 0 0 %d\n", next, 60 * 800); /* an empty block, and some are never freed */
    fclose(file);
}

static int make_programs(void **state)
{
    const int code = test_faults_prepare(state);
    if (code) return code;
    for (unsigned i = 0; i < PROGRAMS; i++) {
        snprintf(paths[i], sizeof paths[i], "/tmp/loch-fleet-%d-%u.trace", (int)getpid(), i);
        write_program(paths[i], i);
        if (!fleet_mix_add(&mix, paths[i])) return 1;
    }
    if (fleet_kind_read(&kind) != LOCH_OK) return 1;
    if (fleet_programs_load(&programs, &mix) != TOOL_DONE) return 1;
    return fleet_programs_measure(&programs, &kind, FLEET_FIT_LEAST, 2) == TOOL_DONE ? 0 : 1;
}

static int remove_programs(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PROGRAMS; i++)
        unlink(paths[i]);
    fleet_programs_free(&programs);
    fleet_mix_free(&mix);
    return 0;
}

static void get_needs(fleet_need *needs)
{
    for (size_t i = 0; i < PROGRAMS; i++)
        needs[i] = (fleet_need){.weight = 1 + (double)i,
                                .duration_ns = programs.list[i].duration_ns,
                                .bytes = programs.list[i].limit_bytes};
}

static fleet_work work_of(const fleet_plan *plan, bool is_shared)
{
    return (fleet_work){
        .kind = &kind, .programs = programs.list, .plan = plan, .is_shared = is_shared, .is_checked = true};
}

/* --- equal to a replay --- */

static void test_every_device_gives_what_replay_gives(void **state)
{
    (void)state;
    fleet_need needs[PROGRAMS];
    fleet_demand demand = {.needs = needs,
                           .needs_count = PROGRAMS,
                           .budget_bytes = kind.total_bytes,
                           .seed = test_seed(32),
                           .rate = 200,
                           .duration_s = 0.1,
                           .speeds = 0.7};
    fleet_plan plan;
    fleet_total total;
    uint64_t events = 0;
    get_needs(needs);
    assert_int_equal(fleet_plan_make(&plan, &demand, 5), FLEET_PLANNED);
    assert_true(plan.stints_count > 15); /* several a device */
    const fleet_work work = work_of(&plan, false);
    CHECK_OK(fleet_run(&work, 1, &total));
    for (size_t i = 0; i < plan.stints_count; i++)
        events += programs.list[plan.stints[i].program].events.count;
    assert_int_equal(total.sum.checked, plan.stints_count);
    assert_int_equal(total.sum.differing, 0);
    assert_int_equal(total.sum.killed, 0);
    assert_true(total.sum.events > 0 && total.sum.events < events); /* marks of the clock are not events */
    fleet_total_free(&total);
    fleet_plan_free(&plan);
}

/* The check can fail. */
static void test_a_difference_is_found(void **state)
{
    (void)state;
    fleet_figures got = programs.list[0].alone;
    char text[128];
    assert_false(fleet_figures_differ(&got, &programs.list[0].alone, text, sizeof text));
    got.driver_calls[LOCH_CALL_map]++;
    assert_true(fleet_figures_differ(&got, &programs.list[0].alone, text, sizeof text));
    assert_non_null(strstr(text, "calls of map"));
    got.peak_reserved++;
    assert_true(fleet_figures_differ(&got, &programs.list[0].alone, text, sizeof text));
    assert_non_null(strstr(text, "peak_reserved"));

    fleet_program changed = programs.list[0];
    fleet_stint stint = {.end_ns = changed.duration_ns, .next = FLEET_NO_STINT};
    uint32_t first = 0;
    double speed = 1;
    const fleet_plan plan = {.devices = 1, .stints = &stint, .stints_count = 1, .first = &first, .speeds = &speed};
    fleet_work work = work_of(&plan, false);
    fleet_outcome outcome;
    changed.alone.driver_ns++;
    work.programs = &changed;
    fleet_device_run(&work, 0, &outcome);
    CHECK_OK(outcome.status);
    assert_int_equal(outcome.differing, 1);
    assert_non_null(strstr(outcome.sentence, "driver_ns"));
}

static void test_limits_that_were_measured(void **state)
{
    (void)state;
    for (size_t i = 0; i < PROGRAMS; i++) {
        const fleet_program *program = &programs.list[i];
        bool fits;
        assert_true(program->least_bytes >= program->alone.peak_requested);
        assert_true(program->least_bytes <= program->alone.peak_reserved);
        assert_true(program->mean_requested > 0 && program->mean_requested < (double)program->alone.peak_requested);
        CHECK_OK(fleet_device_try(&kind, program, program->least_bytes, &fits));
        assert_true(fits);
        CHECK_OK(fleet_device_try(&kind, program, program->alone.peak_requested / 2, &fits));
        assert_false(fits);
    }
}

/* --- sharing --- */

/* Gives each program what it holds alone and a quarter more: a pool decides differently when its process is older. */
static void widen_limits(uint64_t before[PROGRAMS])
{
    for (size_t i = 0; i < PROGRAMS; i++) {
        before[i] = programs.list[i].limit_bytes;
        programs.list[i].limit_bytes = programs.list[i].alone.peak_reserved / 4 * 5;
    }
}

static void restore_limits(const uint64_t before[PROGRAMS])
{
    for (size_t i = 0; i < PROGRAMS; i++)
        programs.list[i].limit_bytes = before[i];
}

static fleet_planned plan_shared(fleet_plan *plan, uint64_t budget_bytes, double failures)
{
    fleet_need needs[PROGRAMS];
    const fleet_demand demand = {.needs = needs,
                                 .needs_count = PROGRAMS,
                                 .budget_bytes = budget_bytes,
                                 .seed = test_seed(33),
                                 .rate = 90,
                                 .duration_s = 0.3,
                                 .is_shared = true,
                                 .speeds = 0.3,
                                 .failures = failures,
                                 .repair_s = 0.05};
    get_needs(needs);
    return fleet_plan_make(plan, &demand, 4);
}

static bool totals_are_equal(const fleet_total *a, const fleet_total *b)
{
    const fleet_outcome *x = &a->sum, *y = &b->sum;
    return x->events == y->events && x->stints == y->stints && x->cut == y->cut && x->killed == y->killed &&
           x->peak_held == y->peak_held && x->late_ns == y->late_ns && x->driver_ns == y->driver_ns &&
           !memcmp(x->driver_calls, y->driver_calls, sizeof x->driver_calls) && !strcmp(x->sentence, y->sentence) &&
           a->held_count == b->held_count && !memcmp(a->held, b->held, a->held_count * sizeof *a->held) &&
           a->devices_killing == b->devices_killing;
}

/* Memory is short, so some programs are refused it; devices fail. The number of processes changes nothing. */
static void test_any_number_of_processes_gives_one_result(void **state)
{
    (void)state;
    const uint64_t total_bytes = 3 * programs.list[0].limit_bytes;
    fleet_plan plan;
    fleet_total first, total;
    assert_int_equal(plan_shared(&plan, 3 * total_bytes, 60000), FLEET_PLANNED);
    assert_true(plan.failures > 0 && plan.moved > 0);
    fleet_work work = work_of(&plan, true);
    work.limit_bytes = total_bytes;
    CHECK_OK(fleet_run(&work, 1, &first));
    assert_int_equal(first.sum.stints, plan.stints_count);
    assert_true(first.sum.cut > 0 && first.sum.killed > 0);
    assert_true(first.sum.peak_held <= total_bytes);
    assert_true(*first.sum.sentence);
    for (size_t workers = 2; workers <= 4; workers++) {
        CHECK_OK(fleet_run(&work, workers, &total));
        assert_true(totals_are_equal(&first, &total));
        fleet_total_free(&total);
    }
    fleet_total_free(&first);
    fleet_plan_free(&plan);
}

/* Programs whose limits fit together are refused no memory. */
static void test_limits_that_fit_are_enough(void **state)
{
    (void)state;
    uint64_t limits[PROGRAMS];
    fleet_plan plan;
    fleet_total total;
    widen_limits(limits);
    assert_int_equal(plan_shared(&plan, kind.total_bytes, 0), FLEET_PLANNED);
    const fleet_work work = work_of(&plan, true);
    CHECK_OK(fleet_run(&work, 1, &total));
    assert_int_equal(total.sum.killed, 0);
    assert_int_equal(total.sum.checked, 0); /* nothing to compare with: programs shared devices */
    assert_true(total.sum.peak_held > programs.list[0].alone.peak_reserved);
    restore_limits(limits);
    fleet_total_free(&total);
    fleet_plan_free(&plan);
}

/* --- failures of devices --- */

/* A stint that is cut at any moment runs the events before that moment, and the device serves the next one. */
static void test_a_device_that_fails_at_any_moment(void **state)
{
    (void)state;
    const fleet_program *program = &programs.list[1];
    uint64_t before = 0, limits[PROGRAMS];
    widen_limits(limits);
    for (uint64_t at = 0; at <= 8; at++) {
        fleet_stint stints[2] = {{.end_ns = at * program->duration_ns / 9, .program = 1, .next = 1, .is_cut = true},
                                 {.program = 1, .next = FLEET_NO_STINT}};
        uint32_t first = 0;
        double speed = 1;
        const fleet_plan plan = {.devices = 1, .stints = stints, .stints_count = 2, .first = &first, .speeds = &speed};
        const fleet_work works[2] = {work_of(&plan, false), work_of(&plan, true)};
        fleet_outcome outcomes[2];
        stints[1].start_ns = stints[0].end_ns + MILLISECOND;
        stints[1].end_ns = stints[1].start_ns + program->duration_ns;
        for (int i = 0; i < 2; i++) {
            fleet_device_run(&works[i], 0, &outcomes[i]);
            CHECK_OK(outcomes[i].status);
            assert_int_equal(outcomes[i].cut, 1);
            assert_int_equal(outcomes[i].stints, 2);
        }
        assert_int_equal(outcomes[0].checked, 1); /* the second one */
        assert_int_equal(outcomes[0].differing, 0);
        assert_int_equal(outcomes[0].events, outcomes[1].events);
        assert_true(at ? outcomes[0].events > before : outcomes[0].events > 0);
        before = outcomes[0].events;
    }
    restore_limits(limits);
}

/* --- what goes wrong --- */

static void test_devices_that_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "cpu", "cuda:0", "sim:1GiB,id=3", "sim:1GiB,clock=seeded", "sim:1GiB,backed", "sim:", "sim:1GiB,nonsense"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fleet_kind wrong = {.device = names[i]};
        CHECK_FAILS(fleet_kind_read(&wrong), INVALID);
    }
    const fleet_kind small = {.device = "sim:16MiB", .total_bytes = 16 * TEST_MIB, .granule_bytes = 2 * TEST_MIB};
    fleet_program program;
    fleet_figures figures;
    assert_true(fleet_program_load(&program, &mix.entries[0]));
    CHECK_FAILS(fleet_program_measure(&program, &small, &figures), DEVICE_MEMORY);
    fleet_program_unload(&program);
}

static bool end_itself(size_t piece, void *user)
{
    if (getpid() != *(const pid_t *)user) raise(SIGKILL);
    if (!piece) usleep(100000); /* so that the other processes get a piece */
    return true;
}

static bool stop_at_three(size_t piece, void *user)
{
    size_t *count = user;
    ++*count;
    return piece < 3;
}

static void test_workers_that_end_early(void **state)
{
    (void)state;
    const pid_t self = getpid();
    fleet_effort effort;
    size_t count = 0;
    CHECK_FAILS(fleet_workers_run(3, 1000, "pieces", end_itself, (void *)(uintptr_t)&self, &effort), CANCELLED);
    CHECK_OK(fleet_workers_run(1, 1000, "pieces", stop_at_three, &count, &effort));
    assert_int_equal(count, 4);
}

/* Every second allocation of the program's own fails in turn, for good. */
static void test_a_device_without_host_memory(void **state)
{
    (void)state;
    fleet_plan plan;
    fleet_outcome outcome = {.status = LOCH_E_HOST_MEMORY};
    assert_int_equal(plan_shared(&plan, kind.total_bytes, 60000), FLEET_PLANNED);
    const fleet_work work = work_of(&plan, true);
    uint64_t failed = 0;
    for (uint64_t left = 0; outcome.status == LOCH_E_HOST_MEMORY; left += 2) {
        tool_heap_left = left;
        fleet_device_run(&work, 0, &outcome);
        tool_heap_left = UINT64_MAX;
        if (outcome.status == LOCH_OK) break;
        assert_true(*outcome.sentence);
        failed++;
    }
    CHECK_OK(outcome.status);
    assert_true(failed > 4);
    fleet_plan_free(&plan);
}

static void run_under_faults(test_round *round, const void *user)
{
    fleet_outcome outcome;
    test_round_begin(round, NULL);
    fleet_device_run(user, 0, &outcome);
    test_round_end(round);
    round->call = "fleet_device_run";
    round->is_felt = outcome.status != LOCH_OK || outcome.killed;
    if (outcome.status != LOCH_OK) assert_int_equal(outcome.status, LOCH_E_HOST_MEMORY);
}

static void test_the_library_without_host_memory(void **state)
{
    (void)state;
    test_faults faults = test_host_faults;
    uint64_t limits[PROGRAMS];
    fleet_stint stints[2] = {{.program = 0, .next = 1}, {.program = 1, .next = FLEET_NO_STINT}};
    uint32_t first = 0;
    double speed = 1;
    const fleet_plan plan = {.devices = 1, .stints = stints, .stints_count = 2, .first = &first, .speeds = &speed};
    fleet_work work = work_of(&plan, true);
    stints[0].end_ns = programs.list[0].duration_ns;
    stints[1].start_ns = stints[0].end_ns / 2;
    stints[1].end_ns = stints[1].start_ns + programs.list[1].duration_ns;
    work.is_checked = false;
    widen_limits(limits); /* without a fault, no memory is refused */
    faults.stride = 29;
    const test_rounds rounds = test_rounds_run(&faults, "a shared device", run_under_faults, &work);
    restore_limits(limits);
    assert_true(rounds.places > 10);
    assert_true(rounds.felt > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_device_gives_what_replay_gives),
        cmocka_unit_test(test_a_difference_is_found),
        cmocka_unit_test(test_limits_that_were_measured),
        cmocka_unit_test(test_any_number_of_processes_gives_one_result),
        cmocka_unit_test(test_limits_that_fit_are_enough),
        cmocka_unit_test(test_a_device_that_fails_at_any_moment),
        cmocka_unit_test(test_devices_that_are_refused),
        cmocka_unit_test(test_workers_that_end_early),
        cmocka_unit_test(test_a_device_without_host_memory),
        cmocka_unit_test(test_the_library_without_host_memory),
    };
    return cmocka_run_group_tests(tests, make_programs, remove_programs);
}
