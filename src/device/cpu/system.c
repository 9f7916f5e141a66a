/* SPDX-License-Identifier: MIT */
/* Properties of the machine as Linux reports them: memory within control-group limits, nodes, processor. Every path
 * begins with `root`, so that tests can describe a machine in a folder. No function fails: a value that cannot be
 * read is unknown. */
#include "device/cpu/system.h"
#include "kit/cancel.h"
#include "kit/parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_PATH_MAX 4096
#define SYSTEM_LINE_MAX 4352
#define SYSTEM_NODES_MAX 65536 /* far above the limit of Linux */

static FILE *system_open(const char *root, const char *path)
{
    char full[SYSTEM_PATH_MAX];
    const int length = snprintf(full, sizeof full, "%s%s", root, path);
    return length > 0 && (size_t)length < sizeof full ? fopen(full, "re") : NULL;
}

/* Reads the number at the start of a file. Returns false for "max" and for a file that cannot be read. */
static bool system_read_number(const char *root, const char *path, uint64_t *out)
{
    LOCHI_NOT_CANCELLED;
    FILE *file = system_open(root, path);
    if (!file) return false;
    char line[64] = "";
    const bool is_read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return is_read && lochi_parse_number(line, out);
}

/* Reads a number from "Name:   123 kB" or "Node 0 Name:  123 kB" or "name 123" and multiplies it by `unit`. Returns
 * 0 if the field is missing. */
static uint64_t system_read_field(const char *root, const char *path, const char *field, uint64_t unit)
{
    LOCHI_NOT_CANCELLED;
    FILE *file = system_open(root, path);
    if (!file) return 0;
    char line[SYSTEM_LINE_MAX];
    uint64_t value = 0;
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, field);
        if (!at || (at > line && at[-1] != ' ')) continue;
        at += strlen(field);
        if (*at != ' ' && *at != '\t') continue;
        value = strtoull(at, NULL, 10);
        value = value > UINT64_MAX / unit ? 0 : value * unit; /* no machine has that much */
        break;
    }
    fclose(file);
    return value;
}

/* --- control groups --- */

typedef struct system_group {
    const char *controller; /* text between the first two colons of /proc/self/cgroup: "" for version 2 */
    const char *mount, *limit, *usage, *inactive;
} system_group;

static const system_group system_groups[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

/* Finds the path of the process in a hierarchy: "/" if it is not listed. */
static void system_group_path(const char *root, const system_group *group, char *path, size_t bytes)
{
    LOCHI_NOT_CANCELLED;
    snprintf(path, bytes, "/");
    FILE *file = system_open(root, "/proc/self/cgroup");
    if (!file) return;
    char line[SYSTEM_LINE_MAX];
    while (fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where) continue;
        *where++ = '\0';
        where[strcspn(where, "\n")] = '\0';
        if (strcmp(controllers + 1, group->controller) != 0) continue;
        snprintf(path, bytes, "%s", where);
        break;
    }
    fclose(file);
}

/* Lowers total and free memory to the limit of one group. File pages that can be dropped do not count as used. */
static void system_apply_group(const char *root, const system_group *group, const char *path, loch_memory_info *info)
{
    char file[SYSTEM_PATH_MAX];
    uint64_t limit, usage = 0;
    const char *slash = strcmp(path, "/") ? "/" : "";
    snprintf(file, sizeof file, "%s%s%s%s", group->mount, path, slash, group->limit);
    if (!system_read_number(root, file, &limit)) return;
    if (limit < info->total_bytes) info->total_bytes = (size_t)limit;
    if (!info->free_bytes) return; /* nothing left to lower, and the statistics of a group are slow to read */
    snprintf(file, sizeof file, "%s%s%s%s", group->mount, path, slash, group->usage);
    if (!system_read_number(root, file, &usage)) usage = 0;
    snprintf(file, sizeof file, "%s%s%s%s", group->mount, path, slash, "memory.stat");
    const uint64_t inactive = system_read_field(root, file, group->inactive, 1);
    usage = usage > inactive ? usage - inactive : 0;
    const uint64_t left = limit > usage ? limit - usage : 0;
    if (left < info->free_bytes) info->free_bytes = (size_t)left;
}

