/* SPDX-License-Identifier: MIT */
/* `loch fleet`: simulates many devices that run a mix of programs, and says how many are needed. */
#include "fleet_find.h"
#include "fleet_report.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define FLEET_DEVICES_MAX 1000000
#define FLEET_RATE_MAX 1e6
#define FLEET_SECONDS_MAX (366 * 86400.0)
#define FLEET_LAG_US_MAX 1e12
#define FLEET_CHANGES_MAX 24 /* of limits and overcommit, while memory is refused to too many requests */
#define FLEET_RAISE_PART 50  /* limits are raised by this part */
#define FLEET_OVER_MIN 0.02  /* a smaller overcommit does not count */

typedef struct fleet_command {
    fleet_mix mix;
    fleet_programs programs;
    fleet_need needs[FLEET_PROGRAMS_MAX];
    fleet_kind kind;
    fleet_demand demand;
    fleet_fit fit;
    uint64_t limit_bytes, devices, workers;
    double overcommit, skew, wait_s, quantile, lost;
    bool is_found, is_checked, is_json, has_duration, has_requests, has_spread;
} fleet_command;

/* --- options --- */

/* An option with a number: where it goes, and what it may be. */
typedef struct fleet_number {
    const char *name;
    double *real; /* one of the two is set */
    uint64_t *whole;
    double least, most;
    const char *what;
    bool *is_set; /* may be NULL */
} fleet_number;

static bool fleet_read_whole(const char *text, double least, double most, uint64_t *out)
{
    char *end = NULL;
    if (!text || *text < '0' || *text > '9' || strlen(text) > 19) return false;
    *out = strtoull(text, &end, 10);
    return !*end && (double)*out >= least && (double)*out <= most;
}

/* Reads an option with a number. Returns true if the argument is one; `*code` says whether it is right. */
static bool fleet_read_number(fleet_command *command, tool_options *options, const char *argument, int *code)
{
    fleet_demand *demand = &command->demand;
    double lag_us = -1;
    const fleet_number numbers[] = {
        {"--devices", NULL, &command->devices, 1, FLEET_DEVICES_MAX, "a number of devices from 1 to 1000000", NULL},
        {"--requests", NULL, &demand->requests, 1, FLEET_REQUESTS_MAX, "a number of requests", &command->has_requests},
        {"--seed", NULL, &demand->seed, 0, 1e19, "a whole number", NULL},
        {"--processes", NULL, &command->workers, 1, FLEET_WORKERS_MAX, "a number of processes from 1 to 256", NULL},
        {"--arrivals", &demand->rate, NULL, 1e-6, FLEET_RATE_MAX, "a number of requests a second", NULL},
        {"--heavy", &demand->shape, NULL, 1.01, 100, "a shape from 1.01 to 100", NULL},
        {"--duration", &demand->duration_s, NULL, 1e-3, FLEET_SECONDS_MAX, "a number of seconds",
         &command->has_duration},
        {"--spread", &demand->spread_s, NULL, 0, FLEET_SECONDS_MAX, "a number of seconds", &command->has_spread},
        {"--skew", &command->skew, NULL, 0, 10, "an exponent from 0 to 10", NULL},
        {"--speeds", &demand->speeds, NULL, 0, 0.9, "a part from 0 to 0.9", NULL},
        {"--failures", &demand->failures, NULL, 0, 3600, "a number of failures an hour, up to 3600", NULL},
        {"--repair", &demand->repair_s, NULL, 0, FLEET_SECONDS_MAX, "a number of seconds", NULL},
        {"--overcommit", &command->overcommit, NULL, 1, 100, "a factor from 1 to 100", NULL},
        {"--wait", &command->wait_s, NULL, 0, FLEET_SECONDS_MAX, "a number of seconds", NULL},
        {"--quantile", &command->quantile, NULL, 0, 1, "a part from 0 to 1", NULL},
        {"--lost", &command->lost, NULL, 0, 1, "a part from 0 to 1", NULL},
        {"--lag", &lag_us, NULL, 0, FLEET_LAG_US_MAX, "a number of microseconds", NULL},
    };
    const char *value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const fleet_number *number = &numbers[i];
        if (!tool_option_value(options, argument, number->name, &value)) continue;
        const bool is_good = number->whole ? fleet_read_whole(value, number->least, number->most, number->whole)
                                           : fleet_parse_real(value, number->least, number->most, number->real);
        if (number->is_set) *number->is_set = true;
        if (lag_us >= 0) command->kind.lag_ns = (uint64_t)(1000 * lag_us);
        *code = is_good ? TOOL_DONE : tool_misuse("fleet", "%s needs %s", number->name, number->what);
        return true;
    }
    return false;
}

