/* SPDX-License-Identifier: MIT */
/* The public control of simulated devices (loch/sim.h): time, kernels, statistics, faults, violations. */
#include "device/sim/control.h"
#include "kit/cancel.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/sim/call.h"
#include "device/sim/clock.h"
#include "device/sim/fail.h"
#include "device/sim/sim.h"
#include "device/sim/stream.h"
#include "device/sim/work.h"
#include "device/stream_life.h"
#include <string.h>

/* --- from public objects --- */

loch_status lochi_sim_of_device(loch_device *device, lochi_sim **out)
{
    void *self = NULL;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    if (!driver || driver->open != lochi_sim_driver.open)
        return SIM_FAIL(INVALID, "%s is not a simulated device", device ? loch_device_get_name(device) : "NULL");
    *out = self;
    return (*out)->is_forked ? lochi_sim_check_lost(*out) : LOCH_OK;
}

loch_status lochi_sim_of_stream(loch_stream *stream, lochi_sim **out, lochi_sim_stream **out_stream)
{
    if (!stream) return SIM_FAIL(INVALID, "the stream is NULL: use loch_stream_get_default");
    LOCH_TRY_RETURN(lochi_stream_check(stream, NULL));
    LOCH_TRY_RETURN(lochi_sim_of_device(loch_stream_get_device(stream), out));
    *out_stream = lochi_sim_stream_of(*out, loch_stream_get_native(stream));
    return LOCH_OK;
}

loch_status loch_sim_get_stream_number(loch_stream *stream, uint64_t *out)
{
    lochi_sim *sim;
    lochi_sim_stream *simulated;
    if (!out) return SIM_FAIL(INVALID, "loch_sim_get_stream_number needs an out pointer");
    LOCH_TRY_RETURN(lochi_sim_of_stream(stream, &sim, &simulated));
    *out = simulated->number; /* constant */
    return LOCH_OK;
}

/* --- time --- */

loch_status loch_sim_get_time(loch_device *device, uint64_t *out_ns)
{
    lochi_sim *sim;
    if (!out_ns) return SIM_FAIL(INVALID, "loch_sim_get_time needs an out pointer");
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    lochi_lock_take(&lochi_sim_all.lock);
    *out_ns = sim->now_ns;
    return lochi_sim_end(LOCH_OK);
}

loch_status loch_sim_advance(loch_device *device, uint64_t ns)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    lochi_lock_take(&lochi_sim_all.lock);
    lochi_sim_move_clock(sim, lochi_sim_add_ns(sim->now_ns, ns));
    return lochi_sim_end(LOCH_OK);
}

loch_status loch_sim_set_time(loch_device *device, uint64_t ns)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    lochi_lock_take(&lochi_sim_all.lock);
    if (ns < sim->now_ns)
        return lochi_sim_end(SIM_FAIL(INVALID, "the clock stands at %llu ns and does not go back to %llu",
                                      (unsigned long long)sim->now_ns, (unsigned long long)ns));
    lochi_sim_move_clock(sim, ns);
    return lochi_sim_end(LOCH_OK);
}

loch_status loch_sim_step(loch_stream *stream, size_t operations)
{
    lochi_sim *sim;
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(lochi_sim_of_stream(stream, &sim, &simulated));
    lochi_lock_take(&lochi_sim_all.lock);
    const lochi_sim_op *op = operations ? simulated->first : NULL;
    while (op && op->next && --operations)
        op = op->next;
    return lochi_sim_end(op ? lochi_sim_wait(sim, op->key) : LOCH_OK);
}

/* --- kernels --- */

/* Returns the kernel's ranges as one array; NULL without host memory. */
static lochi_sim_range *control_ranges(const loch_sim_kernel *kernel)
{
    if (kernel->reads_count > SIZE_MAX - kernel->writes_count - 1) return NULL;
    lochi_sim_range *ranges = lochi_alloc_array(kernel->reads_count + kernel->writes_count + 1, sizeof *ranges);
    if (!ranges) return NULL;
    lochi_sim_range *at = ranges;
    for (size_t i = 0; i < kernel->reads_count; i++)
        *at++ = (lochi_sim_range){kernel->reads[i].address, kernel->reads[i].bytes, false};
    for (size_t i = 0; i < kernel->writes_count; i++)
        *at++ = (lochi_sim_range){kernel->writes[i].address, kernel->writes[i].bytes, true};
    return ranges;
}

static loch_status control_launch(lochi_sim *sim, lochi_sim_stream *stream, const lochi_sim_request *request)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_check_lost(sim));
    lochi_sim_tick(sim);
    return lochi_sim_submit(stream, request);
}

