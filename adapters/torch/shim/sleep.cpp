// SPDX-License-Identifier: MIT
// Regions and sleep.
//
// A region gives the allocations of one thread a tag. The memory of a tag lies in pools of its own: one child pool for
// each device, made on first use, and the private pools (of graphs, of MemPools) that were made inside of a region. So
// a tag shares no memory with others and sleeps as a whole. The empty tag stands for all memory outside of regions.
//
// A sleep takes several tags in one step. It succeeds for all of their pools or changes nothing. Pools that keep their
// contents go to sleep first: a failure can then still be undone without loss. A wake is undone in the same way.
//
// Locks: sleep_lock is held during a whole sleep or wake and is taken before Device::lock. Loch is called with
// sleep_lock held and Device::lock not held, except to retain a pool. trimmer_lock is taken after sleep_lock.
#include "guarded.h"

#include <loch/sleep.h>

#include <algorithm>
#include <cstdio>
#include <pthread.h>
#include <signal.h>

namespace loch_torch
{

namespace
{

// A pool with a reference of its own.
using PoolReference = std::shared_ptr<loch_allocator>;

PoolReference refer(const Pool &pool)
{
    return {loch_allocator_retain(pool.loch), loch_allocator_release};
}

// A pool that sleeps, and how.
struct Sleeper {
    PoolReference pool;
    int device;
    loch_sleep_contents contents;
    std::string path; // folder of its file; empty for TMPDIR
};

// A tag. Never destroyed: threads read it without a lock.
struct Tag {
    std::string name;                            // empty for memory outside of regions
    std::atomic<Pool *> pools[kDevicesMax] = {}; // the tag's own pools; added under Device::lock
    std::atomic<bool> is_asleep{false};          // written under sleep_lock
    std::vector<Sleeper> sleepers;               // while asleep; under sleep_lock
};

std::mutex sleep_lock;
std::mutex tags_lock;                              // guards the table of tags; the last lock that is taken
std::vector<Tag *> tags;                           // in order of creation
size_t regions_open;                               // regions of all threads; under tags_lock
std::atomic<loch_allocator *> pinned[kDevicesMax]; // for saved contents; made under sleep_lock, kept for good

struct Region {
    Tag *tag;         // nullptr stands for "outside of regions"
    bool has_handles; // large blocks have a handle each
};

// Regions of the thread, innermost last.
thread_local std::vector<Region> open_regions;

constexpr size_t kWhole = size_t{1} << 20; // smaller blocks would waste most of a granule

Tag *find_tag(const std::string &name)
{
    const std::lock_guard<std::mutex> held(tags_lock);
    for (Tag *tag : tags)
        if (tag->name == name) return tag;
    return nullptr;
}

Tag &require_tag(const std::string &name)
{
    if (Tag *tag = find_tag(name)) return *tag;
    const std::lock_guard<std::mutex> held(tags_lock);
    for (Tag *tag : tags)
        if (tag->name == name) return *tag;
    auto tag = std::make_unique<Tag>();
    tag->name = name;
    tags.push_back(tag.get());
    return *tag.release();
}

// Returns the names of all tags, for a sentence.
std::string list_tags()
{
    const std::lock_guard<std::mutex> held(tags_lock);
    std::string text;
    for (const Tag *tag : tags)
        if (!tag->name.empty()) text += (text.empty() ? "'" : ", '") + tag->name + "'";
    return text.empty() ? "there are no regions" : "the tags are " + text;
}

std::string quote(const Tag &tag)
{
    return tag.name.empty() ? "the memory outside of regions" : "the memory of tag '" + tag.name + "'";
}

// --- regions ---

constexpr size_t kTagMax = 63;

// Tells whether a character of a tag would need quoting in JSON.
bool is_odd(char character)
{
    return character == '"' || character == '\\' || static_cast<unsigned char>(character) < ' ';
}

Pool &make_region(Device &device, Tag &tag)
{
    const std::lock_guard<std::mutex> held(device.lock);
    if (Pool *pool = tag.pools[device.number].load(std::memory_order_acquire)) return *pool;
    const std::string name = "torch cuda:" + std::to_string(device.number) + " " + tag.name;
    loch_pool_options options{};
    options.size = sizeof options;
    options.handle = handle_options(device.loch);
    Pool *pool = make_pool(device, MempoolId_t{0, 0}, name.substr(0, 63).c_str(), &options);
    pool->tag = tag.name;
    tag.pools[device.number].store(pool, std::memory_order_release);
    return *pool;
}

void region_begin(const char *name)
{
    const std::string text(name);
    TORCH_CHECK(text.size() <= kTagMax, "the tag of a region has at most ", kTagMax, " characters, not ", text.size());
    TORCH_CHECK(std::none_of(text.begin(), text.end(), is_odd),
                "the tag of a region has no quotes, backslashes or control characters");
    Tag *tag = *name ? &require_tag(name) : nullptr;
    open_regions.push_back({tag, false});
    const std::lock_guard<std::mutex> held(tags_lock);
    regions_open++;
    set_rare(kRareRegion, true);
}

void region_end()
{
    TORCH_CHECK(!open_regions.empty(), "this thread is in no region");
    open_regions.pop_back();
    const std::lock_guard<std::mutex> held(tags_lock);
    if (--regions_open == 0) set_rare(kRareRegion, false);
}

// --- collecting pools ---

// Tells whether a pool has memory that Loch can take away: memory of a foreign allocator stays where it is.
bool can_sleep(const Pool &pool)
{
    return !pool.is_released && !pool.source;
}

// Adds the pools of a tag on one device.
void collect_device(Device &device, const Tag &tag, loch_sleep_contents contents, std::vector<Sleeper> &out)
{
    if (tag.name.empty()) out.push_back({refer(device.main), device.number, contents, {}});
    const std::lock_guard<std::mutex> held(device.lock);
    TORCH_CHECK(!device.plan || !tag.name.empty(), "Loch: a plan serves device ", device.number,
                ": end it before the memory outside of regions sleeps");
    for (const Pool *pool : device.pools)
        if (can_sleep(*pool) && pool->tag == tag.name) out.push_back({refer(*pool), device.number, contents, {}});
}

// A folder for Loch, which makes a file without a name in it for each pool.
std::string make_path(const char *directory)
{
    return directory && *directory ? std::string(directory) + "/" : std::string();
}

void for_each_device(const std::function<void(Device &)> &function)
{
    for (int number = 0; number < kDevicesMax; number++)
        if (Device *device = find_device(number)) function(*device);
}

// --- one pool ---

// Returns the pool for the saved contents of a device. Makes it on first use.
loch_status require_pinned(int number, loch_allocator **out)
{
    *out = pinned[number].load(std::memory_order_relaxed);
    if (*out) return LOCH_OK;
    loch_pool_options options{};
    options.size = sizeof options;
    options.kind = LOCH_MEMORY_PINNED;
    const std::string name = "torch sleep cuda:" + std::to_string(number);
    const loch_status status = loch_pool_create(find_device(number)->loch, name.c_str(), &options, out);
    if (status == LOCH_OK) pinned[number].store(*out, std::memory_order_release);
    return status;
}

loch_status put_to_sleep(const Sleeper &sleeper, size_t *released)
{
    loch_sleep_options options{};
    options.size = sizeof options;
    options.contents = sleeper.contents;
    options.path = sleeper.path.empty() ? nullptr : sleeper.path.c_str();
    if (sleeper.contents == LOCH_SLEEP_PINNED) {
        const loch_status status = require_pinned(sleeper.device, &options.allocator);
        if (status != LOCH_OK) return status;
    }
    return loch_pool_sleep(sleeper.pool.get(), &options, released);
}

std::string describe(const Sleeper &sleeper)
{
    return std::string("pool '") + loch_allocator_get_name(sleeper.pool.get()) + "'";
}

// --- sleep ---

struct Job {
    Tag *tag;
    Sleeper sleeper;
};

// Reads the parts of a sleep and collects their pools. Nothing has changed yet.
std::vector<Job> plan_sleep(const loch_torch_sleep_part *parts, size_t count)
{
    std::vector<Job> jobs;
    std::vector<Tag *> seen;
    for (size_t i = 0; i < count; i++) {
        const loch_torch_sleep_part &part = parts[i];
        Tag *tag = *part.tag ? find_tag(part.tag) : &require_tag("");
        TORCH_CHECK(tag, "there is no tag '", part.tag, "': ", list_tags());
        TORCH_CHECK(!tag->is_asleep, quote(*tag), " is asleep already");
        TORCH_CHECK(std::find(seen.begin(), seen.end(), tag) == seen.end(), quote(*tag), " is named twice");
        seen.push_back(tag);
        std::vector<Sleeper> sleepers;
        for_each_device([&](Device &device) { collect_device(device, *tag, part.contents, sleepers); });
        for (Sleeper &sleeper : sleepers) {
            if (part.contents == LOCH_SLEEP_FILE) sleeper.path = make_path(part.directory);
            jobs.push_back({tag, sleeper});
        }
    }
    const auto keeps = [](const Job &job) { return job.sleeper.contents != LOCH_SLEEP_DROP; };
    std::stable_partition(jobs.begin(), jobs.end(), keeps);
    return jobs;
}

// Wakes the first `count` pools again. Returns a sentence about those that it could not wake; they stay asleep.
std::string undo_sleep(std::vector<Job> &jobs, size_t count)
{
    std::string text;
    while (count-- > 0) {
        Job &job = jobs[count];
        if (loch_pool_wake(job.sleeper.pool.get(), nullptr) == LOCH_OK) continue;
        text += "; " + describe(job.sleeper) + " is left asleep: " + loch_error_get()->sentence;
        job.tag->is_asleep = true;
        job.tag->sleepers.push_back(job.sleeper);
    }
    return text;
}

void wait_for_devices()
{
    for_each_device([](Device &device) { check("wait for a device", loch_device_sync(device.loch)); });
}

// Gives cached memory of the pools that are awake back to the devices.
void trim_awake()
{
    std::vector<PoolReference> pools;
    for_each_device([&](Device &device) {
        pools.push_back(refer(device.main));
        const std::lock_guard<std::mutex> held(device.lock);
        for (const Pool *pool : device.pools)
            if (can_sleep(*pool)) pools.push_back(refer(*pool));
    });
    for (const PoolReference &pool : pools) // a pool that sleeps refuses
        (void)!loch_allocator_trim(pool.get(), 0, nullptr);
}

void trim_pinned()
{
    for (const auto &place : pinned)
        if (loch_allocator *pool = place.load(std::memory_order_relaxed)) (void)!loch_allocator_trim(pool, 0, nullptr);
}

// --- giving pinned memory back ---

// Unpinning takes 22 ms for a GiB on an H200, as long as the copy of a wake. So a thread of its own does it after the
// wake. It is joined before the next sleep, wake or list of pools, and by nothing at the end of the process: a
// pthread_t has no destructor.
std::mutex trimmer_lock; // guards what follows
pthread_t trimmer;
bool has_trimmer;

void *run_trimmer(void *)
{
    (void)pthread_setname_np(pthread_self(), "loch trim");
    trim_pinned();
    return nullptr;
}

// Waits until pinned memory of the last wake was given back.
void join_trimmer()
{
    const std::lock_guard<std::mutex> held(trimmer_lock);
    if (has_trimmer) (void)pthread_join(trimmer, nullptr);
    has_trimmer = false;
}

// Runs in the child of a fork, which has no trimmer.
void forget_trimmer()
{
    new (&trimmer_lock) std::mutex;
    has_trimmer = false;
}

// Starts the trimmer with all signals blocked: they are for threads of the program.
bool start_trimmer()
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_BLOCK, &all, &before)) return false;
    const bool is_started = !pthread_create(&trimmer, nullptr, run_trimmer, nullptr);
    (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_started;
}

