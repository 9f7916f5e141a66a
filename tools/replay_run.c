/* SPDX-License-Identifier: MIT */
/* The loop that replays a trace. Its time counts as the time of the allocator, so it does as little as possible besides
 * calling the allocator. All its data is in memory and touched before it starts. Rare events are handled out of line.
 *
 * On simulated devices the clock follows the trace. Setting the clock is not work of the allocator, so it is timed
 * separately, together with the cost of this timing, and subtracted. */
#include "replay.h"
#include <loch/recorder.h>
#include <loch/sim.h>
#include "tool.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPLAY_PAGE_BYTES 4096
#define REPLAY_SLICES 200        /* of a run with a progress line */
#define REPLAY_CLOCK_STEP_US 100 /* smaller than any useful lag, and larger than the distance of most events */

typedef struct replay_loop {
    const trace_event *first, *end;
    const trace_special *specials;
    void **blocks;         /* by slot; NULL if the block is not live or its allocation failed */
    loch_stream **streams; /* by index; NULL for the default stream */
    loch_allocator *allocator;
    loch_planned *planned; /* NULL if the allocator is not planned */
    bool is_fixed;         /* the allocator has no growable blocks: a resize is a free and an allocation */
    loch_device *device;
    uint64_t sim_start_ns; /* simulated time at the start of the trace */
    uint64_t clock_ns;     /* time spent on setting the clock */
    uint64_t clock_calls;
    replay_kept *kept;
    replay_result *result;
    loch_status status; /* status of a free or a use; other than LOCH_OK ends the loop */
} replay_loop;

/* --- the loop --- */

static void replay_touch(volatile char *block, size_t bytes)
{
    if (!block || !bytes) return;
    for (size_t at = 0; at < bytes; at += REPLAY_PAGE_BYTES)
        block[at] = 1;
    block[bytes - 1] = 1; /* a block need not start at a page */
}

/* Counts an allocation that failed, and keeps the sentence of the first one. */
static __attribute__((noinline)) void replay_fail(replay_loop *loop, loch_status status)
{
    if (!*loop->kept->first_failure)
        snprintf(loop->kept->first_failure, sizeof loop->kept->first_failure, "%s", loch_error_get()->sentence);
    loop->result->failures++;
    if ((size_t)status < LOCH_STATUS_COUNT) loop->result->failures_by[status]++;
}

static __attribute__((noinline)) void replay_fail_libc(replay_loop *loop, size_t bytes)
{
    replay_fail(loop, loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "libc has no %zu bytes", bytes));
}

/* A wait on the host may have advanced the simulated clock beyond the trace; the clock is then not changed. */
static __attribute__((noinline)) loch_status replay_tell_time(replay_loop *loop, uint64_t trace_ns)
{
    const uint64_t start_ns = loch_host_now_ns();
    uint64_t now_ns;
    loch_status status = loch_sim_get_time(loop->device, &now_ns);
    if (status == LOCH_OK && loop->sim_start_ns + trace_ns > now_ns)
        status = loch_sim_set_time(loop->device, loop->sim_start_ns + trace_ns);
    loop->clock_ns += loch_host_now_ns() - start_ns;
    loop->clock_calls++;
    return status;
}

/* Makes a block for the request of an event. */
static void replay_request(replay_loop *loop, const trace_event *event, bool touches)
{
    const trace_special *special = &loop->specials[event->bytes];
    void **block = &loop->blocks[event->slot];
    const loch_request request = {.size = sizeof request,
                                  .bytes = special->bytes,
                                  .alignment = special->alignment,
                                  .stream = loop->streams[event->stream],
                                  .tag = special->tag,
                                  .max_bytes = loop->is_fixed ? 0 : special->max_bytes};
    const loch_status served = loch_allocator_alloc(loop->allocator, &request, block);
    if (request.max_bytes && served == LOCH_E_UNSUPPORTED) {
        loop->is_fixed = true;
        replay_request(loop, event, touches);
        return;
    }
    if (served != LOCH_OK)
        replay_fail(loop, served);
    else if (touches)
        replay_touch(*block, special->bytes);
}

