/* SPDX-License-Identifier: MIT */
/* Fuzz target: the file of a budget, as a hostile or broken process may have written it. The input lies over a good
 * file from its first byte, or from the first slot. Reading it, looking at it, joining and growing succeed or fail
 * with a status; what is read keeps to its sizes. */
#include "fuzz.h"
#include "layout.h"
#include "rules.h"
#include "text.h"
#include <fcntl.h>
#include <loch/budget.h>
#include <unistd.h>

#define BUDGET_ANY                                                                                                     \
    (TEST_SET(CORRUPT) | TEST_SET(UNSUPPORTED) | TEST_SET(LIMIT) | TEST_SET(NOT_FOUND) | TEST_SET(EXISTS) |            \
     TEST_SET(INVALID) | TEST_SET(FRAGMENTED) | TEST_SET(OVERFLOW))

static char budget_path[96];
static loch_allocator *budget_pool;

static void budget_write(const uint8_t *data, size_t bytes, size_t place)
{
    static uint8_t file[BUDGET_FILE_BYTES];
    budget_head head = {.version = BUDGET_VERSION,
                        .slot_bytes = sizeof(budget_slot),
                        .total = 64 * TEST_MIB,
                        .chunk = TEST_MIB,
                        .high = 4,
                        .state = BUDGET_FILE_LIVE};
    memcpy(head.magic, BUDGET_MAGIC, sizeof head.magic);
    memset(file, 0, sizeof file);
    memcpy(file, &head, sizeof head);
    if (bytes > sizeof file - place) bytes = sizeof file - place;
    memcpy(file + place, data, bytes);
    const int fd = open(budget_path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    FUZZ_EXPECT(fd >= 0 && write(fd, file, sizeof file) == (ssize_t)sizeof file);
    close(fd);
}

static loch_status budget_visit(const loch_budget_member_info *info, void *user)
{
    (void)user;
    FUZZ_EXPECT(memchr(info->name, 0, sizeof info->name) && memchr(info->program, 0, sizeof info->program) &&
                memchr(info->device, 0, sizeof info->device));
    return LOCH_OK;
}

static void budget_expect(loch_status status)
{
    if (status != LOCH_OK) FUZZ_FAILED(status, BUDGET_ANY);
    loch_error_clear();
}

static void budget_use(loch_budget_access access)
{
    const loch_budget_options options = {.size = sizeof options, .wait_ns = 1, .access = access};
    loch_budget_info info = {.size = sizeof info};
    loch_budget *budget;
    loch_budget_member *member;
    loch_status status = loch_budget_open(budget_path, &options, &budget);
    budget_expect(status);
    if (status != LOCH_OK) return;
    status = loch_budget_get_info(budget, &info);
    budget_expect(status);
    FUZZ_EXPECT(status != LOCH_OK || (memchr(info.name, 0, sizeof info.name) && info.members <= BUDGET_SLOTS));
    budget_expect(loch_budget_walk_members(budget, budget_visit, NULL));
    if (access == LOCH_BUDGET_JOIN) {
        status = loch_budget_member_create(budget, budget_pool, NULL, NULL, &member);
        budget_expect(status);
        if (status == LOCH_OK) budget_expect(loch_budget_member_prepare(member, 8 * TEST_MIB));
        loch_budget_member_destroy(member);
    }
    loch_budget_close(budget);
}

/* The rules and the sentences on a table as it stands, which reading would have refused or mended in part. */
static void budget_try_table(const uint8_t *data, size_t bytes)
{
    static budget_table table;
    char text[160];
    memset(&table, 0, sizeof table);
    memcpy(&table, data, bytes < sizeof table ? bytes : sizeof table);
    table.head.high %= BUDGET_SLOTS + 1;
    for (size_t i = 0; i < table.head.high; i++) {
        table.slots[i].name[sizeof table.slots[i].name - 1] = '\0';
        FUZZ_EXPECT(lochi_budget_rules_most(&table, i) >= table.slots[i].granted);
    }
    if (table.head.high) (void)lochi_budget_rules_ask(&table, 0, table.head.total, table.head.high - 1);
    lochi_budget_text_holders(&table, text, sizeof text);
    FUZZ_EXPECT(strlen(text) < sizeof text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!budget_pool) { /* stays */
        loch_device *device;
        snprintf(budget_path, sizeof budget_path, "/dev/shm/loch-fuzz-%ld.budget", (long)getpid());
        CHECK_OK(loch_device_open("sim:1GiB", &device));
        CHECK_OK(loch_pool_create(device, "fuzz", NULL, &budget_pool));
    }
    loch_error_clear();
    budget_try_table(data, bytes);
    for (size_t place = 0; place <= sizeof(budget_head); place += sizeof(budget_head)) {
        budget_write(data, bytes, place);
        budget_use(LOCH_BUDGET_LOOK);
        budget_use(LOCH_BUDGET_JOIN);
    }
    (void)unlink(budget_path);
    return 0;
}