/* Applies the limits of the process's group and of all groups above it. */
static void system_apply_groups(const char *root, loch_memory_info *info)
{
    char path[SYSTEM_PATH_MAX / 2];
    for (size_t i = 0; i < sizeof system_groups / sizeof *system_groups; i++) {
        system_group_path(root, &system_groups[i], path, sizeof path);
        for (;;) {
            system_apply_group(root, &system_groups[i], path, info);
            char *slash = strrchr(path, '/');
            if (!slash || !slash[1]) break;
            slash[slash == path ? 1 : 0] = '\0';
        }
    }
}

/* Writes the path of the file with the memory of the machine, or of one node. */
static void system_memory_path(int node, char *path, size_t bytes)
{
    if (node >= 0)
        snprintf(path, bytes, "/sys/devices/system/node/node%d/meminfo", node);
    else
        snprintf(path, bytes, "/proc/meminfo");
}

void lochi_cpu_read_memory(const char *root, int node, loch_memory_info *out)
{
    char path[128];
    system_memory_path(node, path, sizeof path);
    out->total_bytes = (size_t)system_read_field(root, path, "MemTotal:", 1024);
    out->free_bytes = (size_t)system_read_field(root, path, node >= 0 ? "MemFree:" : "MemAvailable:", 1024);
    system_apply_groups(root, out);
}

size_t lochi_cpu_read_total(const char *root, int node)
{
    char path[128];
    system_memory_path(node, path, sizeof path);
    loch_memory_info info = {.total_bytes = (size_t)system_read_field(root, path, "MemTotal:", 1024)};
    system_apply_groups(root, &info);
    return info.total_bytes;
}

/* --- nodes, mappings, processor --- */

bool lochi_cpu_has_node(const char *root, int node)
{
    char path[SYSTEM_PATH_MAX];
    const int length = snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d", root, node);
    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

int lochi_cpu_last_node(const char *root)
{
    LOCHI_NOT_CANCELLED;
    FILE *file = system_open(root, "/sys/devices/system/node/online");
    if (!file) return -1;
    char line[256] = "";
    const bool is_read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    if (!is_read) return -1;
    const char *last = line; /* "0-1,3": the last number is the highest */
    for (const char *at = line; *at; at++)
        if (*at == '-' || *at == ',') last = at + 1;
    const long node = *last >= '0' && *last <= '9' ? strtol(last, NULL, 10) : -1;
    return node < SYSTEM_NODES_MAX ? (int)node : -1;
}

size_t lochi_cpu_mapping_limit(const char *root)
{
    uint64_t limit;
    return system_read_number(root, "/proc/sys/vm/max_map_count", &limit) ? (size_t)limit : 0;
}

void lochi_cpu_read_model(const char *root, char *model, size_t bytes)
{
    LOCHI_NOT_CANCELLED;
    snprintf(model, bytes, "CPU");
    FILE *file = system_open(root, "/proc/cpuinfo");
    if (!file) return;
    char line[SYSTEM_LINE_MAX];
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *name = strchr(line, ':');
        if (!name) continue;
        name += 1 + strspn(name + 1, " \t");
        snprintf(model, bytes, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    fclose(file);
}

size_t lochi_cpu_read_cache(const char *root)
{
    LOCHI_NOT_CANCELLED;
    size_t largest = 0;
    for (int index = 0; index < 8; index++) {
        char path[128], line[64] = "";
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = system_open(root, path);
        if (!file) break;
        const bool is_read = fgets(line, sizeof line, file) != NULL;
        fclose(file);
        line[strcspn(line, "\n")] = '\0';
        size_t bytes;
        if (is_read && lochi_parse_bytes(line, &bytes) && bytes > largest) largest = bytes;
    }
    return largest;
}
