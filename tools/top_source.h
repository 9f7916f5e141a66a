/* SPDX-License-Identifier: MIT */
/* Where the figures of `loch top` come from: sockets of processes that run with LOCH_TOP=on, and the figures in their
 * answers. */
#ifndef LOCH_TOP_SOURCE_H
#define LOCH_TOP_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TOP_NAME 64

/* One allocator. */
typedef struct top_allocator {
    uint64_t number;
    char name[TOP_NAME], kind[TOP_NAME];
    uint64_t device; /* place in the list of devices */
    bool is_wrapper; /* its figures are those of another allocator */
    bool is_range;   /* its memory is that of its parent */
    uint64_t requested, allocated, reserved, limit, cached, asleep, blocks, allocs, frees, failures;
    double fragmentation;
} top_allocator;

/* One tag, summed over all allocators. */
typedef struct top_tag {
    uint64_t tag;
    char name[TOP_NAME];
    uint64_t requested, blocks, allocs;
} top_tag;

/* One driver call of one device. */
typedef struct top_call {
    uint64_t device;
    char name[TOP_NAME];
    uint64_t count, ns;
} top_call;

typedef struct top_device {
    char name[TOP_NAME];
    uint64_t total, free;
} top_device;

/* The figures of a process at one moment. */
typedef struct top_figures {
    char *text; /* the answer */
    size_t bytes;
    uint64_t time_ns, pid;
    char program[256];
    top_allocator *allocators;
    top_tag *tags;
    top_call *calls;
    top_device *devices;
    size_t allocators_count, tags_count, calls_count, devices_count;
} top_figures;

/* Asks a process for its figures. Returns NULL, or what is wrong, as a sentence in static memory. `is_gone` says
 * whether no such process listens: one that has answered before has ended, or is about to end. Call top_figures_free in
 * any case. */
const char *top_ask(pid_t pid, top_figures *out, bool *is_gone);

/* Reads the figures in an answer. Returns NULL, or what is wrong with it. The figures own `text` from now on. */
const char *top_read(char *text, size_t bytes, top_figures *out);

void top_figures_free(top_figures *figures);

/* Lists the processes that can be looked at: at most `room` of them. Returns their number. */
size_t top_list(pid_t *out, size_t room);

#endif
