/* SPDX-License-Identifier: MIT */
/* Runs a suite of the allocators' contract over planned pools: one that records, and one that has a plan for small
 * blocks, so that the blocks of the suite come from the plan and from the pool. Included after a suite whose main is
 * named contract_main. */
#ifndef LOCH_TEST_PLANNED_CONTRACT_H
#define LOCH_TEST_PLANNED_CONTRACT_H

#include <loch/planned.h>

#define CONTRACT_BLOCKS 16

/* Runs steps with blocks of 1 to 16 KiB until there is a plan for them. */
static loch_status contract_warm(loch_planned *planned)
{
    loch_allocator *allocator = loch_planned_get_allocator(planned);
    loch_status status = LOCH_OK;
    for (size_t step = 0; step < 5 && status == LOCH_OK; step++) {
        void *blocks[CONTRACT_BLOCKS] = {NULL};
        status = loch_planned_step(planned);
        for (size_t i = 0; i < CONTRACT_BLOCKS && status == LOCH_OK; i++)
            status = loch_alloc(allocator, (i + 1) << 10, &blocks[i]);
        for (size_t i = 0; i < CONTRACT_BLOCKS; i++) {
            const loch_status freed = loch_free(allocator, blocks[i]);
            if (status == LOCH_OK) status = freed;
        }
    }
    loch_planned_info info = {.size = sizeof info};
    if (status == LOCH_OK) status = loch_planned_get_info(planned, &info);
    if (status == LOCH_OK) assert_int_equal(info.planned, CONTRACT_BLOCKS);
    if (status == LOCH_OK) status = loch_allocator_reset_stats(allocator);
    return status;
}

static loch_status contract_create(loch_device *device, const char *kind, loch_allocator **out)
{
    loch_planned *planned = NULL;
    loch_allocator *pool = NULL;
    const loch_pool_options limit = {.size = sizeof limit, .limit_bytes = TEST_USER_CAPACITY};
    const loch_planned_options options = {.size = sizeof options,
                                          .threads = strcmp(kind, "planned-all") != 0 ? LOCH_PLANNED_ONE_THREAD
                                                                                      : LOCH_PLANNED_ALL_THREADS};
    loch_status status = loch_pool_create(device, NULL, &limit, &pool);
    if (status == LOCH_OK) status = loch_planned_create(pool, NULL, &options, &planned);
    if (status == LOCH_OK && strcmp(kind, "planned") != 0) status = contract_warm(planned);
    *out = status == LOCH_OK ? loch_allocator_retain(loch_planned_get_allocator(planned)) : NULL;
    loch_planned_destroy(planned);
    loch_allocator_release(pool);
    return status;
}

int main(void)
{
    static const char *const subjects[] = {"planned", "planned-warm", "planned-all", "tracking/planned-warm", NULL};
    test_stacks_own = subjects;
    test_stack_base_own = contract_create;
    return contract_main();
}

#endif