void trim_pinned_later()
{
    static const bool is_fork_safe = !pthread_atfork(nullptr, nullptr, forget_trimmer);
    const std::lock_guard<std::mutex> held(trimmer_lock);
    if (!has_trimmer && is_fork_safe) has_trimmer = start_trimmer();
    if (!has_trimmer) trim_pinned();
}

// Tells whether a pool for saved contents exists.
bool has_pinned()
{
    return std::any_of(std::begin(pinned), std::end(pinned),
                       [](const auto &place) { return place.load(std::memory_order_relaxed) != nullptr; });
}

size_t sleep_tags(const loch_torch_sleep_part *parts, size_t count)
{
    const std::lock_guard<std::mutex> held(sleep_lock);
    join_trimmer();
    std::vector<Job> jobs = plan_sleep(parts, count);
    size_t released = 0;
    std::string failure;
    wait_for_devices(); // graphs run on streams that the pools did not see
    for (size_t i = 0; i < jobs.size() && failure.empty(); i++) {
        size_t bytes = 0;
        if (put_to_sleep(jobs[i].sleeper, &bytes) == LOCH_OK) {
            released += bytes;
            continue;
        }
        failure = describe(jobs[i].sleeper) + " cannot sleep: " + loch_error_get()->sentence;
        failure += undo_sleep(jobs, i);
    }
    if (!failure.empty()) trim_pinned();
    TORCH_CHECK(failure.empty(), failure);
    for (const Job &job : jobs)
        job.tag->sleepers.push_back(job.sleeper);
    for (size_t i = 0; i < count; i++) // a tag without memory sleeps, too
        require_tag(parts[i].tag).is_asleep = true;
    trim_awake();
    return released;
}

