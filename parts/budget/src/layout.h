/* SPDX-License-Identifier: MIT */
/* What is in the file of a budget: a head, then slots. Numbers are in the byte order of the machine. Fields that change
 * together and must not be torn by a death lie in 16 aligned bytes at most. */
#ifndef BUDGET_LAYOUT_H
#define BUDGET_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define BUDGET_MAGIC "LochBudg"
#define BUDGET_VERSION 1
#define BUDGET_SLOTS 128
#define BUDGET_NAME_BYTES 48
#define BUDGET_WEIGHT_MAX 1000000

typedef enum budget_file_state {
    BUDGET_FILE_LIVE = 1,
    BUDGET_FILE_REMOVED /* no process may join; the next one that opens the file removes it */
} budget_file_state;

typedef struct budget_head {
    char magic[8];
    uint32_t version, slot_bytes;
    uint64_t total, chunk;
    uint32_t state; /* budget_file_state */
    uint32_t high;  /* slots behind this one have never been used */
    uint32_t bell;  /* changes when a member gives back */
    uint32_t unused;
    char name[BUDGET_NAME_BYTES];
    uint64_t spare[20];
} budget_head;

typedef enum budget_slot_kind { BUDGET_SLOT_FREE, BUDGET_SLOT_SEAT, BUDGET_SLOT_MEMBER } budget_slot_kind;

/* How much a member is asked to give. */
typedef enum budget_level {
    BUDGET_LEVEL_SLACK = 1, /* grants that its pool does not hold */
    BUDGET_LEVEL_SHARE,     /* free memory of its pool, down to its fair share */
    BUDGET_LEVEL_MINIMUM    /* free memory of its pool, down to its minimum */
} budget_level;

typedef struct budget_slot {
    uint32_t kind;  /* budget_slot_kind; written last by a join */
    uint32_t bell;  /* changes when the owner's thread has to look */
    int64_t pid;    /* in its own namespace */
    uint64_t start; /* of the process, in ticks since the machine started */
    uint64_t space; /* number of its pid namespace */
    uint64_t minimum, limit;
    uint64_t granted;
    uint64_t held, used; /* written together */
    uint64_t wanted;
    uint64_t asked, level; /* written together */
    uint32_t weight, unused;
    char name[BUDGET_NAME_BYTES], program[16], device[32];
    uint64_t image; /* a random number of the program that the process runs */
    uint64_t spare[6];
} budget_slot;

_Static_assert(sizeof(budget_head) == 256, "the head has its size");
_Static_assert(sizeof(budget_slot) == 256, "a slot has its size");

#define BUDGET_FILE_BYTES (sizeof(budget_head) + BUDGET_SLOTS * sizeof(budget_slot))

/* A copy of the file. Slots from `high` on are not read. */
typedef struct budget_table {
    budget_head head;
    budget_slot slots[BUDGET_SLOTS];
} budget_table;

/* Returns the place of a field of a slot in the file. */
#define BUDGET_PLACE(index, field)                                                                                     \
    (sizeof(budget_head) + (size_t)(index) * sizeof(budget_slot) + offsetof(budget_slot, field))

#endif