/* Gives a growable block another size. One that cannot grow keeps the size that it has. */
static loch_status replay_resize(replay_loop *loop, const trace_event *event, bool touches)
{
    const trace_special *special = &loop->specials[event->bytes];
    void **block = &loop->blocks[event->slot];
    loch_status served = LOCH_E_UNSUPPORTED;
    if (!loop->is_fixed) served = loch_pool_resize_growable(loop->allocator, *block, special->bytes);
    if (served == LOCH_E_UNSUPPORTED) {
        loop->is_fixed = true;
        void *freed = *block;
        *block = NULL;
        const loch_status status = loch_free(loop->allocator, freed);
        if (status == LOCH_OK) replay_request(loop, event, touches);
        return status;
    }
    if (served != LOCH_OK)
        replay_fail(loop, served);
    else if (touches)
        replay_touch(*block, special->bytes);
    return LOCH_OK;
}

/* Handles events other than a plain allocation or free. */
static __attribute__((noinline)) loch_status replay_rare(replay_loop *loop, const trace_event *event, bool touches)
{
    void **block = &loop->blocks[event->slot];
    loch_stream *stream = loop->streams[event->stream];
    loch_status status = LOCH_OK;
    if (event->kind == TRACE_CLOCK) {
        status = replay_tell_time(loop, event->bytes);
    } else if (event->kind == TRACE_ALLOC_SPECIAL) {
        replay_request(loop, event, touches);
    } else if (!*block) {
        return LOCH_OK; /* its allocation failed */
    } else if (event->kind == TRACE_RESIZE) {
        status = replay_resize(loop, event, touches);
    } else if (event->kind == TRACE_FREE_ON) {
        status = loch_allocator_free_on(loop->allocator, *block, stream);
        *block = NULL;
    } else {
        status = loch_allocator_record_use(loop->allocator, *block, stream);
    }
    return status;
}

static inline __attribute__((always_inline)) void replay_loop_loch(replay_loop *loop, const bool touches,
                                                                   const bool is_planned)
{
    loch_request request = {.size = sizeof request};
    loch_allocator *allocator = loop->allocator;
    loch_stream *const *streams = loop->streams;
    void **blocks = loop->blocks;
    for (const trace_event *event = loop->first, *end = loop->end; event != end; event++) {
        void **block = &blocks[event->slot];
        if (event->kind == TRACE_ALLOC) {
            request.bytes = event->bytes;
            request.stream = streams[event->stream];
            const loch_status served = is_planned ? loch_planned_alloc(loop->planned, &request, block)
                                                  : loch_allocator_alloc(allocator, &request, block);
            if (served != LOCH_OK)
                replay_fail(loop, served);
            else if (touches)
                replay_touch(*block, event->bytes);
        } else {
            loch_status status = LOCH_OK;
            if (event->kind != TRACE_FREE)
                status = replay_rare(loop, event, touches);
            else if (*block)
                status = is_planned ? loch_planned_free(loop->planned, *block) : loch_free(allocator, *block);
            if (event->kind == TRACE_FREE) *block = NULL;
            if (status == LOCH_OK) continue;
            loop->status = status;
            return;
        }
    }
}

static void replay_loop_plain(replay_loop *loop)
{
    if (loop->planned)
        replay_loop_loch(loop, false, true);
    else
        replay_loop_loch(loop, false, false);
}

static void replay_loop_touching(replay_loop *loop)
{
    if (loop->planned)
        replay_loop_loch(loop, true, true);
    else
        replay_loop_loch(loop, true, false);
}

/* libc has no streams: streams of events are ignored. */
static __attribute__((noinline)) void replay_rare_libc(replay_loop *loop, const trace_event *event, bool touches)
{
    void **block = &loop->blocks[event->slot];
    if (event->kind == TRACE_ALLOC_SPECIAL || (event->kind == TRACE_RESIZE && *block)) {
        const trace_special *special = &loop->specials[event->bytes];
        const size_t least = sizeof(void *), alignment = special->alignment > least ? special->alignment : least;
        if (event->kind == TRACE_RESIZE) free(*block);
        *block = NULL;
        if (posix_memalign(block, alignment, special->bytes) != 0)
            replay_fail_libc(loop, special->bytes);
        else if (touches)
            replay_touch(*block, special->bytes);
    } else if (event->kind == TRACE_FREE_ON) {
        free(*block);
        *block = NULL;
    }
}

static inline __attribute__((always_inline)) void replay_loop_malloc(replay_loop *loop, const bool touches)
{
    void **blocks = loop->blocks;
    for (const trace_event *event = loop->first, *end = loop->end; event != end; event++) {
        void **block = &blocks[event->slot];
        if (event->kind == TRACE_ALLOC) {
            *block = malloc(event->bytes);
            if (!*block)
                replay_fail_libc(loop, event->bytes);
            else if (touches)
                replay_touch(*block, event->bytes);
        } else if (event->kind == TRACE_FREE) {
            free(*block);
            *block = NULL;
        } else {
            replay_rare_libc(loop, event, touches);
        }
    }
}

