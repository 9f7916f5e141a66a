/* SPDX-License-Identifier: MIT */
/* Runs a suite of the allocators' contract over a pool that is a member of a budget: the budget has as many bytes as
 * the pool would have as its limit. A wrapper ends the member with the last reference. Included after a suite whose
 * main is named contract_main. */
#ifndef LOCH_TEST_BUDGET_CONTRACT_H
#define LOCH_TEST_BUDGET_CONTRACT_H

#include <loch/budget.h>
#include <stdatomic.h>
#include <errno.h>
#include <unistd.h>

typedef struct contract_member {
    loch_budget *budget;
    loch_budget_member *member;
} contract_member;

static void contract_end(void *self)
{
    contract_member *own = self;
    loch_budget_member_destroy(own->member);
    loch_budget_close(own->budget);
    free(own);
}

static loch_status contract_create(loch_device *device, const char *kind, loch_allocator **out)
{
    static atomic_uint number; /* a case may have several, also of several threads */
    static const loch_allocator_ops ops = {.size = sizeof ops, .kind = "budgeted", .destroy = contract_end};
    const loch_budget_options options = {.size = sizeof options, .total_bytes = TEST_USER_CAPACITY, .wait_ns = 1000000};
    const loch_budget_member_options whole = {.size = sizeof whole, .minimum_bytes = TEST_USER_CAPACITY};
    contract_member *own = calloc(1, sizeof *own);
    loch_allocator *pool = NULL;
    char path[96];
    snprintf(path, sizeof path, "/dev/shm/loch-contract-%ld-%u.budget", (long)getpid(), atomic_fetch_add(&number, 1));
    *out = NULL;
    assert_non_null(own);
    loch_status status = loch_pool_create(device, NULL, NULL, &pool);
    if (status == LOCH_OK) status = loch_budget_open(path, &options, &own->budget);
    if (status == LOCH_OK) /* all of it from the start, or as it is needed */
        status = loch_budget_member_create(own->budget, pool, NULL, strcmp(kind, "budget") != 0 ? &whole : NULL,
                                           &own->member);
    if (status == LOCH_OK) status = loch_wrapper_create(pool, NULL, &ops, own, out);
    if (status != LOCH_OK) contract_end(own);
    loch_allocator_release(pool);
    return status;
}

int main(void)
{
    /* A grant that grows takes retries, which one suite counts. */
    static const char *const subjects[] = {"budget-whole", "tracking/budget-whole", "budget", "tracking/budget", NULL};
    static const char *const whole[] = {"budget-whole", "tracking/budget-whole", NULL};
    test_stacks_own = strstr(program_invocation_short_name, "pressure") ? whole : subjects;
    test_stack_base_own = contract_create;
    return contract_main();
}

#endif
