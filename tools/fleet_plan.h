/* SPDX-License-Identifier: MIT */
/* Plans which device runs which request, and when. This is the model of time: requests arrive, wait in one queue, run
 * for as long as their program was recorded, end; devices fail and come back. Nothing here touches a pool.
 *
 * The plan is one sequence of events in simulated time, so it does not depend on the number of processes. Each device
 * then runs its own part of it on a real pool (fleet_device.h), independently of the others. Memory that is
 * refused there does not change the plan: the request is lost, and its place stays taken until its planned end. */
#ifndef LOCH_TOOL_FLEET_PLAN_H
#define LOCH_TOOL_FLEET_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLEET_NS 1000000000.0 /* nanoseconds of a second */
#define FLEET_REQUESTS_MAX 20000000
#define FLEET_TRIES_MAX 8 /* a request that has failed with its device this often is given up */

/* What the plan knows of a program. */
typedef struct fleet_need {
    double weight;
    uint64_t duration_ns; /* on a device of speed 1 */
    uint64_t bytes;       /* of a device's budget */
    uint64_t compute;     /* thousandths of a device */
} fleet_need;

/* What the requests and the devices are like. */
typedef struct fleet_demand {
    const fleet_need *needs;
    size_t needs_count;
    uint64_t budget_bytes; /* that programs on one device may need together */
    uint64_t seed;
    double rate;       /* requests a second; 0: `requests` requests at the start */
    double shape;      /* heavy tail of the gaps (fleet_random_heavy); 0: exponential gaps */
    double duration_s; /* requests arrive in this time; with a rate */
    double spread_s;   /* without a rate: each request arrives at a random time up to this one */
    uint64_t requests; /* without a rate */
    bool takes_turns;  /* programs take turns instead of being drawn by weight; for measurements */
    bool is_shared;    /* programs share devices; else a device runs one at a time */
    double speeds;     /* a device has a speed of 1 - speeds to 1 + speeds */
    double failures;   /* of a device in an hour */
    double repair_s;   /* a device that has failed is back after this time */
} fleet_demand;

/* A request that runs on a device, from its start there to its end or the device's failure. */
typedef struct fleet_stint {
    uint64_t start_ns, end_ns;
    uint32_t request, device, program;
    uint32_t next; /* of its device, in order of start; FLEET_NO_STINT for the last */
    bool is_cut;   /* the device failed at `end_ns` */
} fleet_stint;

#define FLEET_NO_STINT UINT32_MAX

typedef struct fleet_request {
    uint64_t arrival_ns;
    uint64_t wait_ns; /* from its arrival to the start of its last stint */
    uint32_t program;
    uint8_t tries; /* stints so far */
    bool is_done;  /* its last stint was not cut */
} fleet_request;

typedef struct fleet_plan {
    size_t devices;
    fleet_request *requests; /* in order of arrival */
    size_t requests_count;
    fleet_stint *stints; /* in order of start */
    size_t stints_count, stints_room;
    uint32_t *first;      /* of each device: its first stint */
    double *speeds;       /* of each device */
    uint64_t span_ns;     /* end of the last stint, or of the arrivals if that is later */
    uint64_t failures;    /* of devices, while there was work */
    uint64_t moved;       /* requests that lost their device and started again */
    uint64_t given_up;    /* requests that lost their device FLEET_TRIES_MAX times */
    size_t used_devices;  /* that ran something */
    uint64_t busy_ns;     /* time in which devices ran at least one program, summed over devices */
    uint64_t programs_ns; /* length of all stints */
} fleet_plan;

typedef enum fleet_planned { FLEET_PLANNED, FLEET_NO_MEMORY, FLEET_TOO_MANY } fleet_planned;

/* Plans a fleet of `devices`. Every program needs no more than a device's budget. FLEET_TOO_MANY: more than
 * FLEET_REQUESTS_MAX requests would arrive. Call fleet_plan_free in either case. */
fleet_planned fleet_plan_make(fleet_plan *plan, const fleet_demand *demand, size_t devices);

/* Returns the wait that the part `quantile` of all requests does not exceed. Sorts `waits`, which has room for all
 * requests. */
uint64_t fleet_plan_wait(const fleet_plan *plan, double quantile, uint64_t *waits);

/* Sorts numbers, smallest first. */
void fleet_sort(uint64_t *numbers, size_t count);

/* Returns the number that the part `quantile` of the sorted numbers does not exceed; 0 if there are none. */
uint64_t fleet_quantile(const uint64_t *sorted, size_t count, double quantile);

void fleet_plan_free(fleet_plan *plan);

#endif
