/* SPDX-License-Identifier: MIT */
/* The planner: a queue of events, one line of waiting requests, and the room of each device.
 *
 *   arrival   the request joins the line
 *   end       its bytes and its compute are free again
 *   failure   the device's requests go back to the head of the line, the device has no room
 *   repair    the device has its whole room
 *
 * After each event, the head of the line starts on the first device that has room for it, as long as there is one.
 * No request overtakes another: a large program at the head waits, and all others behind it. Taking the first device
 * keeps the others empty, so the number of devices that are used at all is small. */
#include "fleet_plan.h"
#include "fleet_places.h"
#include "fleet_queue.h"
#include "fleet_random.h"
#include "fleet_mix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In the order in which events of one time happen: what ends makes room for what arrives. */
enum { PLAN_END, PLAN_REPAIR, PLAN_FAILURE, PLAN_ARRIVAL };

/* Numbers of sequences of random numbers. Those of devices start at PLAN_OF_DEVICES. */
enum { PLAN_OF_ARRIVALS, PLAN_OF_PROGRAMS, PLAN_OF_DEVICES = 16 };

#define PLAN_TIME_MAX (UINT64_C(1) << 62)
#define PLAN_ROUNDING_NS 1000

/* A device while the plan is made. */
typedef struct plan_device {
    fleet_random random;
    double speed;
    uint32_t active, last; /* its first stint that runs, linked by plan_links; its last stint of all */
    uint64_t running;      /* number of stints that run */
    uint64_t since_ns;     /* since when at least one runs */
} plan_device;

/* Neighbours of a stint among those that run on its device. */
typedef struct plan_links {
    uint32_t before, after;
} plan_links;

typedef struct fleet_planner {
    fleet_plan *plan;
    const fleet_demand *demand;
    fleet_queue queue;
    fleet_places places;
    plan_device *devices;
    plan_links *links; /* of each stint */
    uint32_t *line;    /* ring of requests that wait; has room for all of them */
    size_t line_first, line_count;
    size_t open; /* requests that are neither done nor given up */
    uint64_t now_ns;
    bool has_memory;
} fleet_planner;

static uint64_t plan_ns(double seconds)
{
    const double ns = seconds * FLEET_NS;
    return ns < (double)PLAN_TIME_MAX ? (uint64_t)ns : PLAN_TIME_MAX;
}

static void plan_put(fleet_planner *planner, uint64_t time_ns, uint32_t kind, uint32_t subject)
{
    if (!fleet_queue_put(&planner->queue, time_ns, kind, subject)) planner->has_memory = false;
}

/* --- requests --- */

static int plan_compare_arrival(const void *a, const void *b)
{
    const uint64_t left = ((const fleet_request *)a)->arrival_ns, right = ((const fleet_request *)b)->arrival_ns;
    return (left > right) - (left < right);
}

static bool plan_add_request(fleet_plan *plan, size_t *room, uint64_t arrival_ns)
{
    if (plan->requests_count == *room) {
        *room = *room ? 2 * *room : 1024;
        fleet_request *requests = realloc(plan->requests, *room * sizeof *requests);
        if (!requests) return false;
        plan->requests = requests;
    }
    plan->requests[plan->requests_count++] = (fleet_request){.arrival_ns = arrival_ns};
    return true;
}

/* Draws all arrivals, in order. */
static fleet_planned plan_draw_arrivals(fleet_plan *plan, const fleet_demand *demand)
{
    fleet_random random = fleet_random_start(demand->seed, PLAN_OF_ARRIVALS);
    size_t room = 0;
    if (!(demand->rate > 0)) {
        if (demand->requests > FLEET_REQUESTS_MAX) return FLEET_TOO_MANY;
        for (uint64_t i = 0; i < demand->requests; i++)
            if (!plan_add_request(plan, &room, plan_ns(demand->spread_s * (1 - fleet_random_part(&random)))))
                return FLEET_NO_MEMORY;
        if (plan->requests_count)
            qsort(plan->requests, plan->requests_count, sizeof *plan->requests, plan_compare_arrival);
        return FLEET_PLANNED;
    }
    const double mean = 1 / demand->rate;
    for (double at = 0;;) {
        at += demand->shape > 1 ? fleet_random_heavy(&random, mean, demand->shape)
                                : fleet_random_exponential(&random, mean);
        if (at >= demand->duration_s) return FLEET_PLANNED;
        if (plan->requests_count == FLEET_REQUESTS_MAX) return FLEET_TOO_MANY;
        if (!plan_add_request(plan, &room, plan_ns(at))) return FLEET_NO_MEMORY;
    }
}

