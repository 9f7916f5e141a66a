/* SPDX-License-Identifier: MIT */
/* The word that says how to step from a function to its caller (base/stack_rule.h caches such words). */
#ifndef LOCHI_STACK_STEP_H
#define LOCHI_STACK_STEP_H

#include <stdint.h>

/* A rule. Bits 0 and 1: what the caller's frame (the CFA, the stack pointer after the return) is computed from. Bits 2
 * to 16: the offset in words. Bits 17 to 27: how many words below the CFA the caller's frame pointer is saved; 0 if it
 * is unchanged. Bit 28 is set, so that no rule is 0. */
typedef uint32_t lochi_stack_rule;

enum {
    LOCHI_STACK_FROM_SP,   /* CFA = stack pointer + offset */
    LOCHI_STACK_FROM_FP,   /* CFA = frame pointer + offset */
    LOCHI_STACK_REALIGNED, /* CFA = word at frame pointer - offset; the saved frame pointer is at the frame pointer */
    LOCHI_STACK_END,       /* no caller, or none that can be found. Offset 1: not code of a module, maybe not code */
};

#define LOCHI_STACK_OFFSET_BITS 15
#define LOCHI_STACK_SAVED_BITS 11
#define LOCHI_STACK_OFFSET(rule) ((uintptr_t)((rule) >> 2 & ((1u << LOCHI_STACK_OFFSET_BITS) - 1)) * 8)
#define LOCHI_STACK_SAVED(rule) ((uintptr_t)((rule) >> 17 & ((1u << LOCHI_STACK_SAVED_BITS) - 1)) * 8)
#define LOCHI_STACK_RULE(from, offset_words, saved_words)                                                              \
    ((lochi_stack_rule)(1u << 28 | (from) | (uint32_t)(offset_words) << 2 | (uint32_t)(saved_words) << 17))

/* A frame pointer at the caller's saved one, as compilers build it that keep frame pointers. */
#define LOCHI_STACK_FRAME_POINTER LOCHI_STACK_RULE(LOCHI_STACK_FROM_FP, 2, 2)
#define LOCHI_STACK_LAST LOCHI_STACK_RULE(LOCHI_STACK_END, 0, 0)
#define LOCHI_STACK_UNKNOWN LOCHI_STACK_RULE(LOCHI_STACK_END, 1, 0)

#endif
