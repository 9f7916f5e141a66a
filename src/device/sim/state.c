/* SPDX-License-Identifier: MIT */
/* The global state of simulated devices, and the check whether a device can do what is asked. */
#include "device/sim/state.h"
#include "device/sim/fail.h"

lochi_sim_world lochi_sim_all = {.lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_SIM), .settled = PTHREAD_COND_INITIALIZER};

loch_status lochi_sim_check_lost(const lochi_sim *sim)
{
    if (sim->is_forked)
        return SIM_FAIL(FORKED,
                        "the simulated device was opened before a fork: open one in the child, or start the child "
                        "by spawn or exec");
    return sim->is_lost ? SIM_FAIL(DEVICE_LOST, "the simulated device was lost: release it and open another") : LOCH_OK;
}

loch_status lochi_sim_need(const lochi_sim *sim, uint32_t capability, const char *what)
{
    if ((sim->capabilities & capability) == capability) return LOCH_OK;
    return SIM_FAIL(UNSUPPORTED, "this simulated device was opened without %s", what);
}