static void plan_draw_programs(fleet_plan *plan, const fleet_demand *demand)
{
    fleet_random random = fleet_random_start(demand->seed, PLAN_OF_PROGRAMS);
    double sums[FLEET_PROGRAMS_MAX], sum = 0;
    if (!demand->needs_count) return;
    for (size_t i = 0; i < demand->needs_count; i++)
        sums[i] = sum += demand->needs[i].weight;
    for (size_t i = 0; i < plan->requests_count; i++)
        plan->requests[i].program =
            (uint32_t)(demand->takes_turns ? i % demand->needs_count
                                           : fleet_random_pick(&random, sums, demand->needs_count));
}

/* --- starting --- */

static bool plan_add_stint(fleet_planner *planner, const fleet_stint *stint)
{
    fleet_plan *plan = planner->plan;
    if (plan->stints_count == plan->stints_room) {
        const size_t room = plan->stints_room ? 2 * plan->stints_room : 1024;
        fleet_stint *stints = realloc(plan->stints, room * sizeof *stints);
        if (stints) plan->stints = stints;
        plan_links *links = stints ? realloc(planner->links, room * sizeof *links) : NULL;
        if (links) planner->links = links;
        if (!stints || !links) return false;
        plan->stints_room = room;
    }
    plan->stints[plan->stints_count++] = *stint;
    return true;
}

/* Appends the last stint to those of its device, and to those that run there. */
static void plan_link(fleet_planner *planner, uint32_t number)
{
    fleet_plan *plan = planner->plan;
    const uint32_t index = plan->stints[number].device;
    plan_device *device = &planner->devices[index];
    if (device->last == FLEET_NO_STINT)
        plan->first[index] = number;
    else
        plan->stints[device->last].next = number;
    device->last = number;
    planner->links[number] = (plan_links){FLEET_NO_STINT, device->active};
    if (device->active != FLEET_NO_STINT) planner->links[device->active].before = number;
    device->active = number;
    if (!device->running++) device->since_ns = planner->now_ns;
}

static void plan_start(fleet_planner *planner, uint32_t number, size_t device, const fleet_need *need)
{
    fleet_request *request = &planner->plan->requests[number];
    const double speed = planner->devices[device].speed;
    /* A device converts times by its speed; a rounded end must not lie before the program's last event. */
    const uint64_t duration_ns =
        speed == 1 ? need->duration_ns : (uint64_t)((double)need->duration_ns / speed) + PLAN_ROUNDING_NS;
    const fleet_stint stint = {.start_ns = planner->now_ns,
                               .end_ns = planner->now_ns + duration_ns,
                               .request = number,
                               .device = (uint32_t)device,
                               .program = request->program,
                               .next = FLEET_NO_STINT};
    if (!plan_add_stint(planner, &stint)) {
        planner->has_memory = false;
        return;
    }
    const uint32_t added = (uint32_t)(planner->plan->stints_count - 1);
    plan_link(planner, added);
    if (request->tries++) planner->plan->moved++;
    request->wait_ns = planner->now_ns - request->arrival_ns;
    plan_put(planner, stint.end_ns, PLAN_END, added);
}

/* Starts the requests at the head of the line while there is room for them. */
static void plan_dispatch(fleet_planner *planner)
{
    const fleet_plan *plan = planner->plan;
    while (planner->line_count && planner->has_memory) {
        const uint32_t number = planner->line[planner->line_first];
        const fleet_need *need = &planner->demand->needs[plan->requests[number].program];
        const fleet_room room = {planner->demand->is_shared ? need->bytes : planner->demand->budget_bytes,
                                 planner->demand->is_shared ? need->compute : 0};
        const size_t device = fleet_places_find(&planner->places, room);
        if (device == FLEET_PLACES_NONE) return;
        fleet_room left = fleet_places_get(&planner->places, device);
        left.bytes -= room.bytes;
        left.compute -= room.compute;
        fleet_places_set(&planner->places, device, left);
        planner->line_first = (planner->line_first + 1) % plan->requests_count;
        planner->line_count--;
        plan_start(planner, number, device, need);
    }
}

