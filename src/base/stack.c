/* SPDX-License-Identifier: MIT */
/* The walk over a call stack. Loads from the stack are not instrumented: a sanitizer would count words between the
 * variables of other functions as errors. */
#include "base/stack.h"
#include "kit/hint.h"
#include "base/room.h"
#include "base/sanitize.h"
#include "base/stack_bounds.h"
#include "base/stack_rule.h"
#include <stdbool.h>

#if defined __x86_64__ || defined __aarch64__

#if defined __x86_64__
#define STACK_HAS_RULES true
#else
#define STACK_HAS_RULES false /* follows frame pointers */
#endif

#if LOCHI_MSAN
#define STACK_RAW __attribute__((no_sanitize("memory")))
#elif LOCHI_ASAN
#define STACK_RAW __attribute__((no_sanitize("address")))
#elif LOCHI_TSAN
#define STACK_RAW __attribute__((no_sanitize("thread")))
#else
#define STACK_RAW
#endif

#define STACK_PAGE ((uintptr_t)4096) /* the smallest page of these processors: readable to its end if any of it is */
#define STACK_RENEW 1024             /* captures of one thread until it looks whether modules were loaded or unloaded */

/* A place on the stack: the registers as they are in a function after a call returned to `pc`. */
typedef struct stack_place {
    uintptr_t pc, sp, fp;
} stack_place;

/* Finds the end of the calling thread's own stack. It is looked for at the 1st, 2nd, 4th, ... capture until it was
 * found: a thread may begin on a stack of the program. */
LOCHI_RARE static void stack_find_bounds(lochi_room *room, uintptr_t sp)
{
    const uint32_t count = room->stack.captures;
    if (room->stack.high || count & (count - 1)) return;
    uintptr_t low, high;
    if (!lochi_stack_bounds_find(sp, &low, &high)) return;
    room->stack.low = low;
    room->stack.high = high;
}

/* Returns the address where the stack ends that `sp` is on, as far as it is known to be readable. */
static inline uintptr_t stack_end(uintptr_t sp)
{
    const uintptr_t page_end = (sp | (STACK_PAGE - 1)) + 1;
    lochi_room *room = lochi_room_get();
    if (LOCHI_UNLIKELY(!room)) return page_end;
    const uint32_t captures = ++room->stack.captures;
    if (STACK_HAS_RULES && LOCHI_UNLIKELY(captures % STACK_RENEW == 0)) lochi_stack_rule_renew();
    if (LOCHI_UNLIKELY(sp - room->stack.low >= room->stack.high - room->stack.low)) {
        stack_find_bounds(room, sp);
        if (sp - room->stack.low >= room->stack.high - room->stack.low) return page_end;
    }
    return room->stack.high;
}

/* Returns whether a word at `address` is on the stack, above `sp`. */
static inline bool stack_has(uintptr_t sp, uintptr_t end, uintptr_t address)
{
    return address >= sp && address <= end - sizeof(uintptr_t) && address % sizeof(uintptr_t) == 0;
}

#if defined __x86_64__

/* Goes from a function to its caller. Returns false if the rule leads out of the stack, or nowhere. */
STACK_RAW static inline bool stack_step(stack_place *at, lochi_stack_rule rule, uintptr_t end)
{
    const unsigned from = rule & 3;
    uintptr_t cfa, saved;
    if (LOCHI_LIKELY(from <= LOCHI_STACK_FROM_FP)) {
        cfa = (from == LOCHI_STACK_FROM_SP ? at->sp : at->fp) + LOCHI_STACK_OFFSET(rule);
        saved = cfa - LOCHI_STACK_SAVED(rule);
    } else {
        const uintptr_t word = at->fp - LOCHI_STACK_OFFSET(rule);
        if (from == LOCHI_STACK_END || !stack_has(at->sp, end, word)) return false;
        cfa = *(const uintptr_t *)word;
        saved = at->fp;
    }
    if (LOCHI_UNLIKELY(cfa <= at->sp || !stack_has(at->sp, end, cfa - 8))) return false;
    if (saved != cfa) {
        if (LOCHI_UNLIKELY(!stack_has(at->sp, end, saved))) return false;
        at->fp = *(const uintptr_t *)saved;
    }
    at->pc = *(const uintptr_t *)(cfa - 8);
    at->sp = cfa;
    return at->pc != 0;
}

/* Walks once. Returns the number of frames; sets `has_cleared` if rules that were used may be of unloaded modules. */
static size_t stack_walk(stack_place at, uintptr_t end, uintptr_t *frames, size_t max, size_t skip, bool *has_cleared)
{
    size_t count = 0;
    bool is_guess = false; /* `at` follows from a frame pointer that may be none */
    for (;;) {
        lochi_stack_rule rule = lochi_stack_rule_find(at.pc);
        if (LOCHI_UNLIKELY(!rule)) {
            rule = lochi_stack_rule_read(at.pc, has_cleared);
            if (*has_cleared) return 0;
        }
        const bool is_unknown = rule == LOCHI_STACK_UNKNOWN;
        if (LOCHI_UNLIKELY(is_guess && is_unknown)) return count;
        if (skip)
            skip--;
        else
            frames[count++] = at.pc;
        if (count == max) return count;
        is_guess = is_unknown;
        if (LOCHI_UNLIKELY(is_unknown)) rule = LOCHI_STACK_FRAME_POINTER;
        if (LOCHI_UNLIKELY(!stack_step(&at, rule, end))) {
            if (rule != LOCHI_STACK_LAST && !is_guess) *has_cleared = lochi_stack_rule_renew();
            return count;
        }
    }
}

STACK_RAW __attribute__((noinline)) size_t lochi_stack_capture(uintptr_t *frames, size_t max, size_t skip)
{
    if (!max) return 0;
    const uintptr_t *frame = __builtin_frame_address(0); /* the caller's frame pointer, then the return address */
    const stack_place at = {frame[1], (uintptr_t)(frame + 2), frame[0]};
    const uintptr_t end = stack_end(at.sp);
    size_t count = 0;
    for (unsigned tries = 0; tries < 3; tries++) {
        bool has_cleared = false;
        count = stack_walk(at, end, frames, max, skip, &has_cleared);
        if (LOCHI_LIKELY(!has_cleared)) break;
    }
    return count;
}

#else /* aarch64 */

/* Removes the signature of a return address, on processors that sign them (PAC). */
static inline uintptr_t stack_plain(uintptr_t pc)
{
    register uintptr_t link __asm__("x30") = pc;
    __asm__("hint #7" : "+r"(link)); /* xpaclri */
    return link;
}

STACK_RAW __attribute__((noinline)) size_t lochi_stack_capture(uintptr_t *frames, size_t max, size_t skip)
{
    const uintptr_t *frame = __builtin_frame_address(0); /* the caller's frame pointer, then the return address */
    uintptr_t at = (uintptr_t)frame;
    const uintptr_t end = stack_end(at);
    size_t count = 0;
    for (uintptr_t low = at; count < max && stack_has(low, end, at) && stack_has(low, end, at + 8); skip -= skip > 0) {
        frame = (const uintptr_t *)at;
        const uintptr_t pc = stack_plain(frame[1]);
        if (!pc) break;
        if (!skip) frames[count++] = pc;
        low = at + 16;
        at = frame[0];
    }
    return count;
}

#endif

#else

size_t lochi_stack_capture(uintptr_t *frames, size_t max, size_t skip)
{
    (void)frames, (void)max, (void)skip;
    return 0;
}

#endif
