/* SPDX-License-Identifier: MIT */
/* The test bed: runs one group of tests over every device of a list.
 *
 * The list is the built-in one, or LOCH_TEST_DEVICES, separated by semicolons ("cuda:0;cpu"). A device that cannot be
 * opened is skipped with its reason, unless it is a CUDA one and LOCH_REQUIRE_GPU=1, or an OpenCL one and
 * LOCH_REQUIRE_OPENCL=1. After every test a simulated
 * device must hold no more than before and its checker must have found nothing; after every device the library's
 * bookkeeping must be as it was before. */
#ifndef LOCH_TEST_BED_H
#define LOCH_TEST_BED_H

#include "test.h"

typedef struct test_bed {
    const char *name;                  /* the device under test, as it was opened */
    loch_device *device;               /* the bed's own reference */
    loch_device_properties properties; /* of the device */
    bool has_data;                     /* memory has contents: false on an unbacked simulated device */
    bool is_sim;                       /* loch_sim_ calls work on it */
    bool is_stepped;                   /* simulated; the clock advances only by calls and waits */
} test_bed;

/* The exit status of the program: 0, the number of failures, or TEST_SKIPPED when no device could be opened. */
int test_bed_run(const struct CMUnitTest *tests, size_t count);

/* Runs the group over these devices, unless LOCH_TEST_DEVICES names others: TEST_SKIPPED then. */
int test_bed_run_also(const char *devices, const struct CMUnitTest *tests, size_t count);

#define TEST_BED_RUN(tests) test_bed_run((tests), sizeof(tests) / sizeof *(tests))

/* Opens a device that is another than the bed's: the bed's own driver's when `same_driver`, where that can be had
 * (NULL when not). The caller releases it. */
loch_device *test_bed_open_other(const test_bed *bed, bool same_driver);

/* Whether the bed's device has all of these capabilities. */
bool test_bed_can(const test_bed *bed, uint32_t capabilities);

/* Contents of memory anywhere, by copies that wait. Nothing is compared on a device without data. */
void test_bed_put(const test_bed *bed, void *to, size_t bytes, uint64_t seed);
void test_bed_expect(const test_bed *bed, const void *from, size_t bytes, uint64_t seed);

/* Compares with `bytes` equal bytes. */
void test_bed_expect_byte(const test_bed *bed, const void *from, size_t bytes, unsigned char value);

/* A block of one kind, or fails the test. */
void *test_bed_alloc(const test_bed *bed, loch_memory_kind kind, size_t bytes);

/* Addresses; a handle; a handle mapped. Sizes in granules. */
char *test_bed_reserve(const test_bed *bed, size_t granules);
loch_handle *test_bed_handle(const test_bed *bed, size_t granules);
loch_handle *test_bed_map(const test_bed *bed, void *address, size_t granules);

#endif