/* --- events --- */

/* Takes a stint off its device. */
static void plan_unlink(fleet_planner *planner, uint32_t number)
{
    const fleet_stint *stint = &planner->plan->stints[number];
    plan_device *device = &planner->devices[stint->device];
    const plan_links links = planner->links[number];
    if (links.before == FLEET_NO_STINT)
        device->active = links.after;
    else
        planner->links[links.before].after = links.after;
    if (links.after != FLEET_NO_STINT) planner->links[links.after].before = links.before;
    planner->plan->programs_ns += stint->end_ns - stint->start_ns;
    if (!--device->running) planner->plan->busy_ns += planner->now_ns - device->since_ns;
}

static void plan_end(fleet_planner *planner, uint32_t number)
{
    const fleet_stint *stint = &planner->plan->stints[number];
    if (stint->is_cut) return; /* its device failed before */
    const fleet_need *need = &planner->demand->needs[stint->program];
    fleet_room room = fleet_places_get(&planner->places, stint->device);
    room.bytes += planner->demand->is_shared ? need->bytes : planner->demand->budget_bytes;
    room.compute += planner->demand->is_shared ? need->compute : 0;
    fleet_places_set(&planner->places, stint->device, room);
    plan_unlink(planner, number);
    planner->plan->requests[stint->request].is_done = true;
    planner->open--;
}

/* Puts a request back at the head of the line, or gives it up. */
static void plan_put_back(fleet_planner *planner, uint32_t number)
{
    const size_t count = planner->plan->requests_count;
    if (planner->plan->requests[number].tries >= FLEET_TRIES_MAX) {
        planner->plan->given_up++;
        planner->open--;
        return;
    }
    planner->line_first = (planner->line_first + count - 1) % count;
    planner->line[planner->line_first] = number;
    planner->line_count++;
}

static void plan_schedule_failure(fleet_planner *planner, uint32_t device)
{
    if (!(planner->demand->failures > 0)) return;
    const double mean_s = 3600 / planner->demand->failures;
    const uint64_t after_ns = plan_ns(fleet_random_exponential(&planner->devices[device].random, mean_s));
    plan_put(planner, planner->now_ns + after_ns + 1, PLAN_FAILURE, device);
}

/* The stints that run are linked latest first, so the earliest is put back last and stands at the head. */
static void plan_fail_device(fleet_planner *planner, uint32_t index)
{
    plan_device *device = &planner->devices[index];
    planner->plan->failures++;
    while (device->active != FLEET_NO_STINT) {
        const uint32_t number = device->active;
        fleet_stint *stint = &planner->plan->stints[number];
        stint->is_cut = true;
        stint->end_ns = planner->now_ns;
        plan_unlink(planner, number);
        plan_put_back(planner, stint->request);
    }
    fleet_places_set(&planner->places, index, (fleet_room){0, 0});
    plan_put(planner, planner->now_ns + plan_ns(planner->demand->repair_s) + 1, PLAN_REPAIR, index);
}

static fleet_room plan_whole_room(const fleet_demand *demand)
{
    return (fleet_room){demand->budget_bytes, 1000};
}

static void plan_handle(fleet_planner *planner, const fleet_event *event)
{
    planner->now_ns = event->time_ns;
    switch (event->kind) {
    case PLAN_END: plan_end(planner, event->subject); break;
    case PLAN_REPAIR:
        fleet_places_set(&planner->places, event->subject, plan_whole_room(planner->demand));
        plan_schedule_failure(planner, event->subject);
        break;
    case PLAN_FAILURE: plan_fail_device(planner, event->subject); break;
    default:
        planner->line[(planner->line_first + planner->line_count++) % planner->plan->requests_count] = event->subject;
        if (event->subject + 1 < planner->plan->requests_count)
            plan_put(planner, planner->plan->requests[event->subject + 1].arrival_ns, PLAN_ARRIVAL, event->subject + 1);
    }
    plan_dispatch(planner);
}