static void replay_loop_libc(replay_loop *loop)
{
    replay_loop_malloc(loop, false);
}

static void replay_loop_libc_touching(replay_loop *loop)
{
    replay_loop_malloc(loop, true);
}

/* --- what the process holds --- */

/* Returns the number behind `name` in the process's status, in bytes; 0 if it is missing. */
static uint64_t replay_read_status(const char *name)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) kib = strtoull(line + strlen(name), NULL, 10);
    if (file) fclose(file);
    return kib * 1024;
}

/* Resets the process's peak of resident memory, if the system allows it. */
static void replay_reset_rss(void)
{
    const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    if (write(file, "5", 1) != 1) { /* otherwise the peak is that of the whole process: never too low */
    }
    close(file);
}

/* --- one run --- */

/* Returns the cost of timing beyond the time that it measures. */
static uint64_t replay_clock_overhead(void)
{
    uint64_t inside_ns = 0;
    const unsigned count = 1000;
    const uint64_t start_ns = loch_host_now_ns();
    for (unsigned i = 0; i < count; i++) {
        const uint64_t pair_ns = loch_host_now_ns();
        inside_ns += loch_host_now_ns() - pair_ns;
    }
    const uint64_t all_ns = loch_host_now_ns() - start_ns;
    return all_ns > inside_ns ? (all_ns - inside_ns) / count : 0;
}

static bool replay_is_simulated(const loch_device *device)
{
    loch_device_properties properties = {.size = sizeof properties};
    return device && loch_device_get_properties(device, &properties) == LOCH_OK && !strcmp(properties.driver, "sim");
}

/* Creates a pool and a planned pool in front of it. Each run is a step. */
static loch_status replay_make_planned(const replay_setup *setup)
{
    const loch_planned_options options = {
        .size = sizeof options, .record_steps = REPLAY_RECORDED, .record_max = SIZE_MAX};
    replay_kept *kept = setup->kept;
    loch_status status = loch_pool_create(setup->device, "replay", NULL, &kept->pool);
    if (status == LOCH_OK) status = loch_planned_create(kept->pool, "replay", &options, &kept->planned);
    if (status == LOCH_OK) kept->allocator = loch_allocator_retain(loch_planned_get_allocator(kept->planned));
    return status;
}

static loch_status replay_make_allocator(const replay_setup *setup, loch_allocator **out)
{
    if (!strcmp(setup->allocator, "planned")) return replay_make_planned(setup);
    if (!strcmp(setup->allocator, "pool")) return loch_pool_create(setup->device, "replay", NULL, out);
    if (!strcmp(setup->allocator, "direct")) return loch_direct_create(setup->device, "replay", NULL, out);
    return loch_registry_acquire(setup->allocator, setup->device, out);
}

static loch_status replay_no_memory(void)
{
    return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "there is no host memory for the replay");
}

/* Creates the state that stays between runs, in the first run. */
static loch_status replay_make_kept(const replay_setup *setup)
{
    replay_kept *kept = setup->kept;
    if (kept->allocator) return LOCH_OK;
    kept->streams = calloc(setup->trace->streams + 1, sizeof *kept->streams);
    if (!kept->streams) return replay_no_memory();
    loch_status status = LOCH_OK;
    for (kept->streams_count = 1; status == LOCH_OK && kept->streams_count < setup->trace->streams;)
        status = loch_stream_create(setup->device, NULL, &kept->streams[kept->streams_count++]);
    if (status == LOCH_OK) status = replay_make_allocator(setup, &kept->allocator);
    return status;
}

void replay_end(replay_kept *kept)
{
    loch_allocator_release(kept->allocator);
    loch_planned_destroy(kept->planned);
    loch_allocator_release(kept->pool);
    for (size_t i = 1; i < kept->streams_count; i++)
        loch_stream_close(kept->streams[i]);
    free(kept->streams);
    *kept = (replay_kept){.allocator = NULL};
}