/* Reads one of two words. */
static bool fleet_read_choice(const char *value, const char *no, const char *yes, bool *out)
{
    if (!value || (strcmp(value, no) != 0 && strcmp(value, yes) != 0)) return false;
    *out = !strcmp(value, yes);
    return true;
}

static int fleet_read_argument(fleet_command *command, tool_options *options, const char *argument)
{
    const char *value;
    bool is_yes;
    int code = TOOL_DONE;
    if (!strcmp(argument, "--json")) {
        command->is_json = true;
    } else if (!strcmp(argument, "--check")) {
        command->is_checked = true;
    } else if (!strcmp(argument, "--find")) {
        command->is_found = true;
    } else if (tool_option_value(options, argument, "--device", &command->kind.device)) {
        if (!command->kind.device) return tool_misuse("fleet", "--device needs a device's name");
    } else if (tool_option_value(options, argument, "--program", &value)) {
        if (!value) return tool_misuse("fleet", "--program needs a trace");
        if (!fleet_mix_add(&command->mix, value)) return tool_misuse("fleet", "--program: %s", command->mix.error);
    } else if (tool_option_value(options, argument, "--limit", &value)) {
        if (!fleet_parse_bytes(value, &command->limit_bytes))
            return tool_misuse("fleet", "--limit needs a number of bytes");
    } else if (tool_option_value(options, argument, "--fit", &value)) {
        if (!fleet_read_choice(value, "alone", "least", &is_yes))
            return tool_misuse("fleet", "--fit is alone or least");
        command->fit = is_yes ? FLEET_FIT_LEAST : FLEET_FIT_ALONE;
    } else if (tool_option_value(options, argument, "--sharing", &value)) {
        if (!fleet_read_choice(value, "off", "on", &command->demand.is_shared))
            return tool_misuse("fleet", "--sharing is on or off");
    } else if (fleet_read_number(command, options, argument, &code)) {
        return code;
    } else if (*argument == '-' && argument[1]) {
        return tool_misuse("fleet", "\"%s\" is not understood", argument);
    } else if (!fleet_mix_load(&command->mix, argument)) {
        return tool_fail("%s", command->mix.error);
    }
    return code;
}

/* Checks options against each other. */
static int fleet_check_options(fleet_command *command)
{
    const fleet_demand *demand = &command->demand;
    const bool is_random = demand->rate > 0;
    if (!command->mix.count) return tool_misuse("fleet", "a mix or a --program is needed");
    if (!command->devices && !command->is_found)
        return tool_misuse("fleet", "--devices says how many there are, or --find looks for the smallest number");
    if (is_random && (command->has_requests || command->has_spread))
        return tool_misuse("fleet", "--requests and --spread are for fleets without --arrivals");
    if (!is_random && (command->has_duration || demand->shape > 0))
        return tool_misuse("fleet", "--duration and --heavy need --arrivals");
    if (!is_random && command->is_found && !command->has_requests)
        return tool_misuse("fleet", "--find needs --arrivals or --requests");
    if (command->overcommit > 1 && !demand->is_shared && !command->is_found)
        return tool_misuse("fleet", "--overcommit needs --sharing on");
    return TOOL_DONE;
}

