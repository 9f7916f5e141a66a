/* SPDX-License-Identifier: MIT */
/* A host allocator for the library's bookkeeping that counts allocations and makes chosen ones fail. It checks that
 * every piece is freed with the size of its allocation. */
#ifndef LOCH_TEST_HEAP_H
#define LOCH_TEST_HEAP_H

#include <loch/host.h>
#include <stdint.h>

typedef enum test_failing {
    TEST_FAILING_NEVER,
    TEST_FAILING_ONCE,   /* one call fails */
    TEST_FAILING_FOREVER /* that call and all later ones */
} test_failing;

/* Puts the allocator into the library; no device may be open. */
loch_status test_heap_install(void);

/* From now on: `after` allocations succeed, then it fails as said. The count starts again. */
void test_heap_set(test_failing mode, uint64_t after);

/* Allocations since test_heap_set. */
uint64_t test_heap_count(void);

/* Pieces that are out, and pieces that were given back wrongly. */
uint64_t test_heap_live(void);
uint64_t test_heap_wrong(void);

#endif
