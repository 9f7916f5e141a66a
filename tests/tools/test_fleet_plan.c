/* SPDX-License-Identifier: MIT */
/* Plans of a fleet: arrivals, room, failures, waits, and the smallest number of devices. */
#include "test.h"
#include "tool_heap.h"
#include "fleet_find.h"
#include "fleet_mix.h"
#include <math.h>

#define SECOND UINT64_C(1000000000)

static const fleet_need needs[] = {
    {.weight = 3, .duration_ns = 2 * SECOND, .bytes = 10, .compute = 100},
    {.weight = 1, .duration_ns = 7 * SECOND, .bytes = 60, .compute = 0},
    {.weight = 2, .duration_ns = SECOND / 2, .bytes = 35, .compute = 600},
};

static fleet_demand demand_of(uint64_t seed)
{
    return (fleet_demand){.needs = needs,
                          .needs_count = 3,
                          .budget_bytes = 100,
                          .seed = seed,
                          .rate = 2,
                          .duration_s = 100,
                          .repair_s = 5};
}

/* --- arrivals --- */

/* The numbers of arrivals in windows of a Poisson process have a variance equal to their mean. */
static void test_arrivals_are_poisson(void **state)
{
    (void)state;
    fleet_demand demand = demand_of(test_seed(21));
    fleet_plan plan;
    double sum = 0, squares = 0;
    size_t counts[1000] = {0};
    demand.rate = 50;
    demand.duration_s = 1000;
    assert_int_equal(fleet_plan_make(&plan, &demand, 1000), FLEET_PLANNED);
    for (size_t i = 0; i < plan.requests_count; i++) {
        assert_true(!i || plan.requests[i].arrival_ns >= plan.requests[i - 1].arrival_ns);
        counts[plan.requests[i].arrival_ns / SECOND]++;
    }
    for (size_t i = 0; i < 1000; i++) {
        sum += (double)counts[i];
        squares += (double)counts[i] * (double)counts[i];
    }
    const double mean = sum / 1000, variance = squares / 1000 - mean * mean;
    assert_true(fabs(mean - 50) < 1.5);
    assert_true(variance > 35 && variance < 68);
    fleet_plan_free(&plan);
}

static void test_heavy_arrivals_come_in_bursts(void **state)
{
    (void)state;
    fleet_demand demand = demand_of(test_seed(22));
    fleet_plan plan;
    double gaps = 0, squares = 0;
    demand.rate = 50;
    demand.duration_s = 1000;
    demand.shape = 2.5;
    assert_int_equal(fleet_plan_make(&plan, &demand, 1000), FLEET_PLANNED);
    for (size_t i = 1; i < plan.requests_count; i++) {
        const double gap = (double)(plan.requests[i].arrival_ns - plan.requests[i - 1].arrival_ns) / 1e9;
        gaps += gap;
        squares += gap * gap;
    }
    const double count = (double)plan.requests_count - 1, mean = gaps / count;
    assert_true(squares / count > 2.5 * mean * mean); /* 2 for exponential gaps */
    fleet_plan_free(&plan);
}

static void test_more_devices_have_the_same_requests(void **state)
{
    (void)state;
    const fleet_demand demand = demand_of(test_seed(23));
    fleet_plan few, many;
    assert_int_equal(fleet_plan_make(&few, &demand, 3), FLEET_PLANNED);
    assert_int_equal(fleet_plan_make(&many, &demand, 40), FLEET_PLANNED);
    assert_int_equal(few.requests_count, many.requests_count);
    for (size_t i = 0; i < few.requests_count; i++) {
        assert_int_equal(few.requests[i].arrival_ns, many.requests[i].arrival_ns);
        assert_int_equal(few.requests[i].program, many.requests[i].program);
    }
    fleet_plan_free(&few);
    fleet_plan_free(&many);
}

/* --- what a plan promises --- */

/* Checks that at the start of each stint its device has room for all that run there then. */
static void check_room(const fleet_plan *plan, const fleet_demand *demand)
{
    for (size_t device = 0; device < plan->devices; device++)
        for (uint32_t at = plan->first[device]; at != FLEET_NO_STINT; at = plan->stints[at].next) {
            uint64_t bytes = 0, compute = 0, running = 0;
            for (uint32_t i = plan->first[device]; i != FLEET_NO_STINT; i = plan->stints[i].next) {
                const fleet_stint *stint = &plan->stints[i];
                assert_int_equal(stint->device, device);
                if (stint->start_ns > plan->stints[at].start_ns || stint->end_ns <= plan->stints[at].start_ns) continue;
                bytes += demand->needs[stint->program].bytes;
                compute += demand->needs[stint->program].compute;
                running++;
            }
            assert_true(bytes <= demand->budget_bytes && compute <= 1000);
            if (!demand->is_shared) assert_true(running <= 1);
        }
}