static int fleet_read(fleet_command *command, int count, char **arguments)
{
    tool_options options = {"fleet", count, arguments, 0};
    const char *argument;
    cpu_set_t processors;
    while ((argument = tool_next(&options))) {
        const int code = fleet_read_argument(command, &options, argument);
        if (code != TOOL_DONE) return code;
    }
    if (!command->workers) {
        const bool is_known = sched_getaffinity(0, sizeof processors, &processors) == 0;
        command->workers = is_known ? (uint64_t)CPU_COUNT(&processors) : 1;
        if (command->workers > FLEET_WORKERS_MAX) command->workers = FLEET_WORKERS_MAX;
    }
    return fleet_check_options(command);
}

/* --- running --- */

/* Simulates a fleet of `devices`. */
static int fleet_simulate(const fleet_command *command, const fleet_question *question, const fleet_demand *demand,
                          size_t devices, fleet_result *out)
{
    fleet_plan plan;
    int code = TOOL_DONE;
    const fleet_planned planned = fleet_plan_make(&plan, demand, devices);
    const bool is_limited = question->limit_bytes < question->kind->total_bytes;
    const fleet_work work = {.kind = question->kind,
                             .programs = question->programs->list,
                             .plan = &plan,
                             .limit_bytes = is_limited ? question->limit_bytes : 0,
                             .is_shared = demand->is_shared,
                             .is_checked = question->is_checked};
    out->is_shared = demand->is_shared;
    out->budget_bytes = demand->budget_bytes;
    if (planned == FLEET_TOO_MANY) {
        code = tool_fail("more than %d requests would arrive", FLEET_REQUESTS_MAX);
    } else if (planned != FLEET_PLANNED) {
        code = tool_fail("there is no memory for the plan of %zu devices", devices);
    } else {
        const loch_status status = fleet_run(&work, command->workers, &out->total);
        if (status != LOCH_OK)
            code = tool_fail_status(status);
        else if (!fleet_result_fill(out, question, &plan))
            code = tool_fail("there is no memory for the figures");
    }
    fleet_plan_free(&plan);
    return code;
}

/* Looks for the number of devices, and simulates that fleet. */
static int fleet_search_once(const fleet_command *command, const fleet_question *question, const fleet_demand *demand,
                             fleet_result *out)
{
    const fleet_goal goal = {command->quantile, command->lost, (uint64_t)(command->wait_s * FLEET_NS)};
    const size_t most = command->devices ? command->devices : FLEET_DEVICES_MAX;
    size_t devices = 0;
    switch (fleet_find(demand, &goal, most, &devices)) {
    case FLEET_FOUND: return fleet_simulate(command, question, demand, devices, out);
    case FLEET_FOUND_NONE:
        return tool_fail("no fleet of up to %zu devices meets the goal%s", most,
                         demand->is_shared ? "" : " without sharing");
    case FLEET_FOUND_TOO_MANY: return tool_fail("more than %d requests would arrive", FLEET_REQUESTS_MAX);
    default: return tool_fail("there is no memory for the plan");
    }
}

/* Makes it less likely that memory is refused: halves the overcommit, then raises the limits that the mix does not set.
 * Returns false if nothing is left to change. */
static bool fleet_relax(fleet_command *command, const fleet_question *question, fleet_demand *demand)
{
    bool has_changed = false;
    if (command->overcommit > 1) {
        const double over = (command->overcommit - 1) / 2;
        command->overcommit = over > FLEET_OVER_MIN ? 1 + over : 1;
        demand->budget_bytes = (uint64_t)((double)question->limit_bytes * command->overcommit);
        return true;
    }
    for (size_t i = 0; i < command->programs.count; i++) {
        fleet_program *program = &command->programs.list[i];
        const uint64_t unit = command->kind.granule_bytes;
        const uint64_t more = (program->limit_bytes / FLEET_RAISE_PART / unit + 1) * unit;
        if (program->entry->limit_bytes || program->limit_bytes + more > question->limit_bytes) continue;
        program->limit_bytes = command->needs[i].bytes = program->limit_bytes + more;
        has_changed = true;
    }
    return has_changed;
}

