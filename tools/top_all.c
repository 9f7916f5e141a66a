/* SPDX-License-Identifier: MIT */
#include "top_all.h"
#include "json.h"
#include "tool.h"
#include "top_source.h"
#include <loch/budget.h>
#include <stdlib.h>
#include <string.h>

#define ALL_PROCESSES 256

/* Where the figures go: JSON, or text for people. */
typedef struct all_output {
    FILE *file;
    json_writer *json; /* NULL for text */
    size_t budgets, failed;
} all_output;

/* --- members --- */

static loch_status all_member_json(const loch_budget_member_info *info, json_writer *json)
{
    json_open_object(json, NULL);
    json_signed(json, "pid", info->pid);
    json_text(json, "program", info->program);
    json_text(json, "name", info->name);
    json_text(json, "device", info->device);
    json_number(json, "minimum_bytes", info->minimum_bytes);
    json_number(json, "limit_bytes", info->limit_bytes);
    json_number(json, "share_bytes", info->share_bytes);
    json_number(json, "weight", info->weight);
    json_number(json, "granted_bytes", info->granted_bytes);
    json_number(json, "held_bytes", info->held_bytes);
    json_number(json, "used_bytes", info->used_bytes);
    json_number(json, "borrowed_bytes", info->borrowed_bytes);
    json_number(json, "wanted_bytes", info->wanted_bytes);
    json_number(json, "asked_bytes", info->asked_bytes);
    json_close_object(json);
    return LOCH_OK;
}

/* What presses on a member, or what it presses for. */
static const char *all_pressure(const loch_budget_member_info *info, char text[64])
{
    if (info->wanted_bytes > info->granted_bytes)
        snprintf(text, 64, "needs %s", LOCHI_SIZE_ROUND(info->wanted_bytes - info->granted_bytes, 2));
    else if (info->asked_bytes)
        snprintf(text, 64, "asked for %s", LOCHI_SIZE_ROUND(info->asked_bytes, 2));
    else
        snprintf(text, 64, "-");
    return text;
}

static loch_status all_member(const loch_budget_member_info *info, void *user)
{
    const all_output *out = user;
    char name[TOOL_NAME_BYTES], program[TOOL_NAME_BYTES], pressure[64];
    if (out->json) return all_member_json(info, out->json);
    fprintf(out->file, "%9lld  %-15s  %-16s %11s %11s %11s %11s %11s  %s\n", (long long)info->pid,
            tool_format_name(info->program, program), tool_format_name(info->name, name),
            LOCHI_SIZE_ROUND(info->minimum_bytes, 2), LOCHI_SIZE_ROUND(info->limit_bytes, 2),
            LOCHI_SIZE_ROUND(info->held_bytes, 2), LOCHI_SIZE_ROUND(info->granted_bytes, 2),
            LOCHI_SIZE_ROUND(info->borrowed_bytes, 2), all_pressure(info, pressure));
    return LOCH_OK;
}

/* --- budgets --- */

static void all_head(const all_output *out, const loch_budget_info *info, const char *path)
{
    char name[TOOL_NAME_BYTES], shown[TOOL_NAME_BYTES];
    if (out->json) {
        json_text(out->json, "name", info->name);
        json_number(out->json, "total_bytes", info->total_bytes);
        json_number(out->json, "granted_bytes", info->granted_bytes);
        json_number(out->json, "held_bytes", info->held_bytes);
        json_number(out->json, "promised_bytes", info->promised_bytes);
        json_number(out->json, "free_bytes", info->free_bytes);
        json_number(out->json, "processes", info->processes);
        json_number(out->json, "waiting", info->waiting);
        return;
    }
    fprintf(out->file, "%sbudget %s  %s\n", out->budgets ? "\n" : "", tool_format_name(info->name, name),
            tool_format_name(path, shown));
    fprintf(out->file, "total %s, granted %s, held %s, promised %s, free %s; %zu %s in %zu %s, %zu waiting\n",
            LOCHI_SIZE_ROUND(info->total_bytes, 2), LOCHI_SIZE_ROUND(info->granted_bytes, 2),
            LOCHI_SIZE_ROUND(info->held_bytes, 2), LOCHI_SIZE_ROUND(info->promised_bytes, 2),
            LOCHI_SIZE_ROUND(info->free_bytes, 2), info->members, info->members == 1 ? "member" : "members",
            info->processes, info->processes == 1 ? "process" : "processes", info->waiting);
    if (info->members)
        fprintf(out->file, "%9s  %-15s  %-16s %11s %11s %11s %11s %11s  %s\n", "PID", "PROGRAM", "NAME", "MINIMUM",
                "LIMIT", "HELD", "GRANTED", "BORROWED", "PRESSURE");
}

