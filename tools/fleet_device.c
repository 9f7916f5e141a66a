/* SPDX-License-Identifier: MIT */
/* One device of a fleet. Its programs run in simulated time, in slices: a slice is the part of a trace between two
 * marks of the clock, which are at least 100 microseconds apart. The program whose next slice is due first runs it; of
 * two that are due at one time, the one that started first. So the order of the calls depends on the plan alone.
 *
 * A device has its own time: that of the fleet times the device's speed. Programs and queued work are faster or slower
 * alike, so a pool decides the same on a fast device as on a slow one.
 *
 *   time of the device  ──┬─────────┬──────────┬──────────┬────────────▶
 *   program A             slice     slice      slice      end: frees its blocks, releases its pool
 *   program B                  start     slice       slice
 *
 * Without sharing, each program opens the device and closes it, as the processes of a real device would, and has a
 * pool of its own: it runs as in `loch replay`. With sharing, the device stays open, and the programs have child pools
 * of one pool.
 *
 * One thread of one process runs a device from beginning to end, without another device beside it (fleet_workers.h). */
#include "fleet_device.h"
#include <loch/child.h>
#include <loch/sim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stint that runs. */
typedef struct device_job {
    struct device_job *next; /* of those that run, in order of start */
    const fleet_program *program;
    const trace_event *at, *end;
    uint64_t base_ns;     /* time of the device at the start of the trace */
    uint64_t due_ns;      /* when its next slice runs */
    uint64_t cut_ns;      /* when the device fails; UINT64_MAX if the program runs to its end */
    fleet_figures before; /* calls of the driver before the first event */
    loch_allocator *pool;
    loch_stream **streams;
    size_t streams_count;
    void **blocks;
} device_job;

typedef struct device_run {
    const fleet_work *work;
    size_t number;
    double speed;
    loch_device *device;    /* NULL while it is not open */
    loch_allocator *family; /* parent of all pools of a shared device; NULL otherwise */
    device_job *jobs, **last;
    uint32_t upcoming; /* next stint to start; FLEET_NO_STINT after the last */
    fleet_outcome *out;
} device_run;

/* --- the device --- */

/* Converts a time of the fleet to the time of the device. */
static uint64_t device_time(const device_run *run, uint64_t fleet_ns)
{
    return run->speed == 1 ? fleet_ns : (uint64_t)llrint((double)fleet_ns * run->speed);
}

typedef struct device_calls {
    fleet_figures *figures;
    size_t next;
} device_calls;

static loch_status device_note_call(const loch_call_count *count, void *user)
{
    device_calls *calls = user;
    calls->figures->driver_calls[calls->next++] = count->count;
    calls->figures->driver_ns += count->ns;
    return LOCH_OK;
}

static loch_status device_read_calls(loch_device *device, fleet_figures *out)
{
    device_calls calls = {.figures = out};
    *out = (fleet_figures){.driver_ns = 0};
    return loch_device_walk_calls(device, device_note_call, &calls);
}

static loch_status device_open(device_run *run)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = run->work->limit_bytes};
    if (run->device) return LOCH_OK;
    loch_status status = fleet_kind_open(run->work->kind, run->number, &run->device);
    if (status == LOCH_OK && run->work->is_shared)
        status = loch_pool_create(run->device, "device", &options, &run->family);
    return status;
}

/* Adds the figures of the device to the outcome, and closes it. */
static loch_status device_close(device_run *run)
{
    fleet_figures figures;
    loch_sim_stats stats = {.size = sizeof stats};
    if (!run->device) return LOCH_OK;
    loch_status status = device_read_calls(run->device, &figures);
    if (status == LOCH_OK) status = loch_sim_get_stats(run->device, &stats);
    if (status == LOCH_OK) {
        run->out->driver_ns += figures.driver_ns;
        for (size_t i = 0; i < LOCH_CALL_COUNT; i++)
            run->out->driver_calls[i] += figures.driver_calls[i];
        if (stats.physical_peak_bytes > run->out->peak_held) run->out->peak_held = stats.physical_peak_bytes;
    }
    loch_allocator_release(run->family);
    loch_device_release(run->device);
    run->family = NULL;
    run->device = NULL;
    return status;
}