static loch_status replay_prepare(const replay_setup *setup, replay_loop *loop, lochi_array *events)
{
    const trace_log *trace = setup->trace;
    loch_status status = LOCH_OK;
    loop->first = trace_events(trace);
    loop->end = loop->first + trace->events.count;
    loop->specials = trace->specials.data;
    loop->device = setup->device;
    if (replay_is_simulated(setup->device)) {
        if (!trace_add_clock(trace, setup->record ? 1 : REPLAY_CLOCK_STEP_US, events)) return replay_no_memory();
        loop->first = events->data;
        loop->end = loop->first + events->count;
        status = loch_sim_get_time(setup->device, &loop->sim_start_ns);
    }
    if (!setup->device) return status;
    if (status == LOCH_OK) status = replay_make_kept(setup);
    if (status != LOCH_OK) return status;
    loop->streams = setup->kept->streams;
    loop->allocator = setup->kept->allocator;
    if (!loop->streams || !loop->allocator) return replay_no_memory();
    loop->planned = setup->kept->planned;
    if (loop->planned) status = loch_planned_step(loop->planned);
    if (status == LOCH_OK && loop->planned) status = loch_allocator_reset_stats(setup->kept->pool);
    if (status == LOCH_OK) status = loch_allocator_reset_stats(loop->allocator);
    if (status == LOCH_OK) status = loch_device_measure_calls(setup->device, LOCH_MEASURE_ON);
    return status;
}

/* Counts the driver calls, and the part of the loop's time that they took. */
typedef struct replay_calls {
    replay_result *out;
    size_t next; /* in the order of loch_driver_call */
    uint64_t inside_ns;
} replay_calls;

static loch_status replay_note_call(const loch_call_count *count, void *user)
{
    replay_calls *calls = user;
    calls->out->driver_calls[calls->next++] = count->count;
    calls->out->driver_ns += count->ns;
    calls->inside_ns += count->real_ns;
    return LOCH_OK;
}

static loch_status replay_read_driver(const replay_setup *setup, replay_result *out, uint64_t *inside_ns)
{
    replay_calls calls = {.out = out};
    const loch_status status = loch_device_walk_calls(setup->device, replay_note_call, &calls);
    *inside_ns += calls.inside_ns;
    return status;
}

/* Runs the loop and returns its time. With a progress line, it runs in slices, and the line is drawn between them and
 * not counted. */
static uint64_t replay_slices(const replay_setup *setup, replay_loop *loop, void (*run)(replay_loop *))
{
    const trace_event *const first = loop->first, *const end = loop->end;
    const size_t count = (size_t)(end - first);
    const size_t slice = setup->progress ? count / REPLAY_SLICES + 1 : count;
    uint64_t loop_ns = 0;
    do {
        loop->end = (size_t)(end - loop->first) > slice ? loop->first + slice : end;
        const uint64_t start_ns = loch_host_now_ns();
        run(loop);
        loop_ns += loch_host_now_ns() - start_ns;
        loop->first = loop->end;
        if (!setup->progress || !count) continue;
        const double done = (double)(loop->first - first) / (double)count;
        (void)!tool_progress_part(((double)setup->run + done) / (double)setup->runs, setup->progress);
    } while (loop->first != end && loop->status == LOCH_OK);
    return loop_ns;
}

static loch_status replay_time(const replay_setup *setup, replay_loop *loop, replay_result *out)
{
    void (*const loops[2][2])(replay_loop *) = {{replay_loop_plain, replay_loop_touching},
                                                {replay_loop_libc, replay_loop_libc_touching}};
    const uint64_t overhead_ns = replay_clock_overhead();
    loch_stats stats = {.size = sizeof stats};
    uint64_t inside_ns = 0;
    if (setup->device && !loop->streams) return replay_no_memory();
    if (setup->touches) {
        replay_reset_rss();
        out->rss_before = replay_read_status("VmRSS:");
    }
    const uint64_t loop_ns = replay_slices(setup, loop, loops[!setup->device][setup->touches]);
    if (setup->touches) out->rss_peak = replay_read_status("VmHWM:");
    loch_status status = loop->status;
    if (status == LOCH_OK && setup->device) status = replay_read_driver(setup, out, &inside_ns);
    if (status == LOCH_OK && setup->device) status = loch_allocator_get_stats(loop->allocator, &stats);
    if (status != LOCH_OK) return status;
    inside_ns += loop->clock_ns + loop->clock_calls * overhead_ns;
    const double events = (double)setup->trace->events.count;
    if (events > 0 && loop_ns > inside_ns) out->ns_per_event = (double)(loop_ns - inside_ns) / events;
    if (events > 0) out->total_ns_per_event = (double)loop_ns / events;
    out->peak_reserved = stats.peak_reserved_bytes;
    return LOCH_OK;
}

