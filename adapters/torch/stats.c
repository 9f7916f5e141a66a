/* SPDX-License-Identifier: MIT */
/* Writes the statistics of all pools together, as JSON for Python. */
#include "loch_torch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define CALLS_MAX 96
#define JSON_MAX 8192

/* The sums. The peak of a sum is the sum of the peaks, as in loch_stats. */
typedef struct torch_sum {
    int devices;
    loch_stats stats;
    loch_pool_info info;
    loch_call_count calls[CALLS_MAX];
    size_t calls_count;
} torch_sum;

static void torch_add_info(torch_sum *sum, loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    if (loch_pool_get_info(pool, &info) != LOCH_OK) return;
    sum->info.handles_created += info.handles_created;
    sum->info.handles_moved += info.handles_moved;
    sum->info.handles_released += info.handles_released;
    sum->info.events_recorded += info.events_recorded;
    sum->info.waits_on_device += info.waits_on_device;
    sum->info.waits_on_host += info.waits_on_host;
}

typedef struct torch_calls {
    torch_sum *sum;
    size_t next; /* all devices list their calls in the same order, so indices match */
} torch_calls;

static loch_status torch_add_call(const loch_call_count *count, void *user)
{
    torch_calls *calls = user;
    if (calls->next == CALLS_MAX) return LOCH_OK;
    calls->sum->calls[calls->next].name = count->name;
    calls->sum->calls[calls->next++].count += count->count;
    if (calls->next > calls->sum->calls_count) calls->sum->calls_count = calls->next;
    return LOCH_OK;
}

static void torch_add(torch_sum *sum, loch_allocator *pool)
{
    loch_stats stats = {.size = sizeof stats};
    sum->devices++;
    if (loch_allocator_get_stats(pool, &stats) == LOCH_OK) loch_stats_add(&sum->stats, &stats);
    torch_add_info(sum, pool);
    torch_calls calls = {sum, 0};
    (void)!loch_device_walk_calls(loch_allocator_get_device(pool), torch_add_call, &calls);
}

typedef struct torch_text {
    char text[JSON_MAX];
    size_t length;
} torch_text;

LOCH_PRINTF(2, 3) static void torch_write(torch_text *json, const char *format, ...)
{
    va_list arguments;
    const size_t room = sizeof json->text - json->length;
    va_start(arguments, format);
    const int length = vsnprintf(json->text + json->length, room, format, arguments);
    va_end(arguments);
    if (length > 0) json->length += (size_t)length < room ? (size_t)length : room - 1;
}

static void torch_write_figures(torch_text *json, const torch_sum *sum)
{
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"requested", sum->stats.requested_bytes},
        {"peak_requested", sum->stats.peak_requested_bytes},
        {"allocated", sum->stats.allocated_bytes},
        {"peak_allocated", sum->stats.peak_allocated_bytes},
        {"reserved", sum->stats.reserved_bytes},
        {"peak_reserved", sum->stats.peak_reserved_bytes},
        {"blocks", sum->stats.blocks},
        {"allocs", sum->stats.allocs},
        {"frees", sum->stats.frees},
        {"failures", sum->stats.failures},
        {"handles_created", sum->info.handles_created},
        {"handles_moved", sum->info.handles_moved},
        {"handles_released", sum->info.handles_released},
        {"events_recorded", sum->info.events_recorded},
        {"waits_on_device", sum->info.waits_on_device},
        {"waits_on_host", sum->info.waits_on_host},
    };
    torch_write(json, "{\"devices\": %d", sum->devices);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        torch_write(json, ", \"%s\": %" PRIu64, figures[i].name, figures[i].value);
}

static void torch_write_calls(torch_text *json, const torch_sum *sum)
{
    uint64_t all = 0;
    for (size_t i = 0; i < sum->calls_count; i++)
        all += sum->calls[i].count;
    torch_write(json, ", \"driver_calls\": %" PRIu64 ", \"driver_calls_by_name\": {", all);
    const char *comma = "";
    for (size_t i = 0; i < sum->calls_count; i++) {
        if (!sum->calls[i].count) continue;
        torch_write(json, "%s\"%s\": %" PRIu64, comma, sum->calls[i].name, sum->calls[i].count);
        comma = ", ";
    }
    torch_write(json, "}}");
}

const char *loch_torch_stats_json(void)
{
    static _Thread_local torch_text json;
    torch_sum sum = {.stats.size = sizeof sum.stats};
    for (int i = 0; i < LOCHI_TORCH_DEVICES; i++) {
        const lochi_torch_device *device = lochi_torch_get(i);
        if (device) torch_add(&sum, device->pool);
    }
    json.length = 0;
    torch_write_figures(&json, &sum);
    torch_write_calls(&json, &sum);
    return json.text;
}

void loch_torch_reset_peaks(void)
{
    for (int i = 0; i < LOCHI_TORCH_DEVICES; i++) {
        const lochi_torch_device *device = lochi_torch_get(i);
        if (device && loch_allocator_reset_stats(device->pool) != LOCH_OK)
            fprintf(stderr, "Loch could not reset its figures: %s\n", loch_error_get()->sentence);
    }
}
