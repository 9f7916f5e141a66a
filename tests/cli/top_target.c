/* SPDX-License-Identifier: MIT */
/* A program to look at with `loch top`: two pools, a third one that has no blocks any more, and two tags. It allocates
 * and frees until its input ends, with a pause after each. Its standard output gets a line when everything is there. An
 * argument names a budget of 96 MiB, in which the first pool has a minimum. */
#include <loch/budget.h>
#include <poll.h>
#include <stdio.h>

/* Makes a pool a member of the budget with this name; of none if it is NULL. */
static void join(const char *name, loch_allocator *pool, loch_budget **budget, loch_budget_member **member)
{
    const loch_budget_options options = {.size = sizeof options, .total_bytes = (size_t)96 << 20};
    const loch_budget_member_options mine = {.size = sizeof mine, .minimum_bytes = (size_t)16 << 20};
    *budget = NULL;
    *member = NULL;
    if (!name) return;
    LOCH_CHECK(loch_budget_open(name, &options, budget));
    LOCH_CHECK(loch_budget_member_create(*budget, pool, "evil\033[31m", &mine, member));
}

int main(int count, char **arguments)
{
    loch_budget *budget;
    loch_budget_member *member;
    loch_device *device;
    loch_allocator *pools[2], *drained;
    loch_tag tags[2];
    void *blocks[16] = {NULL};
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = (size_t)64 << 20};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    LOCH_CHECK(loch_device_open("sim:1GiB", &device));
    LOCH_CHECK(loch_pool_create(device, "weights", &options, &pools[0]));
    LOCH_CHECK(loch_pool_create(device, "evil\033[31m", NULL, &pools[1])); /* a terminal must not obey it */
    LOCH_CHECK(loch_pool_create(device, "drained", NULL, &drained));
    LOCH_CHECK(loch_alloc(drained, (size_t)1 << 20, &blocks[0]));
    LOCH_CHECK(loch_free(drained, blocks[0]));
    blocks[0] = NULL;
    join(count > 1 ? arguments[1] : NULL, pools[0], &budget, &member);
    LOCH_CHECK(loch_tag_create("cache", &tags[0]));
    LOCH_CHECK(loch_tag_create("scratch", &tags[1]));
    for (unsigned i = 0; poll(&input, 1, i < 64 ? 0 : 1) == 0; i++) {
        const loch_request request = {
            .size = sizeof request, .bytes = (size_t)(1 + i % 5) << 18, .tag = tags[i / 2 % 2]};
        LOCH_CHECK(loch_free(pools[i % 2], blocks[i % 16]));
        LOCH_CHECK(loch_allocator_alloc(pools[i % 2], &request, &blocks[i % 16]));
        if (i == 64) puts("ready");
        if (i == 64) fflush(stdout);
    }
    for (unsigned i = 0; i < 16; i++)
        LOCH_CHECK(loch_free(pools[i % 2], blocks[i]));
    loch_budget_member_destroy(member);
    loch_budget_close(budget);
    loch_allocator_release(drained);
    loch_allocator_release(pools[0]);
    loch_allocator_release(pools[1]);
    loch_device_release(device);
    return 0;
}
