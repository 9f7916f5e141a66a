/* SPDX-License-Identifier: MIT */
/* A folder for budgets of a test, and members with pools of their own on a simulated device. */
#ifndef LOCH_TEST_BUDGET_FIXTURE_H
#define LOCH_TEST_BUDGET_FIXTURE_H

#include "test.h"
#include <dirent.h>
#include <loch/budget.h>
#include <time.h>
#include <unistd.h>

#define BUDGET_DEVICE "sim:1GiB"
#define BUDGET_SECONDS 60 /* a deadline for what takes milliseconds */
#define BUDGET_UNUSED __attribute__((unused))

static char budget_folder_name[64], budget_path[96];

/* A group's setup: makes a folder. */
BUDGET_UNUSED static int budget_folder_begin(void **state)
{
    (void)state;
    snprintf(budget_folder_name, sizeof budget_folder_name, "/dev/shm/loch-test-XXXXXX");
    if (!mkdtemp(budget_folder_name)) return -1;
    snprintf(budget_path, sizeof budget_path, "%s/test.budget", budget_folder_name);
    return 0;
}

/* Its end: the folder must be empty. */
BUDGET_UNUSED static int budget_folder_end(void **state)
{
    (void)state;
    return rmdir(budget_folder_name);
}

BUDGET_UNUSED static loch_device *budget_device; /* BUDGET_DEVICE, while a group runs */

/* A group's setup: opens the device and makes a folder. */
BUDGET_UNUSED static int budget_begin(void **state)
{
    if (loch_device_open(BUDGET_DEVICE, &budget_device) != LOCH_OK) return -1;
    return budget_folder_begin(state);
}

/* Its end: closes the device; the folder must be empty. */
BUDGET_UNUSED static int budget_end(void **state)
{
    loch_device_release(budget_device);
    return budget_folder_end(state);
}

BUDGET_UNUSED static bool budget_is_there(void)
{
    return access(budget_path, F_OK) == 0;
}

BUDGET_UNUSED static loch_budget *budget_open(size_t total, uint64_t wait_ms)
{
    loch_budget *budget = NULL;
    const loch_budget_options options = {.size = sizeof options, .total_bytes = total, .wait_ns = wait_ms * 1000000};
    CHECK_OK(loch_budget_open(budget_path, &options, &budget));
    return budget;
}

/* A member with a pool of its own. */
typedef struct party {
    loch_allocator *pool;
    loch_budget_member *member;
} party;

BUDGET_UNUSED static party party_begin(loch_device *device, loch_budget *budget, const char *name, size_t minimum,
                                       size_t limit)
{
    party p = {NULL, NULL};
    const loch_budget_member_options options = {.size = sizeof options, .minimum_bytes = minimum, .limit_bytes = limit};
    CHECK_OK(loch_pool_create(device, name, NULL, &p.pool));
    CHECK_OK(loch_budget_member_create(budget, p.pool, NULL, &options, &p.member));
    return p;
}

BUDGET_UNUSED static void party_end(party *p)
{
    loch_budget_member_destroy(p->member);
    loch_allocator_release(p->pool);
    *p = (party){NULL, NULL};
}

BUDGET_UNUSED static loch_budget_member_info party_info(const party *p)
{
    loch_budget_member_info info = {.size = sizeof info};
    CHECK_OK(loch_budget_member_get_info(p->member, &info));
    return info;
}

BUDGET_UNUSED static loch_pool_info party_pool_info(const party *p)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(p->pool, &info));
    return info;
}

BUDGET_UNUSED static loch_budget_info budget_info(loch_budget *budget)
{
    loch_budget_info info = {.size = sizeof info};
    CHECK_OK(loch_budget_get_info(budget, &info));
    return info;
}

BUDGET_UNUSED static void budget_nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* Waits until a condition holds. */
#define BUDGET_AWAIT(condition)                                                                                        \
    do {                                                                                                               \
        const uint64_t start = loch_host_now_ns();                                                                     \
        while (!(condition)) {                                                                                         \
            if (loch_host_now_ns() - start > BUDGET_SECONDS * (uint64_t)1000000000)                                    \
                fail_msg("waited for " #condition);                                                                    \
            budget_nap();                                                                                              \
        }                                                                                                              \
    } while (0)

#endif