/* --- the whole --- */

static bool plan_prepare(fleet_planner *planner, size_t devices)
{
    fleet_plan *plan = planner->plan;
    const fleet_demand *demand = planner->demand;
    plan->devices = devices;
    plan->first = malloc(devices * sizeof *plan->first);
    plan->speeds = malloc(devices * sizeof *plan->speeds);
    planner->devices = calloc(devices, sizeof *planner->devices);
    planner->line = malloc((plan->requests_count + 1) * sizeof *planner->line); /* never of 0 bytes */
    if (!plan->first || !plan->speeds || !planner->devices || !planner->line) return false;
    if (!fleet_places_make(&planner->places, devices, plan_whole_room(demand))) return false;
    for (size_t i = 0; i < devices; i++) {
        plan_device *device = &planner->devices[i];
        device->random = fleet_random_start(demand->seed, PLAN_OF_DEVICES + i);
        device->speed = 1 + demand->speeds * (2 * fleet_random_part(&device->random) - 1);
        device->active = device->last = plan->first[i] = FLEET_NO_STINT;
        plan->speeds[i] = device->speed;
        plan_schedule_failure(planner, (uint32_t)i);
    }
    return planner->has_memory;
}

/* Runs until every request is done or given up. */
static bool plan_run(fleet_planner *planner)
{
    fleet_plan *plan = planner->plan;
    fleet_event event;
    if (!plan->requests_count) return true;
    planner->open = plan->requests_count;
    plan_put(planner, plan->requests[0].arrival_ns, PLAN_ARRIVAL, 0);
    while (planner->has_memory && planner->open && fleet_queue_take(&planner->queue, &event))
        plan_handle(planner, &event);
    for (size_t i = 0; i < plan->devices; i++)
        plan->used_devices += plan->first[i] != FLEET_NO_STINT;
    return planner->has_memory;
}

fleet_planned fleet_plan_make(fleet_plan *plan, const fleet_demand *demand, size_t devices)
{
    fleet_planner planner = {.plan = plan, .demand = demand, .has_memory = true};
    *plan = (fleet_plan){.devices = 0};
    const fleet_planned drawn = plan_draw_arrivals(plan, demand);
    if (drawn != FLEET_PLANNED) return drawn;
    plan_draw_programs(plan, demand);
    const bool is_good = plan_prepare(&planner, devices) && plan_run(&planner);
    const uint64_t arrivals_ns = demand->rate > 0 ? plan_ns(demand->duration_s) : 0;
    plan->span_ns = planner.now_ns > arrivals_ns ? planner.now_ns : arrivals_ns;
    fleet_queue_free(&planner.queue);
    fleet_places_free(&planner.places);
    free(planner.devices);
    free(planner.links);
    free(planner.line);
    return is_good ? FLEET_PLANNED : FLEET_NO_MEMORY;
}

void fleet_plan_free(fleet_plan *plan)
{
    free(plan->requests);
    free(plan->stints);
    free(plan->first);
    free(plan->speeds);
    *plan = (fleet_plan){.devices = 0};
}

/* --- figures --- */

static int plan_compare_number(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

void fleet_sort(uint64_t *numbers, size_t count)
{
    if (count) qsort(numbers, count, sizeof *numbers, plan_compare_number);
}

uint64_t fleet_quantile(const uint64_t *sorted, size_t count, double quantile)
{
    if (!count) return 0;
    const double rank = ceil(quantile * (double)count);
    const size_t index = rank < 1 ? 0 : (size_t)rank - 1;
    return sorted[index < count ? index : count - 1];
}

uint64_t fleet_plan_wait(const fleet_plan *plan, double quantile, uint64_t *waits)
{
    for (size_t i = 0; i < plan->requests_count; i++)
        waits[i] = plan->requests[i].is_done ? plan->requests[i].wait_ns : UINT64_MAX;
    fleet_sort(waits, plan->requests_count);
    return fleet_quantile(waits, plan->requests_count, quantile);
}