/* Sets the clock. A wait on the host may have advanced it beyond `ns`; then it stays. */
static loch_status device_set_clock(device_run *run, uint64_t ns)
{
    uint64_t now_ns;
    loch_status status = loch_sim_get_time(run->device, &now_ns);
    if (status != LOCH_OK) return status;
    if (ns > now_ns) return loch_sim_set_time(run->device, ns);
    if (now_ns - ns > run->out->late_ns) run->out->late_ns = now_ns - ns;
    return LOCH_OK;
}

/* --- programs: start and end --- */

static loch_status device_no_memory(void)
{
    return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "there is no host memory for the fleet");
}

static void device_free_job(device_job *job)
{
    if (!job) return;
    for (size_t i = 1; i < job->streams_count; i++)
        loch_stream_close(job->streams[i]);
    free(job->streams);
    free(job->blocks);
    free(job);
}

static loch_status device_make_pool(const device_run *run, device_job *job)
{
    const fleet_work *work = run->work;
    const loch_child_options child = {.size = sizeof child, .limit_bytes = job->program->limit_bytes};
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = work->limit_bytes};
    const char *name = job->program->entry->name;
    if (work->is_shared) return loch_pool_create_child(run->family, name, &child, &job->pool);
    return loch_pool_create(run->device, name, &options, &job->pool);
}

static loch_status device_fill_job(device_run *run, device_job *job, const fleet_stint *stint)
{
    const trace_log *trace = &job->program->trace;
    job->at = job->program->events.data;
    job->end = job->at + job->program->events.count;
    /* A program that has the device to itself opens it, as a process does: the clock starts with it. */
    const uint64_t opened_ns = run->work->is_shared ? 0 : stint->start_ns;
    job->base_ns = job->due_ns = device_time(run, stint->start_ns - opened_ns);
    job->cut_ns = stint->is_cut ? device_time(run, stint->end_ns - opened_ns) : UINT64_MAX;
    job->blocks = calloc(trace->slots + 1, sizeof *job->blocks);
    job->streams = calloc(trace->streams + 1, sizeof(loch_stream *));
    if (!job->blocks || !job->streams) return device_no_memory();
    loch_status status = device_set_clock(run, job->base_ns);
    for (job->streams_count = 1; status == LOCH_OK && job->streams_count < trace->streams;)
        status = loch_stream_create(run->device, NULL, &job->streams[job->streams_count++]);
    if (status == LOCH_OK) status = device_make_pool(run, job);
    if (status == LOCH_OK) status = device_read_calls(run->device, &job->before);
    return status;
}

static loch_status device_start(device_run *run, const fleet_stint *stint)
{
    loch_status status = device_open(run);
    if (status != LOCH_OK) return status;
    device_job *job = calloc(1, sizeof *job);
    if (!job) return device_no_memory();
    job->program = &run->work->programs[stint->program];
    status = device_fill_job(run, job, stint);
    if (status != LOCH_OK) {
        loch_allocator_release(job->pool);
        device_free_job(job);
        return status;
    }
    *run->last = job;
    run->last = &job->next;
    run->out->stints++;
    return LOCH_OK;
}

/* Compares a program that has had the device to itself with what `loch replay` measured. */
static loch_status device_check(device_run *run, const device_job *job)
{
    const fleet_figures *alone = &job->program->alone;
    loch_stats stats = {.size = sizeof stats};
    fleet_figures now;
    char difference[128];
    loch_status status = device_read_calls(run->device, &now);
    if (status == LOCH_OK) status = loch_allocator_get_stats(job->pool, &stats);
    if (status != LOCH_OK) return status;
    now.driver_ns -= job->before.driver_ns;
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++)
        now.driver_calls[i] -= job->before.driver_calls[i];
    now.peak_reserved = stats.peak_reserved_bytes;
    now.peak_requested = stats.peak_requested_bytes;
    run->out->checked++;
    if (!fleet_figures_differ(&now, alone, difference, sizeof difference)) return LOCH_OK;
    if (!run->out->differing++)
        snprintf(run->out->sentence, sizeof run->out->sentence, "%s: %s", job->program->entry->name, difference);
    return LOCH_OK;
}

