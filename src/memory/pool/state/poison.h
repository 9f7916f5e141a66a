/* SPDX-License-Identifier: MIT */
/* Tells checking tools which memory the host may touch. */
#ifndef LOCHI_POOL_POISON_H
#define LOCHI_POOL_POISON_H

#include "memory/pool/state/structs.h"

/* Finds the tool that runs. Returns POOL_CHECKER_NONE also for memory that the host cannot touch. */
pool_checker lochi_pool_find_checker(bool is_host);

/* Tell the tool what the inline functions below describe. Called only while a tool runs. */
void lochi_poison_hide(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_show(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_hand_out(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_take_back(const lochi_pool *pool, uintptr_t start, size_t bytes);
void lochi_poison_resize(const lochi_pool *pool, uintptr_t start, size_t old_bytes, size_t bytes, size_t allocated);
void lochi_poison_move(const lochi_pool *pool, uintptr_t from, uintptr_t to, size_t bytes);

/* Marks memory as not to be touched. */
static inline void lochi_pool_hide(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_hide(pool, start, bytes);
}
/* Marks memory as valid, with contents. */
static inline void lochi_pool_show(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_show(pool, start, bytes);
}
/* Marks a block of `bytes` as handed out. */
static inline void lochi_pool_show_block(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_hand_out(pool, start, bytes);
}
/* Marks a block as freed, with all of its memory. */
static inline void lochi_pool_hide_block(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->checker != POOL_CHECKER_NONE)) lochi_poison_take_back(pool, start, bytes);
}

#endif
