/* SPDX-License-Identifier: MIT */
/* A driver outside the library: "faulty:NAME" opens the device NAME of another driver, forwards every slot to it, and
 * makes a chosen call fail. It uses only the public headers, so it is also an example of a driver that is built on
 * another. */
#ifndef LOCH_TEST_FAULTY_DRIVER_H
#define LOCH_TEST_FAULTY_DRIVER_H

#include "failing_heap.h"
#include <loch/driver.h>
#include <stdbool.h>

/* Registers it, once a process. */
loch_status test_faulty_register(void);

/* From now on: `after` calls of all faulty devices together succeed, then they fail as said. The count starts again.
 * Calls that give something back are not counted and never fail; those that wait do so first and then fail. */
void test_faulty_set(test_failing mode, uint64_t after);

/* Calls that can be held up. */
typedef enum test_held {
    TEST_HELD_CREATE = 1, /* handle_create */
    TEST_HELD_MAP = 2,    /* map and remap */
    TEST_HELD_UNMAP = 4,  /* unmap */
    TEST_HELD_RAW = 8,    /* memory without handles: taking it and giving it back */
    TEST_HELD_WAIT = 16,  /* event_sync, stream_sync and device_sync */
    TEST_HELD_COPY = 32   /* copy */
} test_held;

/* From now on, calls of these kinds (test_held, together) wait before they begin, until test_faulty_let_go. */
void test_faulty_hold(unsigned kinds);
void test_faulty_let_go(void);
/* Waits until a call is held up. Returns false if none came within a minute. */
bool test_faulty_await_held(void);

/* Memory that is mapped has old contents from now on, as that of a real driver may: every byte is TEST_SOILED. For
 * drivers with work on streams. */
#define TEST_SOILED 0xa5
void test_faulty_soil(bool is_soiled);

/* Makes every unmap fail from now on, or none. The mapping stays. */
void test_faulty_refuse_unmap(bool is_refused);

/* Calls since test_faulty_set, and devices that are open. */
uint64_t test_faulty_count(void);
uint64_t test_faulty_open(void);

#endif