/* Frees the blocks and the pool of a program, and takes it out of the list. Returns the first failure. */
static loch_status device_end(device_run *run, device_job *job)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < job->program->trace.slots; i++) {
        if (!job->blocks[i]) continue;
        const loch_status freed = loch_free(job->pool, job->blocks[i]);
        if (status == LOCH_OK) status = freed;
    }
    loch_allocator_release(job->pool);
    device_job **link = &run->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    if (!job->next) run->last = link;
    device_free_job(job);
    const loch_status closed = run->work->is_shared ? LOCH_OK : device_close(run);
    return status == LOCH_OK ? closed : status;
}

/* --- programs: slices --- */

/* Handles events other than a plain allocation or free. */
static __attribute__((noinline)) loch_status device_rare(device_job *job, const trace_event *event)
{
    void **block = &job->blocks[event->slot];
    loch_stream *stream = job->streams[event->stream];
    if (event->kind != TRACE_ALLOC_SPECIAL && !*block) return LOCH_OK; /* of 0 bytes */
    if (event->kind == TRACE_USE) return loch_allocator_record_use(job->pool, *block, stream);
    if (event->kind == TRACE_ALLOC_SPECIAL) {
        const trace_special *special = (const trace_special *)job->program->trace.specials.data + event->bytes;
        const loch_request request = {.size = sizeof request,
                                      .bytes = special->bytes,
                                      .alignment = special->alignment,
                                      .stream = stream,
                                      .tag = special->tag,
                                      .max_bytes = special->max_bytes};
        return loch_allocator_alloc(job->pool, &request, block);
    }
    if (event->kind == TRACE_RESIZE)
        return loch_pool_resize_growable(
            job->pool, *block, ((const trace_special *)job->program->trace.specials.data)[event->bytes].bytes);
    void *freed = *block;
    *block = NULL;
    return loch_allocator_free_on(job->pool, freed, stream);
}

/* Runs events up to the next mark of the clock. An allocation that fails ends the slice. */
static loch_status device_slice(device_job *job, uint64_t *events)
{
    loch_request request = {.size = sizeof request};
    const trace_event *event = job->at, *const first = event, *const end = job->end;
    loch_allocator *pool = job->pool;
    loch_status status = LOCH_OK;
    for (; event != end && event->kind != TRACE_CLOCK && status == LOCH_OK; event++) {
        void **block = &job->blocks[event->slot];
        if (event->kind == TRACE_ALLOC) {
            request.bytes = event->bytes;
            request.stream = job->streams[event->stream];
            status = loch_allocator_alloc(pool, &request, block);
        } else if (event->kind == TRACE_FREE) {
            status = loch_free(pool, *block); /* NULL for 0 bytes */
            *block = NULL;
        } else {
            status = device_rare(job, event);
        }
    }
    *events += (uint64_t)(event - first);
    job->at = event;
    if (event != end) job->due_ns = job->base_ns + event->bytes;
    return status;
}

/* Tells whether a program ends because of this status: memory was refused. Others are failures of the simulation. */
static bool device_is_refusal(loch_status status)
{
    return status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT || status == LOCH_E_FRAGMENTED;
}

static loch_status device_kill(device_run *run, device_job *job)
{
    if (!run->out->killed++ && !run->out->differing)
        snprintf(run->out->sentence, sizeof run->out->sentence, "%.63s: %.255s", job->program->entry->name,
                 loch_error_get()->sentence);
    return device_end(run, job);
}

/* Ends all programs, because the device has failed. It is closed, and opened again for the next stint. */
static loch_status device_fail(device_run *run)
{
    loch_status status = loch_sim_lose(run->device);
    while (run->jobs) {
        run->out->cut++;
        const loch_status ended = device_end(run, run->jobs);
        if (status == LOCH_OK) status = ended;
    }
    const loch_status closed = device_close(run);
    return status == LOCH_OK ? closed : status;
}

