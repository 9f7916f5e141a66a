/* SPDX-License-Identifier: MIT */
/* Call stacks of the calling thread, cheap enough to take one for each allocation.
 *
 * On x86-64 the walk needs no frame pointers. The rule that leads from a return address to the caller's frame is read
 * once from the module's unwind tables and cached (base/stack_rule.h); a frame with a cached rule costs a few
 * nanoseconds. On aarch64 the walk follows frame pointers, which compilers keep there. Other processors: no frames.
 *
 * The walk reads the thread's own stack only, between the stack pointer and the end of the stack, and every frame must
 * be above the one before. Code without a rule is crossed by its frame pointer, if the result is plausible; otherwise
 * the stack ends there. So a stack may be short: behind a signal handler, behind code
 * that was generated at run time, and on stacks that the program made itself (coroutines), where only the page of the
 * stack pointer is read. */
#ifndef LOCHI_STACK_H
#define LOCHI_STACK_H

#include <stddef.h>
#include <stdint.h>

/* Writes up to `max` return addresses of the calling thread, innermost first, and returns their number. The first is
 * in the function that calls this one; `skip` leaves out that many. Any thread. Takes no lock and allocates nothing
 * unless a return address is met for the first time: then it holds the loader's list of modules for a moment. */
size_t lochi_stack_capture(uintptr_t *frames, size_t max, size_t skip);

#endif