/* Checks that each request runs until one of its stints is not cut, and the figures of the plan. */
static void check_requests(const fleet_plan *plan, const fleet_demand *demand)
{
    uint64_t done = 0, given_up = 0, moved = 0, cut = 0;
    uint32_t *tries = calloc(plan->requests_count + 1, sizeof *tries); /* never of 0 bytes */
    bool *is_done = calloc(plan->requests_count + 1, sizeof *is_done);
    assert_true(tries && is_done);
    for (size_t i = 0; i < plan->stints_count; i++) {
        const fleet_stint *stint = &plan->stints[i];
        const fleet_request *request = &plan->requests[stint->request];
        assert_true(!i || stint->start_ns >= stint[-1].start_ns);
        assert_false(is_done[stint->request]);
        assert_int_equal(stint->program, request->program);
        assert_true(stint->start_ns >= request->arrival_ns);
        moved += tries[stint->request]++ > 0;
        is_done[stint->request] = !stint->is_cut;
        cut += stint->is_cut;
        if (is_done[stint->request]) assert_int_equal(request->wait_ns, stint->start_ns - request->arrival_ns);
        const double expected = (double)demand->needs[stint->program].duration_ns / plan->speeds[stint->device];
        const double length = (double)(stint->end_ns - stint->start_ns);
        assert_true(stint->is_cut ? length <= expected + 1000 : fabs(length - expected) <= 1001);
    }
    for (size_t i = 0; i < plan->requests_count; i++) {
        assert_int_equal(plan->requests[i].is_done, is_done[i]);
        done += is_done[i];
        if (is_done[i]) continue;
        given_up++;
        assert_int_equal(tries[i], FLEET_TRIES_MAX);
    }
    assert_int_equal(given_up, plan->given_up);
    assert_int_equal(done + given_up, plan->requests_count);
    assert_int_equal(moved, plan->moved);
    assert_true(cut == 0 || plan->failures > 0);
    free(tries);
    free(is_done);
}

static void test_a_plan_keeps_its_promises(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(24);
    uint64_t moved = 0, given_up = 0, waited = 0;
    for (uint64_t round = 0; round < 60; round++) {
        fleet_demand demand = demand_of(seed + round);
        fleet_plan plan;
        demand.is_shared = round % 2;
        demand.speeds = round % 3 ? 0.6 : 0;
        demand.failures = round % 5 == 4 ? 1500 : (double)(round % 5) * 40;
        demand.shape = round % 7 ? 0 : 1.5;
        assert_int_equal(fleet_plan_make(&plan, &demand, 1 + round % 11), FLEET_PLANNED);
        assert_true(plan.requests_count > 0);
        check_room(&plan, &demand);
        check_requests(&plan, &demand);
        moved += plan.moved;
        given_up += plan.given_up;
        for (size_t i = 0; i < plan.requests_count; i++)
            waited += plan.requests[i].wait_ns > 0;
        fleet_plan_free(&plan);
    }
    assert_true(moved > 0 && given_up > 0 && waited > 0); /* the cases occur */
}

/* Without failures no request overtakes another. */
static void test_requests_start_in_order(void **state)
{
    (void)state;
    fleet_demand demand = demand_of(test_seed(25));
    fleet_plan plan;
    demand.is_shared = true;
    assert_int_equal(fleet_plan_make(&plan, &demand, 2), FLEET_PLANNED);
    for (size_t i = 0; i < plan.stints_count; i++)
        assert_int_equal(plan.stints[i].request, i);
    fleet_plan_free(&plan);
}

static void test_requests_at_the_start_take_turns(void **state)
{
    (void)state;
    const fleet_demand demand = {
        .needs = needs, .needs_count = 3, .budget_bytes = 100, .requests = 9, .takes_turns = true};
    fleet_plan plan;
    assert_int_equal(fleet_plan_make(&plan, &demand, 9), FLEET_PLANNED);
    assert_int_equal(plan.used_devices, 9);
    assert_int_equal(plan.span_ns, 7 * SECOND);
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(plan.stints[i].device, i);
        assert_int_equal(plan.stints[i].program, i % 3);
        assert_int_equal(plan.stints[i].start_ns, 0);
    }
    fleet_plan_free(&plan);
}

