/* SPDX-License-Identifier: MIT */
#include "plan.h"
#include "check.h"
#include "make.h"
#include "memory.h"
#include "problem.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <inttypes.h>
#include <string.h>

loch_plan *lochi_plan_create_empty(size_t count)
{
    loch_plan *plan = lochi_plan_alloc(1, sizeof *plan);
    if (!plan) return NULL;
    plan->info = (loch_plan_info){.size = sizeof plan->info, .count = count};
    plan->offsets = lochi_plan_alloc(count, sizeof *plan->offsets);
    if (plan->offsets) return plan;
    lochi_plan_free(plan);
    return NULL;
}

void loch_plan_destroy(loch_plan *plan)
{
    if (!plan) return;
    lochi_plan_free(plan->offsets);
    lochi_plan_free(plan);
}

static loch_status plan_read_options(const loch_plan_options *options, loch_plan_options *out)
{
    *out = (loch_plan_options){.size = sizeof *out};
    LOCH_RETURN(lochi_sized_read("the options of a plan", options, out, sizeof *out));
    if (!out->time_limit_ns) out->time_limit_ns = LOCH_PLAN_TIME_DEFAULT_NS;
    if (!out->threads) out->threads = 1;
    if (out->threads > 1024 || (unsigned)out->method > LOCH_PLAN_GREEDY)
        return LOCH_FAIL(INVALID, "a plan takes at most 1024 threads, and a known method");
    return LOCH_OK;
}

loch_status loch_plan_create(const loch_plan_problem *problem, const loch_plan_options *options, loch_plan **out)
{
    loch_plan_options read;
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the plan is NULL");
    *out = NULL;
    loch_status status = lochi_plan_problem_check(problem);
    if (status == LOCH_OK) status = plan_read_options(options, &read);
    if (status != LOCH_OK) return status;
    loch_plan *plan = lochi_plan_create_empty(problem->count);
    if (!plan) return LOCH_FAIL(HOST_MEMORY, "there is no memory for a plan");
    plan->info.fingerprint = lochi_plan_problem_fingerprint(problem);
    status = lochi_plan_make(problem, &read, plan);
    if (status != LOCH_OK) {
        loch_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return LOCH_OK;
}

loch_status loch_plan_get_info(const loch_plan *plan, loch_plan_info *out)
{
    if (!plan || !out || out->size < sizeof(size_t) + sizeof out->count)
        return LOCH_FAIL(INVALID, "figures of a plan need the plan and their size");
    const size_t size = out->size;
    memcpy(out, &plan->info, size < sizeof *out ? size : sizeof *out);
    out->size = size;
    return LOCH_OK;
}

const uint64_t *loch_plan_get_offsets(const loch_plan *plan)
{
    return plan ? plan->offsets : NULL;
}

loch_status loch_plan_check(const loch_plan *plan, const loch_plan_problem *problem)
{
    uint64_t height, bound;
    if (!plan) return LOCH_FAIL(INVALID, "there is no plan to check");
    loch_status status = lochi_plan_problem_check(problem);
    if (status != LOCH_OK) return status;
    if (plan->info.count != problem->count || plan->info.fingerprint != lochi_plan_problem_fingerprint(problem))
        return LOCH_FAIL(NOT_FOUND, "the plan is of another problem: %zu buffers with fingerprint %016" PRIx64,
                         plan->info.count, plan->info.fingerprint);
    status = lochi_plan_check_offsets(problem, plan->offsets, &height);
    if (status != LOCH_OK) return status;
    if (!lochi_plan_problem_bound(problem, &bound)) return LOCH_FAIL(HOST_MEMORY, "there is no memory to check a plan");
    const loch_plan_info *info = &plan->info;
    if (height != info->height || info->lower_bound > height || info->lower_bound < bound ||
        info->is_best != (info->lower_bound == height))
        return LOCH_FAIL(CORRUPT, "the plan has a height of %" PRIu64 " and says %" PRIu64 " with a bound of %" PRIu64,
                         height, info->height, info->lower_bound);
    return LOCH_OK;
}