static loch_status all_budget(const char *path, void *user)
{
    all_output *out = user;
    const loch_budget_options look = {.size = sizeof look, .access = LOCH_BUDGET_LOOK};
    loch_budget_info info = {.size = sizeof info};
    loch_budget *budget;
    loch_status status = loch_budget_open(path, &look, &budget);
    if (status == LOCH_OK) status = loch_budget_get_info(budget, &info);
    if (out->json) json_open_object(out->json, NULL);
    if (out->json) json_text(out->json, "path", status == LOCH_OK ? loch_budget_get_path(budget) : path);
    if (status == LOCH_OK) {
        all_head(out, &info, loch_budget_get_path(budget));
        if (out->json) json_open_array(out->json, "members");
        status = loch_budget_walk_members(budget, all_member, out);
        if (out->json) json_close_array(out->json);
    }
    if (status != LOCH_OK) {
        out->failed++;
        if (out->json)
            json_text(out->json, "error", loch_error_get()->sentence);
        else
            fprintf(out->file, "%s%s\n", out->budgets ? "\n" : "", loch_error_get()->sentence);
    }
    if (out->json) json_close_object(out->json);
    out->budgets++;
    loch_budget_close(budget);
    return LOCH_OK;
}

/* --- processes --- */

static void all_process(const all_output *out, const top_figures *figures, pid_t pid, bool is_first)
{
    uint64_t used = 0, reserved = 0;
    char program[TOOL_NAME_BYTES];
    const char *last = strrchr(figures->program, '/');
    for (size_t i = 0; i < figures->allocators_count; i++) {
        const top_allocator *one = &figures->allocators[i];
        if (one->is_wrapper || one->is_range) continue;
        used += one->requested;
        reserved += one->reserved;
    }
    if (out->json) {
        json_open_object(out->json, NULL);
        json_signed(out->json, "pid", pid);
        json_text(out->json, "program", figures->program);
        json_number(out->json, "used_bytes", used);
        json_number(out->json, "reserved_bytes", reserved);
        json_number(out->json, "allocators", figures->allocators_count);
        json_close_object(out->json);
        return;
    }
    if (is_first)
        fprintf(out->file, "%sprocesses with LOCH_TOP=on\n%9s  %-32s %11s %11s %11s\n", out->budgets ? "\n" : "", "PID",
                "PROGRAM", "USED", "RESERVED", "ALLOCATORS");
    fprintf(out->file, "%9ld  %-32s %11s %11s %11zu\n", (long)pid,
            tool_format_name(last ? last + 1 : figures->program, program), LOCHI_SIZE_ROUND(used, 2),
            LOCHI_SIZE_ROUND(reserved, 2), figures->allocators_count);
}

/* Returns the number of processes that answered. */
static size_t all_processes(const all_output *out)
{
    pid_t found[ALL_PROCESSES];
    size_t answered = 0;
    const size_t count = top_list(found, ALL_PROCESSES);
    for (size_t i = 0; i < count; i++) {
        top_figures figures;
        bool is_gone;
        if (!top_ask(found[i], &figures, &is_gone)) all_process(out, &figures, found[i], answered++ == 0);
        top_figures_free(&figures);
    }
    return answered;
}

int top_all_print(FILE *file, const char *budget, bool is_json)
{
    json_writer json = {.file = file};
    all_output out = {.file = file, .json = is_json ? &json : NULL};
    size_t processes = 0;
    if (is_json) {
        json_open_object(&json, NULL);
        json_open_array(&json, "budgets");
    }
    const loch_status status = budget ? all_budget(budget, &out) : loch_budget_walk(all_budget, &out);
    if (is_json) json_close_array(&json);
    if (!budget) {
        if (is_json) json_open_array(&json, "processes");
        processes = all_processes(&out);
        if (is_json) json_close_array(&json);
    }
    if (is_json) json_close_object(&json);
    if (status != LOCH_OK) return tool_fail_status(status);
    if (!is_json && !out.budgets && !processes)
        fputs("no process of this user has a budget open or was started with LOCH_TOP=on\n", file);
    return out.failed ? TOOL_FAILED : TOOL_DONE;
}
