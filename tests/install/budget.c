/* SPDX-License-Identifier: MIT */
/* A program outside the tree that has a pool in a budget. */
#include <loch/budget.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    loch_device *cpu;
    loch_allocator *pool;
    loch_budget *budget;
    loch_budget_member *member;
    void *block;
    char path[64];
    const loch_budget_options options = {.size = sizeof options, .total_bytes = (size_t)16 << 20};
    snprintf(path, sizeof path, "/dev/shm/loch-install-%ld.budget", (long)getpid());
    LOCH_CHECK(loch_device_open("cpu", &cpu));
    LOCH_CHECK(loch_pool_create(cpu, "pool", NULL, &pool));
    LOCH_CHECK(loch_budget_open(path, &options, &budget));
    LOCH_CHECK(loch_budget_member_create(budget, pool, NULL, NULL, &member));
    LOCH_CHECK(loch_alloc(pool, (size_t)4 << 20, &block));
    const int is_wrong = loch_alloc(pool, (size_t)64 << 20, &(void *){NULL}) != LOCH_E_LIMIT;
    LOCH_CHECK(loch_free(pool, block));
    loch_budget_member_destroy(member);
    loch_budget_close(budget);
    loch_allocator_release(pool);
    loch_device_release(cpu);
    return is_wrong || access(path, F_OK) == 0;
}
