/* SPDX-License-Identifier: MIT */
/* Tells AddressSanitizer and valgrind's memcheck which memory of a pool is free, so that they find uses of freed
 * blocks.
 *
 * The functions of AddressSanitizer exist if the program is built with it, whether or not the library is: they are
 * weak symbols here. Requests to valgrind are a few instructions without effect outside of valgrind; they are
 * compiled in if its header is found. While such a tool runs, the gate of every pool stays closed, unless the
 * library itself is built with AddressSanitizer. So the fast path needs no code for tools. */
#include "memory/pool/state/poison.h"

#if defined(__has_include)
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define POISON_HAS_VALGRIND 1
#endif
#endif

/* NOLINTBEGIN(bugprone-reserved-identifier): the sanitizer's own names */
extern void __asan_poison_memory_region(void const volatile *start, size_t bytes) __attribute__((weak));
extern void __asan_unpoison_memory_region(void const volatile *start, size_t bytes) __attribute__((weak));
/* NOLINTEND(bugprone-reserved-identifier) */

pool_checker lochi_pool_find_checker(bool is_host)
{
    if (!is_host) return POOL_CHECKER_NONE;
    if (__asan_poison_memory_region && __asan_unpoison_memory_region) return POOL_CHECKER_ASAN;
#if defined(POISON_HAS_VALGRIND)
    char probe = 0; /* memcheck answers; valgrind's measuring tools do not */
    if (VALGRIND_MAKE_MEM_DEFINED(&probe, sizeof probe) != 0) return POOL_CHECKER_VALGRIND;
#endif
    return POOL_CHECKER_NONE;
}

void lochi_poison_hide(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (pool->checker == POOL_CHECKER_ASAN) {
        __asan_poison_memory_region((void *)start, bytes);
        return;
    }
#if defined(POISON_HAS_VALGRIND)
    (void)VALGRIND_MAKE_MEM_NOACCESS(start, bytes);
#endif
}

void lochi_poison_show(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (pool->checker == POOL_CHECKER_ASAN) {
        __asan_unpoison_memory_region((void *)start, bytes);
        return;
    }
#if defined(POISON_HAS_VALGRIND)
    (void)VALGRIND_MAKE_MEM_DEFINED(start, bytes);
#endif
}

void lochi_poison_hand_out(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (pool->checker == POOL_CHECKER_ASAN) {
        __asan_unpoison_memory_region((void *)start, bytes);
        return;
    }
#if defined(POISON_HAS_VALGRIND)
    VALGRIND_MALLOCLIKE_BLOCK(start, bytes, 0, 0);
#endif
}

void lochi_poison_take_back(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
#if defined(POISON_HAS_VALGRIND)
    if (pool->checker == POOL_CHECKER_VALGRIND) VALGRIND_FREELIKE_BLOCK(start, 0);
#endif
    lochi_poison_hide(pool, start, bytes);
}

void lochi_poison_resize(const lochi_pool *pool, uintptr_t start, size_t old_bytes, size_t bytes, size_t allocated)
{
    if (pool->checker == POOL_CHECKER_ASAN) {
        __asan_poison_memory_region((void *)start, allocated);
        __asan_unpoison_memory_region((void *)start, bytes);
        return;
    }
    (void)old_bytes;
#if defined(POISON_HAS_VALGRIND)
    VALGRIND_RESIZEINPLACE_BLOCK(start, old_bytes, bytes, 0);
#endif
}

/* Tells memcheck that a block moved with its contents. */
void lochi_poison_move(const lochi_pool *pool, uintptr_t from, uintptr_t to, size_t bytes)
{
    if (pool->checker == POOL_CHECKER_ASAN) return; /* the caller hides the old place and shows the new one */
    (void)from, (void)to, (void)bytes;
#if defined(POISON_HAS_VALGRIND)
    VALGRIND_FREELIKE_BLOCK(from, 0);
    VALGRIND_MALLOCLIKE_BLOCK(to, bytes, 0, 0);
    (void)VALGRIND_MAKE_MEM_DEFINED(to, bytes);
#endif
}
