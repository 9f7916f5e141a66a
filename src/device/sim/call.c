/* SPDX-License-Identifier: MIT */
/* The first steps of every driver call of a simulated device: count, cost, clock, faults. */
#include "device/sim/call.h"
#include "base/fail.h"
#include "device/sim/clock.h"

/* Returns whether a call gives something back. Faults of loch_sim_set_fault and a lost device do not fail such
 * calls. */
static bool call_is_release(loch_driver_call call)
{
    switch (call) {
    case LOCH_CALL_raw_free:
    case LOCH_CALL_pinned_free:
    case LOCH_CALL_managed_free:
    case LOCH_CALL_host_unregister:
    case LOCH_CALL_ordered_free:
    case LOCH_CALL_unreserve:
    case LOCH_CALL_handle_release:
    case LOCH_CALL_unmap:
    case LOCH_CALL_stream_destroy:
    case LOCH_CALL_event_destroy:
    case LOCH_CALL_leave: return true;
    default: return false;
    }
}

static bool call_is_allocation(loch_driver_call call)
{
    switch (call) {
    case LOCH_CALL_raw_alloc:
    case LOCH_CALL_pinned_alloc:
    case LOCH_CALL_managed_alloc:
    case LOCH_CALL_ordered_alloc:
    case LOCH_CALL_reserve:
    case LOCH_CALL_handle_create: return true;
    default: return false;
    }
}

static loch_status call_check_fault(lochi_sim *sim, loch_driver_call call)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!sim->has_fault || (sim->fault_call >= 0 && sim->fault_call != (int)call)) return LOCH_OK;
    if (sim->fault_seen++ < sim->fault.after || call_is_release(call)) return LOCH_OK;
    if (sim->fault.mode == LOCH_SIM_FAULT_ONCE) sim->has_fault = false;
    loch_status status = sim->fault.status;
    if (status == LOCH_OK) status = call_is_allocation(call) ? LOCH_E_DEVICE_MEMORY : LOCH_E_DRIVER;
    return loch_error_set(status, "sim", 0, "%s failed because a fault was set (driver call %llu)",
                          loch_driver_call_name(call), (unsigned long long)sim->calls);
}

loch_status lochi_sim_count(lochi_sim *sim, loch_driver_call call, size_t bytes)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const uint64_t ns = lochi_sim_cost(&sim->costs, call, bytes);
    sim->calls++;
    sim->call_ns[call] = lochi_sim_add_ns(sim->call_ns[call], ns);
    sim->modelled_ns = lochi_sim_add_ns(sim->modelled_ns, ns);
    if (sim->is_lost && call != LOCH_CALL_enter && !call_is_release(call)) return lochi_sim_check_lost(sim);
    return call_check_fault(sim, call);
}

loch_status lochi_sim_begin(lochi_sim *sim, loch_driver_call call, size_t bytes)
{
    lochi_lock_take(&lochi_sim_all.lock);
    lochi_sim_tick(sim);
    const loch_status status = lochi_sim_count(sim, call, bytes);
    if (status != LOCH_OK) lochi_lock_drop(&lochi_sim_all.lock);
    return status;
}

loch_status lochi_sim_end(loch_status status)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_lock_drop(&lochi_sim_all.lock);
    return status;
}
