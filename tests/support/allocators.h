/* SPDX-License-Identifier: MIT */
/* The subjects of the allocator suites: every allocator, every wrapper, and stacks of them, written outermost first:
 * "tracking/limit/redzone/direct". Every one of them hands out a limited number of requested bytes.
 *
 * One suite runs over all subjects on all devices of the test bed. After every case the library's bookkeeping has to
 * be as it was before, nothing may be left on a simulated device and nothing used without order, and no promise to a
 * user's allocator may have been broken. */
#ifndef LOCH_TEST_ALLOCATORS_H
#define LOCH_TEST_ALLOCATORS_H

#include "bed.h"
#include "user_allocators.h"

/* All subjects. */
extern const char *const test_stacks[];
extern const size_t test_stacks_count;

/* Subjects that a program brings itself, in place of all others; NULL at the end of the list, or for none. The function
 * makes their innermost parts that this file does not know. */
extern const char *const *test_stacks_own;
extern loch_status (*test_stack_base_own)(loch_device *device, const char *kind, loch_allocator **out);

/* Makes a stack on a device. E_UNSUPPORTED where the device has not the memory for it. */
loch_status test_stack_create(loch_device *device, const char *stack, loch_allocator **out);

/* Makes one wrapper, by the name that it has in a stack. */
loch_status test_stack_wrap(const char *kind, loch_allocator *wrapped, loch_allocator **out);

/* The wrappers, by name. */
extern const char *const test_wrappers[];
extern const size_t test_wrappers_count;

/* Whether a part of that name is in the stack. */
bool test_stack_has(const char *stack, const char *part);

/* Whether its memory is pinned; whether it stands on a pool. */
bool test_stack_is_pinned(const char *stack);
bool test_stack_is_pool(const char *stack);

/* The subject of a case. */
typedef struct test_subject {
    const test_bed *bed;
    const char *stack;
    loch_allocator *allocator; /* the case may release it, and then sets it to NULL */
    uint32_t traits;
    size_t capacity; /* how many requested bytes it hands out */
    bool reuses;     /* a free makes room for others: not while frees are deferred */
    loch_host_usage usage;
    uint64_t alive, wrong;
} test_subject;

/* At the start of every case: makes the subject; skips the case where the device cannot have it. */
void test_subject_begin(test_subject *subject, void **state);

/* At its end: gives the subject back and looks at what is left. */
void test_subject_end(test_subject *subject);

/* Whether the device can have the subject, for cases that make it themselves. */
void test_subject_require(test_subject *subject, bool condition);

/* Runs the cases over all subjects on all devices; what main returns. LOCH_TEST_STACKS names subjects, separated by
 * semicolons, in place of all. */
int test_subjects_run(const struct CMUnitTest *cases, size_t count);

#define TEST_SUBJECTS_RUN(cases) test_subjects_run((cases), sizeof(cases) / sizeof *(cases))

/* A block of the subject's, or fails the test. */
void *test_subject_alloc(const test_subject *subject, size_t bytes);

/* Its figures. */
loch_stats test_subject_stats(const test_subject *subject);

/* Fails unless both are the same in all that wrong calls must not change. */
void test_stats_expect_same(const loch_stats *before, const loch_stats *after);

#endif
