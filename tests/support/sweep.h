/* SPDX-License-Identifier: MIT */
/* Faults in turn: of all that can fail, one thing after the other fails, once and for good, while a body of code runs.
 * A sweep ends when the body gets through without meeting the fault.
 *
 *   test_rounds_run     any body, any source of faults
 *   test_host_sweep     a small program while the library's own allocations fail
 *   test_scenario_sweep the scenario of scenario.h */
#ifndef LOCH_TEST_SWEEP_H
#define LOCH_TEST_SWEEP_H

#include "failing_heap.h"
#include "scenario.h"
#include <stdbool.h>

/* Where faults come from. */
typedef struct test_faults {
    const char *name;                                                    /* for messages */
    void (*set)(test_failing mode, uint64_t after, loch_device *device); /* TEST_FAILING_NEVER clears the fault */
    uint64_t (*count)(loch_device *device);                              /* things that could have failed since `set` */
    uint64_t stride;                                                     /* tries each `stride`th place; 0: all */
    test_failing only; /* one way of failing; TEST_FAILING_NEVER: both */
} test_faults;

extern const test_faults test_host_faults;   /* the library's own allocations; needs test_heap_install */
extern const test_faults test_sim_faults;    /* driver calls of one simulated device, by its own fault injection */
extern const test_faults test_driver_faults; /* calls of all faulty devices (faulty_driver.h) */

/* Puts the failing heap in place, registers the faulty driver, and makes the tag "fault", which stays: a group's
 * setup. */
int test_faults_prepare(void **state);

/* One run of a body. */
typedef struct test_round {
    const test_faults *from;
    test_failing mode; /* TEST_FAILING_NEVER in the first round, which shows that the body succeeds by itself */
    uint64_t after;
    loch_device *device; /* that the fault was set on */
    char when[160];      /* for messages: the ground, what fails, how, and at which place */
    const char *call;    /* set by the body: the call that failed, for messages */
    bool is_felt;        /* set by the body: a call failed */
    bool is_reached;     /* the fault was met */
} test_round;

/* Sets the fault of the round. `device` is ignored by sources that need none. */
void test_round_begin(test_round *round, loch_device *device);

/* Clears it. */
void test_round_end(test_round *round);

/* How many faults a sweep met, and how many of them the body felt. */
typedef struct test_rounds {
    uint64_t places, felt;
} test_rounds;

/* The body calls test_round_begin and test_round_end, and gives back all that it took. */
typedef void test_round_body(test_round *round, const void *user);

/* Runs `body` without a fault, then for every place. Fails the test when the bookkeeping differs after a round, or when
 * the body feels a fault that it did not meet. */
test_rounds test_rounds_run(const test_faults *from, const char *ground, test_round_body *body, const void *user);

/* Runs a small program while each allocation of the library's bookkeeping fails, and once more after each fault. `run`
 * returns its first failure and gives back all that it took, by TEST_BACK. */
void test_host_sweep(loch_status (*run)(const void *user), const void *user);

/* Notes a call that has to give something back and failed; the sweep fails the test then. */
#define TEST_BACK(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != LOCH_OK) test_kept = #call;                                                                      \
    } while (0)

extern const char *test_kept;

/* Notes of a larger program about its own state under faults. */
typedef struct test_notes {
    loch_device *device;  /* lost before step number `lose_before` */
    uint64_t lose_before; /* counted from 1; 0: never */
    uint64_t steps;       /* so far */
    loch_status status;   /* of the first call that failed */
    const char *call;     /* its text */
    loch_error error;     /* the record right after it */
    const char *wrong;    /* a promise that was broken */
} test_notes;

/* Counts a step, and loses the device before the one that was named. */
void test_notes_step(test_notes *notes);

/* Notes the answer of a call. Returns whether it succeeded. */
bool test_notes_take(test_notes *notes, loch_status status, const char *call);

/* One step of a function without a result; leaves it at the first failure. */
#define TEST_STEP(notes, answer)                                                                                       \
    do {                                                                                                               \
        test_notes_step(notes);                                                                                        \
        if (!test_notes_take(notes, (answer), #answer)) return;                                                        \
    } while (0)

/* Fails the test when a promise was broken; fills the round in. */
void test_notes_check(const test_notes *notes, test_round *round);

/* Fails the test when anything is left on a simulated device, or was used without order while `is_ordered`; nothing on
 * other devices. Forgets what the checker of order has found. */
void test_sim_expect_empty(loch_device *device, bool is_ordered, const char *when, const char *call);

/* A sweep with the scenario. */
typedef struct test_sweep {
    const char *device, *other;
    const test_faults *from;
    bool hold; /* the device stays open around each run: faults are set on it, and it has to be empty after each */
} test_sweep;

void test_scenario_sweep(const test_sweep *sweep);

#endif