/* Looks for the number of devices, and for limits with which memory is not refused too often. */
static int fleet_search(fleet_command *command, const fleet_question *question, fleet_demand *demand, fleet_result *out)
{
    for (int changes = 0;; changes++) {
        const int code = fleet_search_once(command, question, demand, out);
        if (code != TOOL_DONE || !demand->is_shared || fleet_result_lost(out) <= command->lost) return code;
        if (changes == FLEET_CHANGES_MAX || !fleet_relax(command, question, demand)) return code;
        fleet_total_free(&out->total);
    }
}

/* Says what was not as it should be, after the report. */
static int fleet_judge(const fleet_question *question, const fleet_result *results, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const fleet_outcome *sum = &results[i].total.sum;
        if (sum->differing)
            return tool_fail("runs that differ from loch replay: %" PRIu64 ", the first one: %s", sum->differing,
                             sum->sentence);
        if (question->is_found && fleet_result_lost(&results[i]) > question->lost)
            return tool_fail("the goal is missed: requests without memory: %" PRIu64 ", the first one: %s", sum->killed,
                             sum->sentence);
    }
    return TOOL_DONE;
}

static int fleet_answer(fleet_command *command, const fleet_question *question)
{
    fleet_demand demand = *question->demand;
    fleet_result results[2] = {{.is_shared = false}, {.is_shared = false}};
    size_t count = 0;
    int code = TOOL_DONE;
    const uint64_t shared_bytes = (uint64_t)((double)question->limit_bytes * command->overcommit);
    for (int pass = 0; pass < (command->is_found ? 2 : 1) && code == TOOL_DONE; pass++) {
        if (command->is_found) demand.is_shared = pass;
        demand.budget_bytes = demand.is_shared ? shared_bytes : question->limit_bytes;
        code = command->is_found ? fleet_search(command, question, &demand, &results[count])
                                 : fleet_simulate(command, question, &demand, command->devices, &results[count]);
        count++;
    }
    if (code == TOOL_DONE) {
        if (command->is_json)
            fleet_report_json(question, results, count);
        else
            fleet_report_text(question, results, count);
        code = fleet_judge(question, results, count);
    }
    for (size_t i = 0; i < count; i++)
        fleet_total_free(&results[i].total);
    return code;
}

/* --- the command --- */

/* Sets what the plan knows of each program. Fails if a program can never run. */
static int fleet_make_needs(fleet_command *command, uint64_t limit_bytes)
{
    for (size_t i = 0; i < command->programs.count; i++) {
        const fleet_program *program = &command->programs.list[i];
        const uint64_t alone = program->alone.peak_reserved;
        const uint64_t most = program->limit_bytes > alone ? program->limit_bytes : alone;
        if (most > limit_bytes)
            return tool_fail("%s needs %s, and a device has %s for its programs", program->entry->name,
                             LOCHI_SIZE_ROUND(most, 2), LOCHI_SIZE_ROUND(limit_bytes, 2));
        command->needs[i] = (fleet_need){.weight = program->entry->weight / pow((double)(i + 1), command->skew),
                                         .duration_ns = program->duration_ns,
                                         .bytes = program->limit_bytes,
                                         .compute = program->entry->compute};
    }
    command->demand.needs = command->needs;
    command->demand.needs_count = command->programs.count;
    if (!command->demand.requests) command->demand.requests = command->devices;
    return TOOL_DONE;
}

