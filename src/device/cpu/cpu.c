/* SPDX-License-Identifier: MIT */
/* The CPU as a device: "cpu", "cpu:numa1", "cpu:huge", "cpu:numa1,huge". Work is done when the call returns, so
 * streams and events are those of at_once.c. */
#include "device/cpu/cpu.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/options.h"
#include "kit/parse.h"
#include "device/cpu/handle.h"
#include "device/cpu/memory.h"
#include "device/cpu/system.h"
#include "device/fill.h"
#include "device/pitched.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static loch_status cpu_enumerate(loch_device_visitor *visitor, void *user)
{
    LOCH_TRY_RETURN(visitor("", user));
    const int last = lochi_cpu_last_node("");
    for (int node = 0; last > 0 && node <= last; node++) {
        if (!lochi_cpu_has_node("", node) || lochi_cpu_probe_bind(node)) continue;
        char name[32];
        snprintf(name, sizeof name, "numa%d", node);
        LOCH_TRY_RETURN(visitor(name, user));
    }
    return LOCH_OK;
}

static loch_status cpu_read_argument(lochi_cpu *cpu, const char *argument)
{
    uint64_t node;
    if (!strcmp(argument, "huge")) {
        cpu->huge = true;
        return LOCH_OK;
    }
    if (strncmp(argument, "numa", 4) != 0 || !lochi_parse_number(argument + 4, &node))
        return LOCH_FAIL(INVALID,
                         "\"cpu:%.60s\" is not a CPU device: they are named cpu, cpu:numa0, cpu:huge or cpu:numa0,huge",
                         argument);
    if (node > 1023 || !lochi_cpu_has_node("", (int)node))
        return LOCH_FAIL(NOT_FOUND, "there is no NUMA node %llu: the highest one here is %d", (unsigned long long)node,
                         lochi_cpu_last_node(""));
    const int error = lochi_cpu_probe_bind((int)node);
    if (error)
        return loch_error_set(LOCH_E_UNSUPPORTED, "cpu", error, "memory cannot be bound to NUMA node %llu here: %s",
                              (unsigned long long)node, strerror(error));
    cpu->node = (int)node;
    return LOCH_OK;
}

static loch_status cpu_read_arguments(lochi_cpu *cpu, const char *arguments)
{
    char piece[64];
    for (const char *rest = *arguments ? arguments : NULL; rest;) {
        rest = lochi_parse_piece(rest, piece, sizeof piece);
        LOCH_TRY_RETURN(cpu_read_argument(cpu, piece));
    }
    return LOCH_OK;
}

static loch_status cpu_open(const char *arguments, void **self)
{
    lochi_cpu read = {.node = -1};
    LOCH_TRY_RETURN(lochi_option_switch("cpu_huge_pages", &read.huge));
    LOCH_TRY_RETURN(cpu_read_arguments(&read, arguments));
    read.total_bytes = lochi_cpu_read_total("", read.node);
    if (!read.total_bytes) return LOCH_FAIL(DRIVER, "the system does not report its memory in /proc/meminfo");
    lochi_cpu *cpu = lochi_zalloc(sizeof *cpu);
    if (!cpu) return LOCH_FAIL(HOST_MEMORY, "no host memory for a CPU device");
    *cpu = read;
    cpu->mapping_limit = lochi_cpu_mapping_limit("");
    cpu->can_move = lochi_cpu_probe_move();
    lochi_lock_init(&cpu->lock, LOCHI_RANK_CPU);
    *self = cpu;
    return LOCH_OK;
}

/* Properties that do not change while the machine runs. Cached, because the files are slow to read: the kernel
 * writes a page for every processor. */
static struct {
    pthread_once_t once;
    char model[sizeof((loch_device_properties *)0)->model];
    size_t cache_bytes;
} cpu_machine = {.once = PTHREAD_ONCE_INIT};

