// SPDX-License-Identifier: MIT
// The door: reads options, installs the allocator, prints for people.
#include "guarded.h"
#include "kit/parse.h"

#include <c10/core/Allocator.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Exported by libtorch_cuda. Declared here, because its header needs more headers than the shim.
namespace torch::cuda::CUDAPluggableAllocator
{
void changeCurrentAllocator(const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> &allocator);
}

namespace loch_torch
{

std::atomic<uint32_t> rare{0};

static std::mutex install_lock;
static std::string installed_options; // as given
static Settings chosen;               // written before the allocator is installed, never after
static std::atomic<Allocator *> installed{nullptr};

const Settings &settings()
{
    return chosen;
}

Allocator *allocator() noexcept
{
    return installed.load(std::memory_order_acquire);
}

void fail(const char *what, loch_status status)
{
    const loch_error *error = loch_error_get();
    TORCH_CHECK(false, "Loch could not ", what, ": ", error->sentence[0] ? error->sentence : loch_status_name(status));
}

// --- options ---

static size_t read_size(const std::string &text)
{
    size_t bytes = 0;
    TORCH_CHECK(lochi_parse_bytes(text.c_str(), &bytes), "a limit is a size like 40GiB, not \"", text, "\"");
    return bytes;
}

static bool read_switch(const std::string &name, const std::string &text)
{
    TORCH_CHECK(text == "on" || text == "off", name, " is on or off, not \"", text, "\"");
    return text == "on";
}

static void read_option(Settings &out, const std::string &line)
{
    const size_t equals = line.find('=');
    TORCH_CHECK(equals != std::string::npos, "an option is name=value, not \"", line, "\"");
    const std::string name = line.substr(0, equals), value = line.substr(equals + 1);
    if (name == "device")
        out.device = value;
    else if (name == "limit")
        out.limit_bytes = read_size(value);
    else if (name == "pinned")
        out.has_pinned = read_switch(name, value);
    else if (name == "sharing")
        out.has_sharing = read_switch(name, value);
    else
        TORCH_CHECK(false, "there is no option \"", name, "\"");
}

static Settings read_settings(const std::string &options)
{
    Settings out;
    const char *device = secure_getenv("LOCH_TORCH_DEVICE"), *limit = secure_getenv("LOCH_TORCH_LIMIT");
    if (device && *device) out.device = device;
    if (limit && *limit) out.limit_bytes = read_size(limit);
    for (size_t start = 0; start < options.size();) {
        const size_t end = std::min(options.find('\n', start), options.size());
        if (end > start) read_option(out, options.substr(start, end - start));
        start = end + 1;
    }
    out.is_simulated = out.device.rfind("cuda", 0) != 0;
    return out;
}

// --- installing ---

static void install(const std::string &options)
{
    const std::lock_guard<std::mutex> held(install_lock);
    if (allocator()) {
        TORCH_CHECK(options == installed_options, "Loch is installed already, with other options");
        return;
    }
    const CUDAAllocator *present = c10::cuda::CUDACachingAllocator::allocator.load();
    TORCH_CHECK(present, "PyTorch has no allocator for CUDA: is this a build for CUDA?");
    TORCH_CHECK(!const_cast<CUDAAllocator *>(present)->initialized(),
                "too late: PyTorch has used CUDA already. Enable Loch before the first tensor on CUDA and before "
                "torch.cuda.init()");
    chosen = read_settings(options);
    prepare_trackers();
    prepare_clock();
    // Never destroyed: PyTorch frees blocks from static destructors.
    static auto *const kept = new std::shared_ptr<Allocator>(std::make_shared<Allocator>());
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(*kept);
    c10::SetAllocator(c10::DeviceType::CUDA, kept->get(), 1); // torch.accelerator asks this one
    install_host();
    installed_options = options;
    installed.store(kept->get(), std::memory_order_release);
}

// --- text ---

// Copies text to the caller, as much as fits.
static void give(const std::string &from, char *text, size_t bytes, size_t *length)
{
    if (bytes) std::snprintf(text, bytes, "%s", from.c_str());
    if (length) *length = from.size();
}

static std::string print_pool(loch_allocator *pool)
{
    size_t length = 0;
    check("print a pool", loch_pool_print(pool, nullptr, 0, &length));
    std::string text(length + 1, '\0');
    check("print a pool", loch_pool_print(pool, text.data(), text.size(), nullptr));
    text.resize(std::strlen(text.c_str()));
    return text;
}

// Calls a function for each pool of a device, with the main pool first.
template <typename Function> static void for_each_pool(Device &device, Function function)
{
    function(device.main);
    const std::lock_guard<std::mutex> held(device.lock);
    for (Pool *pool : device.pools)
        if (!pool->is_released) function(*pool);
}

static std::string print_stats(int number)
{
    loch_stats sum{};
    sum.size = sizeof sum;
    for (int i = 0; i < kDevicesMax; i++) {
        Device *device = find_device(i);
        if (!device || (number >= 0 && number != i)) continue;
        for_each_pool(*device, [&](Pool &pool) {
            loch_stats stats{};
            stats.size = sizeof stats;
            check("read statistics", loch_allocator_get_stats(pool.loch, &stats));
            loch_stats_add(&sum, &stats);
        });
    }
    char text[4096];
    check("print statistics", loch_stats_print(&sum, LOCH_FORMAT_JSON, text, sizeof text, nullptr));
    return text;
}

static std::string print_report()
{
    std::string text;
    for (int i = 0; i < kDevicesMax; i++)
        if (Device *device = find_device(i))
            for_each_pool(*device, [&](Pool &pool) { text += print_pool(memory_of(pool)); });
    return text;
}

} // namespace loch_torch

// --- the table ---

using namespace loch_torch;

static int door_install(const char *options, char *error, size_t error_bytes)
{
    return guarded([&] { install(options ? options : ""); }, error, error_bytes);
}

static int door_is_installed(void)
{
    return allocator() && c10::cuda::CUDACachingAllocator::allocator.load() == allocator();
}

static loch_allocator *door_get_pool(int number)
{
    Device *device = find_device(number);
    return device ? device->main.loch : nullptr;
}

static int door_print_stats(int number, char *text, size_t bytes, size_t *length, char *error, size_t error_bytes)
{
    return guarded([&] { give(print_stats(number), text, bytes, length); }, error, error_bytes);
}

static int door_print_report(char *text, size_t bytes, size_t *length, char *error, size_t error_bytes)
{
    return guarded([&] { give(print_report(), text, bytes, length); }, error, error_bytes);
}

#define LOCH_TORCH_TEXT_(x) #x
#define LOCH_TORCH_TEXT(x) LOCH_TORCH_TEXT_(x)

extern "C" const loch_torch_door *loch_torch_get_door(void)
{
    static const loch_torch_door door = {
        sizeof(loch_torch_door),
        LOCH_TORCH_TEXT(TORCH_VERSION_MAJOR) "." LOCH_TORCH_TEXT(TORCH_VERSION_MINOR),
        door_install,
        door_is_installed,
        door_get_pool,
        door_print_stats,
        door_print_report,
        door_region_begin,
        door_region_end,
        door_sleep,
        door_wake,
        door_find_tag,
        door_print_pools,
        door_plan_begin,
        door_plan_step,
        door_plan_record,
        door_plan_info,
        door_plan_end,
        door_region_set_one_handle,
    };
    return &door;
}