loch_status loch_sim_launch(loch_stream *stream, const loch_sim_kernel *kernel)
{
    lochi_sim *sim;
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(lochi_sim_of_stream(stream, &sim, &simulated));
    if (!kernel || kernel->size < sizeof kernel->size) return SIM_FAIL(INVALID, "a kernel needs its size set");
    loch_sim_kernel read = {.size = sizeof read};
    memcpy(&read, kernel, kernel->size < sizeof read ? kernel->size : sizeof read);
    if ((read.reads_count && !read.reads) || (read.writes_count && !read.writes))
        return SIM_FAIL(INVALID, "the kernel has a count of ranges, but the ranges are NULL");
    lochi_sim_range *ranges = control_ranges(&read);
    if (!ranges) return SIM_FAIL(HOST_MEMORY, "no host memory for a kernel's ranges");
    const lochi_sim_request request = {.kind = LOCHI_SIM_KERNEL,
                                       .duration_ns = read.duration_ns ? read.duration_ns : sim->lag_ns,
                                       .name = read.name ? read.name : "kernel",
                                       .ranges = ranges,
                                       .ranges_count = read.reads_count + read.writes_count,
                                       .function = read.run,
                                       .user = read.user};
    lochi_lock_take(&lochi_sim_all.lock);
    const loch_status status = lochi_sim_end(control_launch(sim, simulated, &request));
    lochi_free(ranges);
    return status;
}

/* --- statistics --- */

loch_status loch_sim_get_stats(loch_device *device, loch_sim_stats *out)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    if (!lochi_sized_is_set(out)) return SIM_FAIL(INVALID, "statistics need a struct whose size is set");
    lochi_lock_take(&lochi_sim_all.lock);
    const loch_sim_stats stats = {.size = sizeof stats,
                                  .physical_bytes = sim->used,
                                  .physical_peak_bytes = sim->used_peak,
                                  .reserved_bytes = sim->reserved,
                                  .pinned_bytes = sim->pinned,
                                  .handles = sim->handles,
                                  .mappings = sim->mappings,
                                  .streams = sim->streams_count,
                                  .events = sim->events_count,
                                  .pending = sim->pending,
                                  .calls = sim->calls,
                                  .modelled_ns = sim->modelled_ns,
                                  .violations = sim->violations_count};
    lochi_lock_drop(&lochi_sim_all.lock);
    lochi_sized_write(out, &stats, sizeof stats);
    return LOCH_OK;
}

/* --- faults --- */

/* Finds the driver call that a fault names; -1 for any call. */
static loch_status control_fault_call(const char *name, int *out)
{
    *out = -1;
    if (!name) return LOCH_OK;
    for (int i = 0; i < LOCH_CALL_COUNT; i++)
        if (!strcmp(loch_driver_call_name((loch_driver_call)i), name)) *out = i;
    return *out >= 0 ? LOCH_OK : SIM_FAIL(NOT_FOUND, "there is no driver call \"%.40s\"", name);
}

loch_status loch_sim_set_fault(loch_device *device, const loch_sim_fault *fault)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    loch_sim_fault read = {.size = sizeof read};
    int call = -1;
    if (fault) {
        if (fault->size < sizeof fault->size) return SIM_FAIL(INVALID, "a fault needs its size set");
        memcpy(&read, fault, fault->size < sizeof read ? fault->size : sizeof read);
        LOCH_TRY_RETURN(control_fault_call(read.call, &call));
        if ((unsigned)read.mode > LOCH_SIM_FAULT_FOREVER || (unsigned)read.status >= LOCH_STATUS_COUNT)
            return SIM_FAIL(INVALID, "the mode or the status of the fault is unknown");
    }
    lochi_lock_take(&lochi_sim_all.lock);
    sim->has_fault = fault != NULL;
    sim->fault = read;
    sim->fault.call = NULL;
    sim->fault_call = call;
    sim->fault_seen = 0;
    return lochi_sim_end(LOCH_OK);
}

loch_status loch_sim_lose(loch_device *device)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    lochi_lock_take(&lochi_sim_all.lock);
    sim->is_lost = true;
    /* All queued work ends without effect. */
    return lochi_sim_end(lochi_sim_wait(sim, sim->last));
}

/* --- violations --- */

loch_status loch_sim_walk_violations(loch_device *device, loch_sim_violation_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    if (!visitor) return SIM_FAIL(INVALID, "loch_sim_walk_violations needs a visitor");
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < LOCHI_SIM_VIOLATIONS && status == LOCH_OK; i++) {
        lochi_lock_take(&lochi_sim_all.lock);
        const bool is_there = i < sim->violations_count;
        const loch_sim_violation found = sim->violations[i];
        LOCH_TRY_RETURN(lochi_sim_end(LOCH_OK));
        if (!is_there) break;
        status = visitor(&found, user);
    }
    return status;
}

loch_status loch_sim_clear_violations(loch_device *device)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_device(device, &sim));
    lochi_lock_take(&lochi_sim_all.lock);
    sim->violations_count = 0;
    return lochi_sim_end(LOCH_OK);
}