static void test_no_requests(void **state)
{
    (void)state;
    fleet_demand demand = demand_of(1);
    fleet_plan plan;
    uint64_t waits[1];
    demand.rate = 1e-6;
    assert_int_equal(fleet_plan_make(&plan, &demand, 4), FLEET_PLANNED);
    assert_int_equal(plan.requests_count, 0);
    assert_int_equal(plan.span_ns, 100 * SECOND);
    assert_int_equal(fleet_plan_wait(&plan, 0.99, waits), 0);
    fleet_plan_free(&plan);
    demand.rate = 1e6;
    demand.duration_s = 1e6;
    assert_int_equal(fleet_plan_make(&plan, &demand, 4), FLEET_TOO_MANY);
    fleet_plan_free(&plan);
}

static void test_a_plan_without_memory(void **state)
{
    (void)state;
    fleet_demand demand = demand_of(3);
    fleet_plan plan;
    fleet_planned planned = FLEET_NO_MEMORY;
    demand.failures = 100;
    for (uint64_t left = 0; planned == FLEET_NO_MEMORY; left++) {
        assert_true(left < 1000);
        tool_heap_left = left;
        planned = fleet_plan_make(&plan, &demand, 5);
        tool_heap_left = UINT64_MAX;
        fleet_plan_free(&plan);
    }
    assert_int_equal(planned, FLEET_PLANNED);
}

/* --- the smallest fleet --- */

static bool meets(const fleet_demand *demand, const fleet_goal *goal, size_t devices)
{
    fleet_plan plan;
    uint64_t waits[4096];
    assert_int_equal(fleet_plan_make(&plan, demand, devices), FLEET_PLANNED);
    assert_true(plan.requests_count < 4096);
    const bool is_met = fleet_plan_wait(&plan, goal->quantile, waits) <= goal->wait_ns &&
                        (double)plan.given_up <= goal->lost * (double)plan.requests_count;
    fleet_plan_free(&plan);
    return is_met;
}

static void test_the_smallest_fleet_is_found(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(26);
    size_t shared = 0, unshared = 0;
    for (uint64_t round = 0; round < 20; round++) {
        fleet_demand demand = demand_of(seed + round / 2);
        const fleet_goal goal = {.quantile = 0.95, .wait_ns = round % 3 * SECOND};
        size_t devices = 0;
        demand.is_shared = round % 2;
        assert_int_equal(fleet_find(&demand, &goal, 1000, &devices), FLEET_FOUND);
        assert_true(meets(&demand, &goal, devices));
        if (devices > 1) assert_false(meets(&demand, &goal, devices - 1));
        *(demand.is_shared ? &shared : &unshared) += devices;
        if (devices > 1) assert_int_equal(fleet_find(&demand, &goal, devices - 1, &devices), FLEET_FOUND_NONE);
    }
    assert_true(shared < unshared);
}

static void test_a_search_without_memory(void **state)
{
    (void)state;
    const fleet_demand demand = demand_of(3);
    const fleet_goal goal = {.quantile = 0.9, .wait_ns = SECOND};
    fleet_found found = FLEET_FOUND_NO_MEMORY;
    size_t devices = 0;
    for (uint64_t left = 0; found == FLEET_FOUND_NO_MEMORY; left++) {
        assert_true(left < 10000);
        tool_heap_left = left;
        found = fleet_find(&demand, &goal, 100, &devices);
        tool_heap_left = UINT64_MAX;
    }
    assert_int_equal(found, FLEET_FOUND);
    assert_true(devices > 1);
}

static void test_quantiles(void **state)
{
    (void)state;
    uint64_t numbers[] = {50, 10, 40, 20, 30};
    fleet_sort(numbers, 5);
    assert_int_equal(fleet_quantile(numbers, 5, 0), 10);
    assert_int_equal(fleet_quantile(numbers, 5, 0.5), 30);
    assert_int_equal(fleet_quantile(numbers, 5, 0.8), 40);
    assert_int_equal(fleet_quantile(numbers, 5, 0.81), 50);
    assert_int_equal(fleet_quantile(numbers, 5, 1), 50);
    assert_int_equal(fleet_quantile(numbers, 0, 0.5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrivals_are_poisson),
        cmocka_unit_test(test_heavy_arrivals_come_in_bursts),
        cmocka_unit_test(test_more_devices_have_the_same_requests),
        cmocka_unit_test(test_a_plan_keeps_its_promises),
        cmocka_unit_test(test_requests_start_in_order),
        cmocka_unit_test(test_requests_at_the_start_take_turns),
        cmocka_unit_test(test_no_requests),
        cmocka_unit_test(test_a_plan_without_memory),
        cmocka_unit_test(test_the_smallest_fleet_is_found),
        cmocka_unit_test(test_a_search_without_memory),
        cmocka_unit_test(test_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
