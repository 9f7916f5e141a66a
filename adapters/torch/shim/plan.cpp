// SPDX-License-Identifier: MIT
// Plans: the steps of a training loop served by a planned pool (loch/planned.h).
//
// While a plan serves a device, the allocations of all threads on it go to a pool of its own: a child pool with a
// planned pool in front of it. So the owner of an address is known by its MiB as for every pool, and the main pool's
// figures stay its own. Private pools and regions come before the plan: what a graph captures never lies in a plan.
//
// The pool is private for the counts and for its end: blocks that outlive the plan keep it.
#include "guarded.h"

#include <c10/util/ScopeExit.h>

namespace loch_torch
{

// Counts the plans of all devices: allocations look for plans while there are some.
static void count_plans(int more)
{
    static std::mutex lock;
    static int count;
    const std::lock_guard<std::mutex> held(lock);
    count += more;
    set_rare(kRarePlan, count > 0);
}

Pool *hold_plan(Device &device)
{
    const std::lock_guard<std::mutex> held(device.lock);
    if (device.plan) device.plan->use_count++;
    return device.plan;
}

// Returns the plan of a device, held; throws if there is none.
static Pool &require_plan(int number)
{
    Device *device = find_device(number);
    Pool *pool = device ? hold_plan(*device) : nullptr;
    TORCH_CHECK(pool, "Loch: no plan serves device ", number);
    return *pool;
}

// Puts a planned pool in front of a new child pool. Device::lock is held.
static Pool *make_plan(Device &device, const loch_planned_options &wanted)
{
    loch_pool_options options{};
    options.size = sizeof options;
    options.handle = handle_options(device.loch);
    options.captures = LOCH_POOL_CAPTURES_ELSEWHERE;
    loch_planned_options plan = wanted;
    plan.size = sizeof plan;
    plan.threads = LOCH_PLANNED_ALL_THREADS; // a backward pass runs in threads of its own
    const std::string name = "torch cuda:" + std::to_string(device.number) + " plan";
    Pool *pool = make_pool(device, MempoolId_t{0, 0}, name.c_str(), &options);
    const loch_status status = loch_planned_create(pool->loch, name.c_str(), &plan, &pool->planned);
    if (status == LOCH_OK) {
        pool->behind = pool->loch;
        pool->loch = loch_planned_get_allocator(pool->planned); // its reference is the planned pool's
        loch_allocator_release(pool->behind);                   // the planned pool keeps it
    }
    return pool;
}

static int plan_begin(int number, const loch_planned_options &options)
{
    Device &device = open_device(static_cast<DeviceIndex>(number < 0 ? current_device() : number));
    check("give unused memory back", loch_allocator_trim(device.main.loch, 0, nullptr)); // the plan needs it
    Pool *pool;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        TORCH_CHECK(!device.plan, "Loch: a plan serves device ", device.number, " already");
        pool = make_plan(device, options);
        if (pool->planned) device.plan = pool;
    }
    if (!pool->planned) {
        const std::string reason = loch_error_get()->sentence;
        release_pool(*pool);
        TORCH_CHECK(false, "Loch cannot make a planned pool: ", reason);
    }
    count_plans(1);
    return device.number;
}

static void plan_end(int number)
{
    Pool &pool = require_plan(number);
    Device &device = *pool.device;
    bool is_ended = false;
    {
        const std::lock_guard<std::mutex> held(device.lock);
        if (device.plan == &pool) {
            device.plan = nullptr;
            is_ended = true;
        }
    }
    if (is_ended) {
        count_plans(-1);
        release_pool(pool);
    }
    release_pool(pool); // of require_plan
}

// Calls a function with the planned pool of a device.
template <typename Function> static void with_plan(int number, const char *what, Function function)
{
    Pool &pool = require_plan(number);
    const auto done = c10::make_scope_exit([&] { release_pool(pool); });
    check(what, function(pool.planned));
}

int door_plan_begin(int number, const loch_planned_options *options, int *served, char *error, size_t error_bytes)
{
    return guarded([&] { *served = plan_begin(number, *options); }, error, error_bytes);
}

int door_plan_step(int number, char *error, size_t error_bytes)
{
    return guarded([&] { with_plan(number, "begin a step", loch_planned_step); }, error, error_bytes);
}

int door_plan_record(int number, char *error, size_t error_bytes)
{
    return guarded([&] { with_plan(number, "record anew", loch_planned_record); }, error, error_bytes);
}

int door_plan_info(int number, loch_planned_info *out, char *error, size_t error_bytes)
{
    const auto read = [&](loch_planned *planned) { return loch_planned_get_info(planned, out); };
    return guarded([&] { with_plan(number, "read a plan's figures", read); }, error, error_bytes);
}

int door_plan_end(int number, char *error, size_t error_bytes)
{
    return guarded([&] { plan_end(number); }, error, error_bytes);
}

} // namespace loch_torch
