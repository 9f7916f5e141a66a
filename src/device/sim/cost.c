/* SPDX-License-Identifier: MIT */
/* Modelled costs of driver calls: for each call a curve over the number of bytes. The curve is linear between its
 * points, constant before the first point, and continues after the last point with its last slope. The built-in curves
 * are those of an H200; a file replaces the curves that it names.
 *
 *     # comment
 *     raw_alloc 2MiB:38600 32MiB:39000 512MiB:65000
 *     event_query 140
 */
#include "device/sim/cost.h"
#include "kit/cancel.h"
#include "base/heap.h"
#include "kit/parse.h"
#include "device/sim/fail.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COST_LINE_BYTES 1024
#define MIB ((size_t)1 << 20)

/* clang-format off */
/* Nanoseconds on an H200, driver 580, CUDA 13. A call with one point has the same cost for every size. */
static const lochi_sim_costs cost_h200 = {.curves = {
    [LOCH_CALL_memory_info]     = {1, {{0, 4900}}},
    [LOCH_CALL_raw_alloc]       = {3, {{2 * MIB, 38600}, {32 * MIB, 39000}, {512 * MIB, 65000}}},
    [LOCH_CALL_raw_free]        = {3, {{2 * MIB, 29700}, {32 * MIB, 41000}, {512 * MIB, 176000}}},
    [LOCH_CALL_pinned_alloc]    = {3, {{2 * MIB, 499000}, {20 * MIB, 6640000}, {64 * MIB, 20500000}}},
    [LOCH_CALL_pinned_free]     = {3, {{2 * MIB, 210000}, {20 * MIB, 1880000}, {64 * MIB, 5840000}}},
    [LOCH_CALL_managed_alloc]   = {3, {{2 * MIB, 15900}, {20 * MIB, 36500}, {64 * MIB, 40000}}},
    [LOCH_CALL_managed_free]    = {3, {{2 * MIB, 12000}, {20 * MIB, 20400}, {64 * MIB, 23900}}},
    [LOCH_CALL_host_register]   = {3, {{2 * MIB, 134000}, {20 * MIB, 810000}, {64 * MIB, 2170000}}},
    [LOCH_CALL_host_unregister] = {3, {{2 * MIB, 71000}, {20 * MIB, 382000}, {64 * MIB, 1130000}}},
    [LOCH_CALL_ordered_alloc]   = {1, {{0, 300}}},
    [LOCH_CALL_ordered_free]    = {1, {{0, 285}}},
    [LOCH_CALL_reserve]         = {3, {{20 * MIB, 580}, {64 * MIB, 2100}, {512 * MIB, 2320}}},
    [LOCH_CALL_unreserve]       = {3, {{20 * MIB, 570}, {64 * MIB, 1940}, {512 * MIB, 2330}}},
    [LOCH_CALL_handle_create]   = {3, {{2 * MIB, 7800}, {20 * MIB, 7400}, {512 * MIB, 11700}}},
    [LOCH_CALL_handle_release]  = {3, {{2 * MIB, 8700}, {20 * MIB, 13400}, {512 * MIB, 148000}}},
    [LOCH_CALL_handle_export]   = {1, {{0, 10000}}},
    [LOCH_CALL_handle_import]   = {1, {{0, 10000}}},
    [LOCH_CALL_map]             = {3, {{2 * MIB, 1600}, {20 * MIB, 450}, {512 * MIB, 520}}},
    [LOCH_CALL_access]          = {3, {{2 * MIB, 24400}, {20 * MIB, 20900}, {512 * MIB, 41800}}},
    [LOCH_CALL_unmap]           = {3, {{2 * MIB, 14200}, {20 * MIB, 13800}, {512 * MIB, 20000}}},
    [LOCH_CALL_copy]            = {1, {{0, 3600}}},
    [LOCH_CALL_fill]            = {1, {{0, 1140}}},
    [LOCH_CALL_stream_create]   = {1, {{0, 1860}}},
    [LOCH_CALL_stream_destroy]  = {1, {{0, 1550}}},
    [LOCH_CALL_stream_query]    = {1, {{0, 410}}},
    [LOCH_CALL_stream_sync]     = {1, {{0, 500}}},
    [LOCH_CALL_stream_wait]     = {1, {{0, 340}}},
    [LOCH_CALL_stream_call]     = {1, {{0, 3000}}},
    [LOCH_CALL_stream_capture]  = {1, {{0, 160}}},
    [LOCH_CALL_event_create]    = {1, {{0, 300}}},
    [LOCH_CALL_event_destroy]   = {1, {{0, 280}}},
    [LOCH_CALL_event_record]    = {1, {{0, 1300}}},
    [LOCH_CALL_event_query]     = {1, {{0, 140}}},
    [LOCH_CALL_event_sync]      = {1, {{0, 1500}}},
    [LOCH_CALL_event_elapsed]   = {1, {{0, 260}}},
    [LOCH_CALL_peer_enable]     = {1, {{0, 100000}}},
    [LOCH_CALL_device_sync]     = {1, {{0, 720}}},
    [LOCH_CALL_address_query]   = {1, {{0, 380}}},
    [LOCH_CALL_copy_pitched]    = {1, {{0, 3600}}},
    [LOCH_CALL_protect]         = {1, {{0, 1000}}},
    [LOCH_CALL_copy_strided]    = {1, {{0, 2500}}},
    [LOCH_CALL_fill_strided]    = {1, {{0, 2500}}},
    [LOCH_CALL_discard]         = {1, {{0, 1000}}},
}};
/* clang-format on */

