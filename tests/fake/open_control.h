/* SPDX-License-Identifier: MIT */
/* The functions of control.h, found in the driver for tests, and what is alive in it. */
#ifndef LOCH_TEST_FAKE_OPEN_CONTROL_H
#define LOCH_TEST_FAKE_OPEN_CONTROL_H

#include "control.h"
#include "support/test.h"
#include <dlfcn.h>

__attribute__((unused)) static struct {
    fake_cuda_set_function *set;
    fake_cuda_fail_function *set_fault;
    fake_cuda_calls_function *calls;
    fake_cuda_count_function *count;
    fake_cuda_struck_function *struck;
    fake_cuda_census_function *take_census;
    fake_cuda_lose_function *lose;
} control;

/* Finds the functions: a group's setup. A failure if the library of the option is another one. */
__attribute__((unused)) static int control_open(void **state)
{
    (void)state;
    char path[LOCH_OPTION_VALUE_MAX];
    void *library = loch_option_get("cuda_library", path) == LOCH_OK && *path ? dlopen(path, RTLD_NOW) : NULL;
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"fake_cuda_set", &control.set},
                     {"fake_cuda_fail", &control.set_fault},
                     {"fake_cuda_calls", &control.calls},
                     {"fake_cuda_count", &control.count},
                     {"fake_cuda_lose", &control.lose},
                     {"fake_cuda_struck", &control.struck},
                     {"fake_cuda_take_census", &control.take_census}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = library ? dlsym(library, functions[i].name) : NULL;
        if (!address) {
            fprintf(stderr, "LOCH_CUDA_LIBRARY names no driver of tests/fake\n");
            return 1;
        }
        memcpy(functions[i].to, &address, sizeof address);
    }
    return 0;
}

/* Fails the test if the driver has anything left: memory, objects, contexts. */
__attribute__((unused)) static void control_expect_empty(const char *when)
{
    fake_cuda_census left, none = {0};
    control.take_census(&left);
    if (memcmp(&left, &none, sizeof none) == 0) return;
    fail_msg("%s (%s failed last): left in the driver: %zu contexts retained, %zu made, %zu streams, %zu events, %zu "
             "graphs, %zu "
             "executables, %zu modules, %zu reservations, %zu handles, %zu mappings, %zu allocations, %zu managed, "
             "%zu pinned, %zu registered, %zu bytes",
             when, control.struck(), left.retained, left.contexts, left.streams, left.events, left.graphs,
             left.executables, left.modules, left.reservations, left.handles, left.mappings, left.allocations,
             left.managed, left.pinned, left.registered, left.bytes);
}

#endif