// --- wake ---

// Reads the names and returns those tags that sleep. NULL for all.
std::vector<Tag *> plan_wake(const char *const *names, size_t count)
{
    std::vector<Tag *> out;
    if (!names) {
        const std::lock_guard<std::mutex> held(tags_lock);
        for (Tag *tag : tags)
            if (tag->is_asleep) out.push_back(tag);
        return out;
    }
    for (size_t i = 0; i < count; i++) {
        Tag *tag = *names[i] ? find_tag(names[i]) : &require_tag("");
        TORCH_CHECK(tag, "there is no tag '", names[i], "': ", list_tags());
        if (tag->is_asleep && std::find(out.begin(), out.end(), tag) == out.end()) out.push_back(tag);
    }
    return out;
}

// Puts the first `count` pools back to sleep as they were. Returns a sentence about those that stay awake.
std::string undo_wake(const std::vector<Sleeper> &sleepers, size_t count)
{
    std::string text;
    while (count-- > 0)
        if (put_to_sleep(sleepers[count], nullptr) != LOCH_OK)
            text += "; " + describe(sleepers[count]) + " is left awake: " + loch_error_get()->sentence;
    return text;
}

size_t wake_tags(const char *const *names, size_t count, bool keeps_host)
{
    const std::lock_guard<std::mutex> held(sleep_lock);
    join_trimmer();
    const std::vector<Tag *> chosen = plan_wake(names, count);
    std::vector<Sleeper> sleepers;
    for (const Tag *tag : chosen)
        sleepers.insert(sleepers.end(), tag->sleepers.begin(), tag->sleepers.end());
    size_t restored = 0;
    for (size_t i = 0; i < sleepers.size(); i++) {
        size_t bytes = 0;
        if (loch_pool_wake(sleepers[i].pool.get(), &bytes) == LOCH_OK) {
            restored += bytes;
            continue;
        }
        const std::string failure = describe(sleepers[i]) + " cannot wake: " + loch_error_get()->sentence;
        TORCH_CHECK(false, failure, undo_wake(sleepers, i));
    }
    for (Tag *tag : chosen) {
        tag->is_asleep = false;
        tag->sleepers.clear();
    }
    if (!keeps_host && has_pinned()) trim_pinned_later();
    return restored;
}

