/* SPDX-License-Identifier: MIT */
/* A module for test_stack.c. It is built twice, with frames of different sizes, so that the code has one layout and the
 * unwind tables differ. */

void stack_module_call(void (*function)(void *), void *user, volatile char *unused);

__attribute__((visibility("default"))) void stack_module_call(void (*function)(void *), void *user,
                                                              volatile char *unused)
{
    volatile char frame[STACK_MODULE_BYTES];
    frame[0] = *unused;
    frame[STACK_MODULE_BYTES - 1] = 1;
    function(user);
    *unused = frame[0];
}
