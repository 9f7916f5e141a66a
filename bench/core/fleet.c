/* SPDX-License-Identifier: MIT */
/* `core fleet`: what it costs to simulate a device of a fleet, and whether that cost grows with the fleet.
 *
 * The programs are the traces that are named, one a device, in turns. So a small and a large fleet run the same mix.
 * Every run is compared with `loch replay`. Small fleets run before and after the large one; their median counts. */
#include "core.h"
#include "tools/fleet_programs.h"
#include "tools/fleet_run.h"
#include "tools/json.h"
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define FLEET_SMALL 10
#define FLEET_LARGE 1000
#define FLEET_LARGE_QUICK 30
#define FLEET_SMALL_RUNS 6 /* half of them before the large fleet, half of them after it */
#define FLEET_BASE_BYTES 2e6
#define FLEET_BASE_PART 0.002

/* One fleet that was simulated. */
typedef struct fleet_sample {
    size_t devices;
    double processor_ms, elapsed_ms; /* a device */
    double events_per_second, events_per_processor_second;
    double memory_bytes, allowed_bytes; /* a device; allowed: 2 MB and 0.2 % of what it holds at most */
    uint64_t events, checked, differing;
} fleet_sample;

typedef struct fleet_bench {
    fleet_mix mix;
    fleet_programs programs;
    fleet_kind kind;
    size_t workers;
    double alone_part; /* memory of a process for one device, as part of what is allowed: that of the worst program */
    const char *alone_name;
} fleet_bench;

/* Returns the processor time of this process and of those that it has waited for, in nanoseconds. */
static uint64_t fleet_processor_ns(void)
{
    struct rusage usage[2];
    uint64_t ns = 0;
    getrusage(RUSAGE_SELF, &usage[0]);
    getrusage(RUSAGE_CHILDREN, &usage[1]);
    for (int i = 0; i < 2; i++)
        ns += (uint64_t)(usage[i].ru_utime.tv_sec + usage[i].ru_stime.tv_sec) * 1000000000 +
              (uint64_t)(usage[i].ru_utime.tv_usec + usage[i].ru_stime.tv_usec) * 1000;
    return ns;
}

/* Plans a fleet in which each device runs one program, and runs it. */
static loch_status fleet_bench_run(const fleet_bench *bench, size_t devices, fleet_total *out)
{
    fleet_need needs[FLEET_PROGRAMS_MAX];
    const fleet_demand demand = {.needs = needs,
                                 .needs_count = bench->programs.count,
                                 .budget_bytes = bench->kind.total_bytes,
                                 .requests = devices,
                                 .takes_turns = true};
    fleet_plan plan;
    *out = (fleet_total){.held = NULL};
    for (size_t i = 0; i < bench->programs.count; i++)
        needs[i] = (fleet_need){.weight = 1, .duration_ns = bench->programs.list[i].duration_ns};
    loch_status status = LOCH_OK;
    if (fleet_plan_make(&plan, &demand, devices) != FLEET_PLANNED)
        status = loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "there is no memory for the plan of %zu devices", devices);
    const fleet_work work = {.kind = &bench->kind, .programs = bench->programs.list, .plan = &plan, .is_checked = true};
    if (status == LOCH_OK) status = fleet_run(&work, bench->workers, out);
    fleet_plan_free(&plan);
    return status;
}

static loch_status fleet_measure(const fleet_bench *bench, size_t devices, fleet_sample *out)
{
    fleet_total total;
    const uint64_t start_ns = fleet_processor_ns();
    const loch_status status = fleet_bench_run(bench, devices, &total);
    const double processor_ns = (double)(fleet_processor_ns() - start_ns), count = (double)devices;
    double held = 0;
    for (size_t i = 0; i < total.held_count; i++)
        held += (double)total.held[i];
    *out = (fleet_sample){.devices = devices,
                          .processor_ms = processor_ns / count / 1e6,
                          .elapsed_ms = (double)total.effort.elapsed_ns / count / 1e6,
                          .memory_bytes = (double)total.effort.peak_bytes / count,
                          .allowed_bytes = FLEET_BASE_BYTES + FLEET_BASE_PART * held / count,
                          .events = total.sum.events,
                          .checked = total.sum.checked,
                          .differing = total.sum.differing};
    if (total.effort.elapsed_ns)
        out->events_per_second = (double)total.sum.events * 1e9 / (double)total.effort.elapsed_ns;
    if (processor_ns > 0) out->events_per_processor_second = (double)total.sum.events * 1e9 / processor_ns;
    fleet_total_free(&total);
    tool_steps_next();
    return status;
}

