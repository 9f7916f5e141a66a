/* SPDX-License-Identifier: MIT */
/* Fuzz target: tables of buffers, and plans in files. The first byte chooses which of them the rest is. A table that
 * loads gets a plan, which is right by the checker; a plan that loads is saved and comes back the same. */
#include "fuzz.h"

#include <loch/plan.h>
#include <unistd.h>

#define TABLE_REFUSALS (TEST_SET(INVALID) | TEST_SET(OVERFLOW))
#define PLAN_REFUSALS (TEST_SET(CORRUPT) | TEST_SET(UNSUPPORTED))
#define BUFFERS_MAX 60

static loch_status fuzz_stop(const loch_plan_progress *progress, void *user)
{
    (void)progress;
    (void)user;
    return LOCH_E_CANCELLED;
}

static void fuzz_table(const char *path, loch_plan_method method)
{
    loch_plan_problem *problem = TEST_UNTOUCHED;
    loch_plan *plan = TEST_UNTOUCHED;
    loch_error_clear();
    loch_status status = loch_plan_problem_load(path, &problem);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, TABLE_REFUSALS);
        FUZZ_EXPECT(!problem);
        return;
    }
    if (problem->count <= BUFFERS_MAX) {
        const loch_plan_options options = {.size = sizeof options, .method = method, .report = fuzz_stop};
        loch_error_clear();
        status = loch_plan_create(problem, &options, &plan);
        if (status != LOCH_OK) {
            FUZZ_FAILED(status, TEST_SET(INVALID));
            FUZZ_EXPECT(!plan);
        } else {
            CHECK_OK(loch_plan_check(plan, problem));
            loch_plan_destroy(plan);
        }
    }
    loch_plan_problem_destroy(problem);
}

static void fuzz_plan(const char *path)
{
    loch_plan *plan = TEST_UNTOUCHED, *again = NULL;
    loch_error_clear();
    const loch_status status = loch_plan_load(path, &plan);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, PLAN_REFUSALS);
        FUZZ_EXPECT(!plan);
        return;
    }
    char copy[] = "/tmp/loch-fuzz-XXXXXX";
    const int file = mkstemp(copy);
    FUZZ_EXPECT(file >= 0);
    close(file);
    CHECK_OK(loch_plan_save(plan, copy));
    CHECK_OK(loch_plan_load(copy, &again));
    loch_plan_info one = {.size = sizeof one}, two = {.size = sizeof two};
    CHECK_OK(loch_plan_get_info(plan, &one));
    CHECK_OK(loch_plan_get_info(again, &two));
    FUZZ_EXPECT(!memcmp(&one, &two, sizeof one));
    FUZZ_EXPECT(!memcmp(loch_plan_get_offsets(plan), loch_plan_get_offsets(again), one.count * sizeof(uint64_t)));
    loch_plan_destroy(plan);
    loch_plan_destroy(again);
    unlink(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    const uint8_t how = fuzz_byte(&input) % 4;
    fuzz_begin();
    if (how == 3)
        fuzz_plan(fuzz_file(&input));
    else
        fuzz_table(fuzz_file(&input), (loch_plan_method)how);
    fuzz_end();
    return 0;
}