static void cpu_read_machine(void)
{
    lochi_cpu_read_model("", cpu_machine.model, sizeof cpu_machine.model);
    cpu_machine.cache_bytes = lochi_cpu_read_cache("");
}

static void cpu_close(void *self)
{
    lochi_cpu *cpu = self;
    lochi_lock_fini(&cpu->lock);
    lochi_free(cpu);
}

static loch_status cpu_get_properties(void *self, loch_device_properties *out)
{
    const lochi_cpu *cpu = self;
    const int last = cpu->node >= 0 ? cpu->node : lochi_cpu_last_node("");
    pthread_once(&cpu_machine.once, cpu_read_machine);
    memcpy(out->model, cpu_machine.model, sizeof out->model);
    out->capabilities = LOCH_CAN_HOST_ACCESS | LOCH_CAN_VIRTUAL | LOCH_CAN_TIMING | LOCH_CAN_HUGE_PAGES |
                        LOCH_CAN_SHARE_FD | (cpu->can_move ? LOCH_CAN_REMAP : 0) |
                        (last >= 0 && !lochi_cpu_probe_bind(last) ? LOCH_CAN_NUMA : 0);
    out->index = cpu->node >= 0 ? cpu->node : 0;
    out->numa_node = cpu->node;
    out->total_bytes = cpu->total_bytes;
    out->granule_bytes = LOCHI_CPU_GRANULE;
    out->alignment_bytes = LOCHI_CPU_ALIGNMENT;
    out->mapping_limit = cpu->mapping_limit;
    out->l2_bytes = cpu_machine.cache_bytes;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) out->multiprocessors = CPU_COUNT(&set);
    struct utsname name;
    if (uname(&name) == 0) snprintf(out->driver_version, sizeof out->driver_version, "%.31s", name.release);
    return LOCH_OK;
}

static loch_status cpu_memory_info(void *self, loch_memory_info *out)
{
    const lochi_cpu *cpu = self;
    lochi_cpu_read_memory("", cpu->node, out);
    return LOCH_OK;
}

static loch_status cpu_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                            void *stream)
{
    (void)self, (void)direction, (void)peer, (void)stream;
    memmove(to, from, bytes);
    return LOCH_OK;
}

static loch_status cpu_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                    const loch_pitched *shape, void *peer, void *stream)
{
    (void)self, (void)direction, (void)peer, (void)stream;
    lochi_pitched_host(to, from, shape);
    return LOCH_OK;
}

static loch_status cpu_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream)
{
    (void)self, (void)stream;
    lochi_fill_host(to, bytes, pattern, pattern_bytes);
    return LOCH_OK;
}

/* Memory is private to the process, so the child has copies; except that of shareable handles, which the child sees as
 * other processes do. */
static loch_status cpu_forked(void *self)
{
    (void)self;
    return LOCH_OK;
}

const loch_driver lochi_cpu_driver = {
    .size = sizeof(loch_driver),
    .name = "cpu",
    .summary = "memory of this machine, with pages that move",
    .enumerate = cpu_enumerate,
    .open = cpu_open,
    .close = cpu_close,
    .get_properties = cpu_get_properties,
    .memory_info = cpu_memory_info,
    .raw_alloc = lochi_cpu_raw_alloc,
    .raw_free = lochi_cpu_raw_free,
    .reserve = lochi_cpu_reserve,
    .unreserve = lochi_cpu_unreserve,
    .handle_create = lochi_cpu_handle_create,
    .handle_release = lochi_cpu_handle_release,
    .map = lochi_cpu_map,
    .unmap = lochi_cpu_unmap,
    .remap = lochi_cpu_remap,
    .handle_export = lochi_cpu_handle_export,
    .handle_import = lochi_cpu_handle_import,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .copy_pitched = cpu_copy_pitched,
    .protect = lochi_cpu_protect,
    .discard = lochi_cpu_discard,
    .forked = cpu_forked,
};