void lochi_sim_costs_default(lochi_sim_costs *costs)
{
    *costs = cost_h200;
}

uint64_t lochi_sim_cost(const lochi_sim_costs *costs, loch_driver_call call, size_t bytes)
{
    const lochi_sim_curve *curve = &costs->curves[call];
    if (!curve->count) return 0;
    const lochi_sim_point *points = curve->points;
    if (curve->count == 1 || bytes <= points[0].bytes) return points[0].ns;
    size_t at = 1;
    while (at + 1 < curve->count && bytes > points[at].bytes)
        at++;
    const lochi_sim_point *low = &points[at - 1], *high = &points[at];
    const double slope = ((double)high->ns - (double)low->ns) / (double)(high->bytes - low->bytes);
    const double ns = (double)low->ns + slope * (double)(bytes - low->bytes);
    if (ns <= 0) return 0;
    return ns < (double)UINT64_MAX ? (uint64_t)(ns + 0.5) : UINT64_MAX;
}

/* --- reading a file --- */

static int cost_find_call(const char *name)
{
    for (int i = 0; i < LOCH_CALL_COUNT; i++)
        if (!strcmp(loch_driver_call_name((loch_driver_call)i), name)) return i;
    return -1;
}

/* Parses a point: "2MiB:38600", or "140" for a curve of one point. */
static bool cost_read_point(char *word, lochi_sim_point *out)
{
    char *colon = strchr(word, ':');
    *out = (lochi_sim_point){.bytes = 0};
    if (!colon) return lochi_parse_number(word, &out->ns);
    *colon = '\0';
    return lochi_parse_bytes(word, &out->bytes) && lochi_parse_number(colon + 1, &out->ns);
}

static loch_status cost_read_line(lochi_sim_costs *costs, char *line, const char *path, unsigned number)
{
    static const char *const blank = " \t\r\n";
    char *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    const char *name = strtok_r(line, blank, &rest);
    if (!name) return LOCH_OK;
    const int call = cost_find_call(name);
    if (call < 0) return SIM_FAIL(INVALID, "%s, line %u: there is no driver call \"%.40s\"", path, number, name);
    lochi_sim_curve curve = {.count = 0};
    bool has_plain = false;
    for (char *word; (word = strtok_r(NULL, blank, &rest));) {
        if (curve.count == LOCHI_SIM_POINTS_MAX)
            return SIM_FAIL(INVALID, "%s, line %u: more than %d points", path, number, LOCHI_SIM_POINTS_MAX);
        lochi_sim_point *point = &curve.points[curve.count];
        has_plain = has_plain || !strchr(word, ':');
        if (!cost_read_point(word, point))
            return SIM_FAIL(INVALID, "%s, line %u: \"%.40s\" is neither BYTES:NANOSECONDS nor NANOSECONDS", path,
                            number, word);
        if (curve.count && !has_plain && point->bytes <= point[-1].bytes)
            return SIM_FAIL(INVALID, "%s, line %u: sizes must rise", path, number);
        curve.count++;
    }
    if (!curve.count) return SIM_FAIL(INVALID, "%s, line %u: no cost after \"%s\"", path, number, name);
    if (has_plain && curve.count > 1)
        return SIM_FAIL(INVALID, "%s, line %u: a cost without a size must be the only one", path, number);
    costs->curves[call] = curve;
    return LOCH_OK;
}

static loch_status cost_read_lines(lochi_sim_costs *costs, FILE *file, const char *path)
{
    char line[COST_LINE_BYTES];
    for (unsigned number = 1; fgets(line, sizeof line, file); number++) {
        if (!strchr(line, '\n') && !feof(file))
            return SIM_FAIL(INVALID, "%s, line %u: longer than %d characters", path, number, COST_LINE_BYTES - 2);
        LOCH_TRY_RETURN(cost_read_line(costs, line, path, number));
    }
    if (ferror(file)) return SIM_FAIL_CODE(IO, errno, "%s: %s", path, strerror(errno));
    return LOCH_OK;
}

loch_status lochi_sim_costs_read(lochi_sim_costs *costs, const char *path)
{
    LOCHI_NOT_CANCELLED;
    FILE *file = fopen(path, "re");
    if (!file)
        return loch_error_set(errno == ENOENT ? LOCH_E_NOT_FOUND : LOCH_E_IO, "sim", errno,
                              "the table of costs %.150s cannot be opened: %s", path, strerror(errno));
    const loch_status status = cost_read_lines(costs, file, path);
    fclose(file);
    return status;
}