/* Frees the live blocks. Returns the first failure. */
static loch_status replay_finish(const replay_setup *setup, replay_loop *loop)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < setup->trace->slots; i++) {
        if (!loop->blocks[i]) continue;
        if (!setup->device) free(loop->blocks[i]);
        const loch_status freed = setup->device ? loch_free(loop->allocator, loop->blocks[i]) : LOCH_OK;
        if (status == LOCH_OK) status = freed;
    }
    return status;
}

/* Runs the loop while the recorder writes a file. On simulated devices its times are those of the trace. */
static loch_status replay_record(const replay_setup *setup, replay_loop *loop, replay_result *out)
{
    const loch_recorder_options options = {.size = sizeof options,
                                           .path = setup->record,
                                           .clock = replay_is_simulated(setup->device) ? setup->device : NULL,
                                           .allocator = setup->kept->allocator};
    loch_status status = loch_recorder_start(&options);
    if (status != LOCH_OK) return status;
    status = replay_time(setup, loop, out);
    const loch_status stopped = loch_recorder_stop();
    return status == LOCH_OK ? stopped : status;
}

loch_status replay_run(const replay_setup *setup, replay_result *out)
{
    replay_loop loop = {.kept = setup->kept, .result = out, .status = LOCH_OK};
    lochi_array events = {.data = NULL}, blocks = {.data = NULL};
    *out = (replay_result){.failures = 0};
    loch_status status = LOCH_OK;
    if (!lochi_array_reserve(&blocks, setup->trace->slots + 1, sizeof(void *))) {
        status = replay_no_memory();
    } else {
        loop.blocks = blocks.data;
        /* touches the pages, so that the loop has no page fault */
        memset(loop.blocks, 0, setup->trace->slots * sizeof(void *));
        status = replay_prepare(setup, &loop, &events);
        if (status == LOCH_OK)
            status = setup->record ? replay_record(setup, &loop, out) : replay_time(setup, &loop, out);
        const loch_status finished = replay_finish(setup, &loop);
        if (status == LOCH_OK) status = finished;
    }
    lochi_array_free(&events);
    lochi_array_free(&blocks);
    return status;
}

/* --- around runs --- */

loch_status replay_open_device(const char *name, uint64_t lag_ns, loch_device **out)
{
    char full[2 * LOCH_DEVICE_NAME_MAX], lag[64] = "";
    const char *backing = strstr(name, "backed") ? "" : ",unbacked"; /* a replay moves no contents */
    const bool is_simulated = !strncmp(name, "sim:", 4);
    if (!strstr(name, "event_lag=")) snprintf(lag, sizeof lag, ",event_lag=%llu", (unsigned long long)lag_ns);
    if (strlen(name) >= LOCH_DEVICE_NAME_MAX || !is_simulated) return loch_device_open(name, out);
    snprintf(full, sizeof full, "%s%s%s%s", name, backing, strstr(name, "clock=") ? "" : ",clock=stepped", lag);
    return loch_device_open(full, out);
}

static int replay_compare_own(const void *a, const void *b)
{
    const double left = ((const replay_result *)a)->ns_per_event, right = ((const replay_result *)b)->ns_per_event;
    return (left > right) - (left < right);
}

static int replay_compare_total(const void *a, const void *b)
{
    const double left = ((const replay_result *)a)->total_ns_per_event,
                 right = ((const replay_result *)b)->total_ns_per_event;
    return (left > right) - (left < right);
}

void replay_summarize(replay_result *results, size_t count, replay_result *out)
{
    const replay_result first = results[0]; /* later runs start with the memory of this run */
    qsort(results, count, sizeof *results, replay_compare_total);
    const double total_ns_per_event = results[count / 2].total_ns_per_event;
    qsort(results, count, sizeof *results, replay_compare_own);
    *out = results[count / 2];
    out->total_ns_per_event = total_ns_per_event;
    out->rss_before = first.rss_before;
    out->peak_reserved = out->peak_reserved_ever = first.peak_reserved;
    out->driver_ns = first.driver_ns;
    memcpy(out->driver_calls, first.driver_calls, sizeof out->driver_calls);
    for (size_t i = 0; i < count; i++) {
        if (results[i].peak_reserved > out->peak_reserved_ever) out->peak_reserved_ever = results[i].peak_reserved;
        if (results[i].rss_peak > out->rss_peak) out->rss_peak = results[i].rss_peak;
        if (results[i].failures <= out->failures) continue;
        out->failures = results[i].failures;
        memcpy(out->failures_by, results[i].failures_by, sizeof out->failures_by);
    }
}