/* --- memory of one device --- */

/* Returns a line of the process's status in bytes. */
static double fleet_resident(const char *name)
{
    char line[256];
    double bytes = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) bytes = 1024 * (double)strtoull(line + strlen(name), NULL, 10);
    if (file) fclose(file);
    return bytes;
}

/* Resets the peak of resident memory. Without it the peak is that of the whole process: never too low. */
static void fleet_reset_peak(void)
{
    const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    malloc_trim(0);
    if (file < 0) return;
    if (write(file, "5", 1) != 1) {}
    close(file);
}

/* Finds the program whose device takes the most memory of the process, for what is allowed. */
static loch_status fleet_measure_alone(fleet_bench *bench)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < bench->programs.count && status == LOCH_OK; i++) {
        const fleet_bench one = {
            .programs = {.list = &bench->programs.list[i], .count = 1}, .kind = bench->kind, .workers = 1};
        const double held = (double)bench->programs.list[i].alone.peak_reserved;
        fleet_total total;
        fleet_reset_peak();
        const double before = fleet_resident("VmRSS:");
        status = fleet_bench_run(&one, 1, &total);
        const double part = (fleet_resident("VmHWM:") - before) / (FLEET_BASE_BYTES + FLEET_BASE_PART * held);
        fleet_total_free(&total);
        if (part < bench->alone_part) continue;
        bench->alone_part = part;
        bench->alone_name = bench->programs.list[i].entry->name;
    }
    return status;
}

/* --- printing --- */

static void fleet_print_text(const fleet_bench *bench, const fleet_sample *samples)
{
    for (int i = 0; i < 2; i++)
        printf("%5zu devices   %8.2f ms each (%.2f ms of processor time), %.2f million events/s (%.2f in a second of a "
               "processor); %zu of %zu differ from loch replay\n",
               samples[i].devices, samples[i].elapsed_ms, samples[i].processor_ms, samples[i].events_per_second / 1e6,
               samples[i].events_per_processor_second / 1e6, (size_t)samples[i].differing, (size_t)samples[i].checked);
    printf("%-15s %8.3f (%.3f of processor time)\n", "time a device", samples[1].elapsed_ms / samples[0].elapsed_ms,
           samples[1].processor_ms / samples[0].processor_ms);
    printf("%-15s %8.3f MB a device, %.2f MB are allowed; %zu processes\n", "memory", samples[1].memory_bytes / 1e6,
           samples[1].allowed_bytes / 1e6, bench->workers);
    printf("%-15s %8.3f of what is allowed: %s\n", "one device", bench->alone_part, bench->alone_name);
}

