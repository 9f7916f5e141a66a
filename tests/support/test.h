/* SPDX-License-Identifier: MIT */
/* The base of every test program: cmocka, all public headers of Loch, and checks of loch_status.
 *
 * CHECK_OK and CHECK_FAILS print the sentence of the error record if a call has another result than expected.
 * CHECK_FAILS also checks the promise of every failure: the record has the returned code and a sentence that is not
 * empty. */
#ifndef LOCH_TEST_H
#define LOCH_TEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/observer.h>
#include <loch/raw.h>
#include <loch/sim.h>
#include <loch/virtual.h>

#include "support/lists.h"

#define TEST_KIB ((size_t)1 << 10)
#define TEST_MIB ((size_t)1 << 20)
#define TEST_GIB ((size_t)1 << 30)

/* ThreadSanitizer leaves a program about 1.5 TiB of addresses. Tests that need more are skipped under it. */
#ifdef __SANITIZE_THREAD__
#define TEST_HAS_FEW_ADDRESSES true
#else
#define TEST_HAS_FEW_ADDRESSES false
#endif

/* Exit code of a program that cannot run on this machine. */
#define TEST_SKIPPED 77

/* A pointer that no call should leave in an out-argument: "NULL on failure" is checked against it. */
#define TEST_UNTOUCHED ((void *)(uintptr_t)0x10c8)

/* A set of statuses, for calls whose header leaves more than one answer open. */
#define TEST_SET(suffix) (1u << LOCH_E_##suffix)

void test_check_ok(loch_status status, const char *call, const char *file, int line);
void test_check_fails(loch_status status, unsigned expected, const char *call, const char *file, int line);
void test_check_status(loch_status status, loch_status expected, const char *call, const char *file, int line);

#define CHECK_OK(call) test_check_ok((call), #call, __FILE__, __LINE__)

/* CHECK_FAILS(loch_raw_free(p), FOREIGN) */
#define CHECK_FAILS(call, suffix) CHECK_FAILS_SET(call, TEST_SET(suffix))
#define CHECK_FAILS_SET(call, set) (loch_error_clear(), test_check_fails((call), (set), #call, __FILE__, __LINE__))

/* For results that are not failures, like E_BUSY of a query: the error record is not checked. */
#define CHECK_STATUS(call, status) test_check_status((call), (status), #call, __FILE__, __LINE__)

/* Seeded numbers: splitmix64. The seed is LOCH_TEST_SEED or the one given; test_seed prints it. */
typedef struct test_random {
    uint64_t state;
} test_random;

uint64_t test_seed(uint64_t fallback);
uint64_t test_random_next(test_random *random);
size_t test_random_below(test_random *random, size_t limit);

/* Contents that depend on the seed and on each byte's place. */
void test_pattern_write(void *to, size_t bytes, uint64_t seed);

/* The place of the first byte that is not as test_pattern_write made it; `bytes` when all are. */
size_t test_pattern_differs(const void *from, size_t bytes, uint64_t seed);

/* Number of calls of that name since loch_device_measure_calls. */
uint64_t test_call_count(loch_device *device, const char *name);
uint64_t test_call_ns(loch_device *device, const char *name);
uint64_t test_call_real_ns(loch_device *device, const char *name);

/* Runs `function` in `count` threads at a time, each with its own element of `workers`, and waits for all of them. A
 * thread must not use cmocka's checks (worker.h). */
void test_threads_run(void *(*function)(void *worker), void *workers, size_t worker_bytes, size_t count);

#define TEST_THREADS_RUN(function, workers)                                                                            \
    test_threads_run((function), (workers), sizeof *(workers), sizeof(workers) / sizeof *(workers))

/* Waits for the work that buffers wait for, and ends the default allocators. Fails the test when memory still waits or
 * is live. */
void test_end_defaults(void);

/* Returns the exit code of a test program without a GPU, after printing the reason from the error record. With
 * LOCH_REQUIRE_GPU=1 this is a failure. */
int test_skip_gpu(void);

#endif