/* Runs slices of a program while they are due before `until_ns`, at least one, or ends the program. */
static loch_status device_advance(device_run *run, device_job *job, uint64_t until_ns)
{
    do {
        loch_status status = LOCH_OK;
        if (job->due_ns >= job->cut_ns) return device_fail(run);
        if (job->at != job->end && job->at->kind == TRACE_CLOCK) {
            status = device_set_clock(run, job->due_ns);
            job->at++;
        }
        if (status == LOCH_OK) status = device_slice(job, &run->out->events);
        if (device_is_refusal(status)) return device_kill(run, job);
        if (status != LOCH_OK) return status;
        if (job->at == job->end && job->cut_ns == UINT64_MAX) {
            if (run->work->is_checked && !run->work->is_shared) status = device_check(run, job);
            const loch_status ended = device_end(run, job);
            return status == LOCH_OK ? ended : status;
        }
        if (job->at == job->end) job->due_ns = job->cut_ns; /* the device fails before the program's end is reached */
    } while (job->due_ns < until_ns);
    return LOCH_OK;
}

/* --- the whole --- */

/* Returns the time at which something happens to a program: its next slice, or the failure of the device. */
static uint64_t device_due(const device_job *job)
{
    return job->due_ns < job->cut_ns ? job->due_ns : job->cut_ns;
}

/* Finds the program that is due first, and the time until which no other one is. */
static device_job *device_next(const device_run *run, uint64_t *out_until_ns)
{
    device_job *first = NULL;
    uint64_t until_ns = UINT64_MAX;
    for (device_job *job = run->jobs; job; job = job->next) {
        const uint64_t due_ns = device_due(job);
        if (!first || due_ns < device_due(first)) {
            if (first) until_ns = device_due(first);
            first = job;
        } else if (due_ns < until_ns) {
            until_ns = due_ns;
        }
    }
    *out_until_ns = until_ns;
    return first;
}

/* Without sharing, a program ends before the next one starts, whatever the rounding of times says. */
static bool device_is_start_next(const device_run *run, const device_job *job, uint64_t start_ns)
{
    return run->upcoming != FLEET_NO_STINT && (!job || (run->work->is_shared && start_ns < device_due(job)));
}

static loch_status device_loop(device_run *run)
{
    const fleet_stint *stints = run->work->plan->stints;
    loch_status status = LOCH_OK;
    while (status == LOCH_OK && (run->jobs || run->upcoming != FLEET_NO_STINT)) {
        uint64_t until_ns, start_ns = UINT64_MAX;
        device_job *job = device_next(run, &until_ns);
        if (run->upcoming != FLEET_NO_STINT) start_ns = device_time(run, stints[run->upcoming].start_ns);
        if (device_is_start_next(run, job, start_ns)) {
            status = device_start(run, &stints[run->upcoming]);
            run->upcoming = stints[run->upcoming].next;
        } else if (job) {
            status = device_advance(run, job, until_ns < start_ns ? until_ns : start_ns);
        }
    }
    return status;
}

static void device_run_stints(const fleet_work *work, size_t number, double speed, uint32_t first, fleet_outcome *out)
{
    device_run run = {.work = work, .number = number, .speed = speed, .upcoming = first, .out = out};
    run.last = &run.jobs;
    *out = (fleet_outcome){.events = 0};
    loch_status status = device_loop(&run);
    if (status != LOCH_OK) snprintf(out->sentence, sizeof out->sentence, "%s", loch_error_get()->sentence);
    while (run.jobs)
        (void)!device_end(&run, run.jobs); /* after a failure, which is reported */
    const loch_status closed = device_close(&run);
    out->status = status == LOCH_OK ? closed : status;
}

void fleet_device_run(const fleet_work *work, size_t number, fleet_outcome *out)
{
    device_run_stints(work, number, work->plan->speeds[number], work->plan->first[number], out);
}

loch_status fleet_device_try(const fleet_kind *kind, const fleet_program *program, uint64_t limit_bytes, bool *out_fits)
{
    fleet_stint stint = {.end_ns = program->duration_ns, .next = FLEET_NO_STINT};
    const fleet_plan plan = {.devices = 1, .stints = &stint, .stints_count = 1};
    const fleet_work work = {.kind = kind, .programs = program, .plan = &plan, .limit_bytes = limit_bytes};
    fleet_outcome outcome;
    device_run_stints(&work, 0, 1, 0, &outcome);
    *out_fits = !outcome.killed;
    if (outcome.status != LOCH_OK) return loch_error_set(outcome.status, NULL, 0, "%s", outcome.sentence);
    return LOCH_OK;
}
