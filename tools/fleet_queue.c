/* SPDX-License-Identifier: MIT */
#include "fleet_queue.h"
#include <stdlib.h>

static bool queue_is_before(const fleet_event *a, const fleet_event *b)
{
    if (a->time_ns != b->time_ns) return a->time_ns < b->time_ns;
    if (a->kind != b->kind) return a->kind < b->kind;
    return a->number < b->number;
}

bool fleet_queue_put(fleet_queue *queue, uint64_t time_ns, uint32_t kind, uint32_t subject)
{
    if (queue->count == queue->room) {
        const size_t room = queue->room ? 2 * queue->room : 64;
        fleet_event *events = realloc(queue->events, room * sizeof *events);
        if (!events) return false;
        queue->events = events;
        queue->room = room;
    }
    const fleet_event event = {time_ns, queue->next_number++, kind, subject};
    size_t at = queue->count++;
    while (at && queue_is_before(&event, &queue->events[(at - 1) / 2])) {
        queue->events[at] = queue->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue->events[at] = event;
    return true;
}

bool fleet_queue_take(fleet_queue *queue, fleet_event *out)
{
    if (!queue->count) return false;
    *out = queue->events[0];
    const fleet_event last = queue->events[--queue->count];
    size_t at = 0;
    for (size_t child = 1; child < queue->count; child = 2 * at + 1) {
        if (child + 1 < queue->count && queue_is_before(&queue->events[child + 1], &queue->events[child])) child++;
        if (!queue_is_before(&queue->events[child], &last)) break;
        queue->events[at] = queue->events[child];
        at = child;
    }
    queue->events[at] = last;
    return true;
}

void fleet_queue_free(fleet_queue *queue)
{
    free(queue->events);
    *queue = (fleet_queue){.events = NULL};
}
