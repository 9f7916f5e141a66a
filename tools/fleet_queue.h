/* SPDX-License-Identifier: MIT */
/* The queue of events in simulated time: a binary heap.
 *
 * Events come out in order of time. Events of one time come out by kind, and those of one kind in the order in which
 * they were put in. So the order never depends on the shape of the heap. */
#ifndef LOCH_TOOL_FLEET_QUEUE_H
#define LOCH_TOOL_FLEET_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fleet_event {
    uint64_t time_ns;
    uint64_t number;  /* given by the queue: counts the events that were put in */
    uint32_t kind;    /* lower kinds come first */
    uint32_t subject; /* of the caller */
} fleet_event;

/* Initially all zero. */
typedef struct fleet_queue {
    fleet_event *events;
    size_t count, room;
    uint64_t next_number;
} fleet_queue;

/* Puts an event in. Returns false if there is no memory; the queue is unchanged then. */
bool fleet_queue_put(fleet_queue *queue, uint64_t time_ns, uint32_t kind, uint32_t subject);

/* Takes the first event out. Returns false if the queue is empty. */
bool fleet_queue_take(fleet_queue *queue, fleet_event *out);

/* Frees the memory of the queue. */
void fleet_queue_free(fleet_queue *queue);

#endif