// --- figures ---

std::string print_pool_figures(const Pool &pool)
{
    loch_pool_info info{};
    info.size = sizeof info;
    check("read a pool's figures", loch_pool_get_info(memory_of(pool), &info));
    char text[1024];
    loch_stats stats{};
    stats.size = sizeof stats;
    check("read statistics", loch_allocator_get_stats(pool.loch, &stats)); // its peaks are not those of a span
    std::snprintf(text, sizeof text,
                  "{\"name\": \"%s\", \"tag\": \"%s\", \"id\": [%llu, %llu], \"reserved_bytes\": %zu, "
                  "\"peak_reserved_bytes\": %zu, \"used_bytes\": %zu, \"free_bytes\": %zu, \"waiting_bytes\": %zu, "
                  "\"captured_bytes\": %zu, \"largest_free_bytes\": %zu, \"asleep_bytes\": %zu, \"limit_bytes\": %zu}",
                  loch_allocator_get_name(pool.loch), pool.tag.c_str(), static_cast<unsigned long long>(pool.id.first),
                  static_cast<unsigned long long>(pool.id.second), info.reserved_bytes,
                  static_cast<size_t>(stats.peak_reserved_bytes), info.used_bytes, info.free_bytes, info.waiting_bytes,
                  info.captured_bytes, info.largest_free_bytes, info.asleep_bytes, info.limit_bytes);
    return text;
}