static int fleet_run_command(fleet_command *command)
{
    const loch_status status = fleet_kind_read(&command->kind);
    if (status != LOCH_OK) return tool_fail_status(status);
    const bool is_limited = command->limit_bytes && command->limit_bytes < command->kind.total_bytes;
    const uint64_t limit_bytes = is_limited ? command->limit_bytes : command->kind.total_bytes;
    int code = fleet_programs_load(&command->programs, &command->mix);
    if (code == TOOL_DONE)
        code = fleet_programs_measure(&command->programs, &command->kind, command->fit, command->workers);
    if (code == TOOL_DONE) code = fleet_make_needs(command, limit_bytes);
    if (code != TOOL_DONE) return code;
    const fleet_question question = {.kind = &command->kind,
                                     .programs = &command->programs,
                                     .demand = &command->demand,
                                     .limit_bytes = limit_bytes,
                                     .is_checked = command->is_checked,
                                     .is_found = command->is_found,
                                     .quantile = command->quantile,
                                     .wait_s = command->wait_s,
                                     .lost = command->lost};
    return fleet_answer(command, &question);
}

static int fleet_command_run(int count, char **arguments)
{
    fleet_command command = {.kind = {.device = "sim:141GiB", .lag_ns = 2000000},
                             .demand = {.seed = 1, .duration_s = 60, .repair_s = 60},
                             .overcommit = 1,
                             .wait_s = 1,
                             .quantile = 0.99};
    int code = fleet_read(&command, count, arguments);
    if (code == TOOL_DONE) code = fleet_run_command(&command);
    fleet_programs_free(&command.programs);
    fleet_mix_free(&command.mix);
    return code;
}

const tool_command tool_fleet = {
    "fleet",
    "simulates many devices, and says how many a mix of programs needs",
    "Usage: loch fleet [MIX] [--program PROGRAM]... --devices N [OPTION...]\n"
    "       loch fleet [MIX] [--program PROGRAM]... --find --arrivals RATE [OPTION...]\n\n"
    "Simulates devices that run a mix of programs, each device with real pools on a simulated GPU.\n"
    "MIX is a text file with one program a line: TRACE [weight=N] [limit=BYTES] [compute=PERCENT%] [name=NAME].\n"
    "Memory is exact. Time is a model of what was measured on one GPU.\n\n"
    "  --program PROGRAM  a program of the mix: TRACE, or TRACE:3 for one with weight 3\n"
    "  --devices N        number of devices; with --find, the most\n"
    "  --find             finds the smallest number of devices that meets the goal, with and without sharing\n"
    "  --wait S           goal: so many seconds are the longest wait (default 1) ...\n"
    "  --quantile Q       ... of this part of the requests (default 0.99)\n"
    "  --lost PART        goal: at most this part of the requests is lost (default 0)\n"
    "  --sharing WHICH    on: programs share devices, within their limits; off (default): one program a device\n"
    "  --fit WHICH        limit of a program: alone (default), what it holds alone; least, with which it still runs\n"
    "  --overcommit F     limits on a shared device add up to F times its memory (default 1)\n"
    "  --device DEVICE    simulated device (default sim:141GiB)\n"
    "  --limit BYTES      memory of a device that programs may hold (default: all)\n"
    "  --arrivals RATE    requests that arrive in a second, at random; without it all are there at the start\n"
    "  --heavy SHAPE      gaps between arrivals with a heavy tail: 1.5 is rough, 3 is milder\n"
    "  --duration S       requests arrive for so long (default 60)\n"
    "  --requests N       without --arrivals: number of requests (default: one a device)\n"
    "  --spread S         without --arrivals: requests start at random in this time (default 0)\n"
    "  --skew EXPONENT    the weight of the program in place N is divided by N to this power (default 0)\n"
    "  --speeds PART      devices differ in speed by this part, up and down (default 0)\n"
    "  --failures N       failures of a device in an hour (default 0); its programs start again elsewhere\n"
    "  --repair S         a device that has failed is back after so long (default 60)\n"
    "  --lag US           how long work queued on a stream takes (default 2000)\n"
    "  --seed N           start of the random numbers (default 1); equal seeds give equal results\n"
    "  --processes N      processes that simulate (default: one a processor); the result is the same for any number\n"
    "  --check            compares every run that had a device to itself with loch replay\n"
    "  --json             exact figures as one JSON object\n",
    .run = fleet_command_run,
};