static void fleet_print_json(const fleet_bench *bench, const fleet_sample *samples)
{
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    json_text(&json, "benchmark", "fleet");
    json_text(&json, "device", bench->kind.device);
    json_number(&json, "processes", bench->workers);
    json_open_array(&json, "results");
    for (int i = 0; i < 2; i++) {
        json_open_object(&json, NULL);
        json_number(&json, "devices", samples[i].devices);
        json_number(&json, "events", samples[i].events);
        json_real(&json, "processor_ms_a_device", samples[i].processor_ms);
        json_real(&json, "elapsed_ms_a_device", samples[i].elapsed_ms);
        json_real(&json, "events_per_second", samples[i].events_per_second);
        json_real(&json, "events_per_processor_second", samples[i].events_per_processor_second);
        json_real(&json, "memory_bytes_a_device", samples[i].memory_bytes);
        json_real(&json, "allowed_bytes_a_device", samples[i].allowed_bytes);
        json_number(&json, "checked", samples[i].checked);
        json_number(&json, "differing", samples[i].differing);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_real(&json, "processor_ratio", samples[1].processor_ms / samples[0].processor_ms);
    json_real(&json, "elapsed_ratio", samples[1].elapsed_ms / samples[0].elapsed_ms);
    json_real(&json, "one_device_memory_part", bench->alone_part);
    json_close_object(&json);
}

/* --- the benchmark --- */

static int fleet_compare(const void *a, const void *b)
{
    const double left = ((const fleet_sample *)a)->processor_ms, right = ((const fleet_sample *)b)->processor_ms;
    return (left > right) - (left < right);
}

static loch_status fleet_bench_all(fleet_bench *bench, bool is_quick, fleet_sample *out)
{
    const size_t programs = bench->programs.count, large = is_quick ? FLEET_LARGE_QUICK : FLEET_LARGE;
    fleet_sample small[FLEET_SMALL_RUNS];
    loch_status status = fleet_measure_alone(bench);
    for (int i = 0; i < FLEET_SMALL_RUNS && status == LOCH_OK; i++) {
        if (i == FLEET_SMALL_RUNS / 2)
            status = fleet_measure(bench, (large + programs - 1) / programs * programs, &out[1]);
        if (status == LOCH_OK)
            status = fleet_measure(bench, (FLEET_SMALL + programs - 1) / programs * programs, &small[i]);
    }
    if (status != LOCH_OK) return status;
    qsort(small, FLEET_SMALL_RUNS, sizeof *small, fleet_compare);
    out[0] = small[FLEET_SMALL_RUNS / 2];
    return LOCH_OK;
}

static int fleet_bench_prepare(fleet_bench *bench, const tool_bench_options *options)
{
    cpu_set_t processors;
    const bool is_known = sched_getaffinity(0, sizeof processors, &processors) == 0;
    bench->workers = options->threads_count ? options->threads[0] : is_known ? (size_t)CPU_COUNT(&processors) : 1;
    if (bench->workers > FLEET_WORKERS_MAX) bench->workers = FLEET_WORKERS_MAX;
    for (size_t i = 0; i < options->traces_count; i++)
        if (!fleet_mix_add(&bench->mix, options->traces[i])) return tool_fail("%s", bench->mix.error);
    const loch_status status = fleet_kind_read(&bench->kind);
    if (status != LOCH_OK) return tool_fail_status(status);
    const int code = fleet_programs_load(&bench->programs, &bench->mix);
    if (code != TOOL_DONE) return code;
    return fleet_programs_measure(&bench->programs, &bench->kind, FLEET_FIT_ALONE, bench->workers);
}

int core_fleet(const tool_bench_options *options)
{
    const bool is_simulated = !strncmp(options->device, "sim:", 4);
    fleet_bench bench = {.kind = {.device = is_simulated ? options->device : "sim:141GiB", .lag_ns = 2000000}};
    fleet_sample samples[2];
    if (!options->traces_count) {
        if (options->is_json) return tool_misuse(options->command, "fleet needs a --trace");
        puts("fleet runs traces: --trace FILE");
        return TOOL_DONE;
    }
    int code = fleet_bench_prepare(&bench, options);
    if (code == TOOL_DONE) {
        tool_steps_begin("fleet", FLEET_SMALL_RUNS + 1);
        const loch_status status = fleet_bench_all(&bench, options->is_quick, samples);
        tool_steps_end();
        if (status != LOCH_OK)
            code = tool_fail_status(status);
        else if (options->is_json)
            fleet_print_json(&bench, samples);
        else
            fleet_print_text(&bench, samples);
    }
    fleet_programs_free(&bench.programs);
    fleet_mix_free(&bench.mix);
    return code;
}