std::string print_tags()
{
    const std::lock_guard<std::mutex> held(tags_lock);
    std::string text;
    for (const Tag *tag : tags)
        text += (text.empty() ? "" : ", ") + ("\"" + tag->name + "\": ") + (tag->is_asleep ? "true" : "false");
    return "{" + text + "}";
}

// Returns the bytes of pinned host memory that are held for saved contents of a device.
size_t sum_host_bytes(int number)
{
    loch_pool_info info{};
    info.size = sizeof info;
    loch_allocator *pool = pinned[number].load(std::memory_order_acquire);
    return pool && loch_pool_get_info(pool, &info) == LOCH_OK ? info.reserved_bytes : 0;
}

std::string print_pools()
{
    join_trimmer();
    std::string devices, host;
    for_each_device([&](Device &device) {
        std::string pools = print_pool_figures(device.main);
        {
            const std::lock_guard<std::mutex> held(device.lock);
            for (const Pool *pool : device.pools)
                if (!pool->is_released) pools += ", " + print_pool_figures(*pool);
        }
        host += (host.empty() ? "\"" : ", \"") + std::to_string(device.number) +
                "\": " + std::to_string(sum_host_bytes(device.number));
        devices += (devices.empty() ? "" : ", ") + ("\"" + std::to_string(device.number) + "\": [") + pools + "]";
    });
    return "{\"tags\": " + print_tags() + ", \"host_bytes\": {" + host + "}, \"devices\": {" + devices + "}}";
}

} // namespace

Pool *find_region(Device &device)
{
    if (open_regions.empty() || !open_regions.back().tag) return nullptr;
    Tag &tag = *open_regions.back().tag;
    TORCH_CHECK(!tag.is_asleep.load(std::memory_order_relaxed), "Loch: ", quote(tag),
                " is asleep: wake it before you allocate in its region");
    Pool *pool = tag.pools[device.number].load(std::memory_order_acquire);
    return pool ? pool : &make_region(device, tag);
}

std::string current_tag()
{
    return open_regions.empty() || !open_regions.back().tag ? std::string() : open_regions.back().tag->name;
}

uint32_t region_flags(const Pool &pool, size_t bytes)
{
    const bool is_whole = bytes >= kWhole && !open_regions.empty() && open_regions.back().has_handles &&
                          pool.is_private && pool.id == MempoolId_t{0, 0};
    return is_whole ? LOCH_ALLOC_ONE_HANDLE : 0;
}

int door_region_begin(const char *tag, char *error, size_t error_bytes)
{
    return guarded([&] { region_begin(tag ? tag : ""); }, error, error_bytes);
}

int door_region_end(char *error, size_t error_bytes)
{
    return guarded([] { region_end(); }, error, error_bytes);
}

int door_region_set_one_handle(int is_on, char *error, size_t error_bytes)
{
    return guarded(
        [&] {
            TORCH_CHECK(!open_regions.empty(), "this thread is in no region");
            open_regions.back().has_handles = is_on;
        },
        error, error_bytes);
}

int door_sleep(const loch_torch_sleep_part *parts, size_t count, size_t *released, char *error, size_t error_bytes)
{
    return guarded(
        [&] {
            *released = sleep_tags(parts, count);
            for_each_device(note_private_memory);
        },
        error, error_bytes);
}

int door_wake(const char *const *tags, size_t count, int keeps_host, size_t *restored, char *error, size_t error_bytes)
{
    return guarded(
        [&] {
            *restored = wake_tags(tags, count, keeps_host != 0);
            for_each_device(note_private_memory);
        },
        error, error_bytes);
}

const char *door_find_tag(const void *address)
{
    const Pool *pool = find_owner(address);
    if (!pool) return nullptr;
    const Tag *tag = find_tag(pool->tag);
    return tag ? tag->name.c_str() : "";
}

int door_print_pools(char *text, size_t bytes, size_t *length, char *error, size_t error_bytes)
{
    return guarded(
        [&] {
            const std::string all = print_pools();
            if (bytes) std::snprintf(text, bytes, "%s", all.c_str());
            if (length) *length = all.size();
        },
        error, error_bytes);
}

} // namespace loch_torch
