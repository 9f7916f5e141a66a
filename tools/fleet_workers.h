/* SPDX-License-Identifier: MIT */
/* Spreads independent pieces of work over several processes.
 *
 * Processes and not threads: a pool looks at its process. Only the first pools of a process reserve many addresses, for
 * example, so what a pool does would depend on the pools of other devices that happen to run at the same time. A
 * process runs one device at a time, so a device gives the same result in any of them. */
#ifndef LOCH_TOOL_FLEET_WORKERS_H
#define LOCH_TOOL_FLEET_WORKERS_H

#include "tool.h"

#define FLEET_WORKERS_MAX 256

/* Allocates zeroed memory that processes forked later share with this one. Returns NULL if there is none. */
void *fleet_shared_alloc(size_t bytes);

/* Frees memory of fleet_shared_alloc. NULL does nothing. */
void fleet_shared_free(void *memory, size_t bytes);

/* Does piece number `piece`. Results go to shared memory. Returns false to stop all workers after their present
 * piece. */
typedef bool fleet_piece(size_t piece, void *user);

/* What the workers took. */
typedef struct fleet_effort {
    uint64_t elapsed_ns;
    uint64_t peak_bytes; /* most resident memory of each process, added up; pages that they share count in each */
} fleet_effort;

/* Does the pieces 0 to `count` - 1 in `workers` processes, this one among them: each takes the next piece that no other
 * has taken. There must be no other thread. `label` names the pieces in the line of progress. E_HOST_MEMORY: no shared
 * memory. E_CANCELLED: a process ended before it was done. */
loch_status fleet_workers_run(size_t workers, size_t count, const char *label, fleet_piece *work, void *user,
                              fleet_effort *out);

#endif
