/* SPDX-License-Identifier: MIT */
/* Allocators as users of the library write them: with nothing but the public headers. Each hands out TEST_USER_CAPACITY
 * requested bytes at most, and notes what the library must not do to it. */
#ifndef LOCH_TEST_USER_ALLOCATORS_H
#define LOCH_TEST_USER_ALLOCATORS_H

#include <loch/allocator.h>
#include <stdint.h>

#define TEST_USER_CAPACITY ((size_t)16 << 20)
#define TEST_USER_BIT ((uint32_t)1 << 24) /* the device bit that the full one has among its attributes */

typedef enum test_user_kind {
    TEST_USER_PLAIN,  /* alloc, free and destroy: the library keeps account */
    TEST_USER_UNSAFE, /* the same, for one thread at a time */
    TEST_USER_FULL    /* every slot; allocates empty blocks and zeroes by itself */
} test_user_kind;

/* Memory is libc's where the host can reach the device's, and raw memory of the device elsewhere. */
loch_status test_user_create(loch_device *device, test_user_kind kind, loch_allocator **out);

/* A wrapper with alloc, free and destroy only. */
loch_status test_user_wrap(loch_allocator *wrapped, loch_allocator **out);

/* Allocators and wrappers that were made and not destroyed. */
uint64_t test_user_alive(void);

/* Calls that broke the promises to allocators: two threads in an unsafe one, a wrong address or size handed to free, an
 * end before the last block, arguments that were not checked. */
uint64_t test_user_wrong(void);

#endif
