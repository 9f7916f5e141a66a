// SPDX-License-Identifier: MIT
// Replays recorded requests through PyTorch's C++ calls, whatever allocator is installed, at the pace of the recording.
// recorded.py drives it.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

using c10::cuda::CUDACachingAllocator::get;
using Clock = std::chrono::steady_clock;

namespace
{

constexpr auto kSleep = std::chrono::microseconds(500); // shorter waits spin, because a sleep overshoots

struct Event {
    int64_t kind, slot, bytes, stream, time_us;
};

enum Kind { kAlloc, kUse, kFree };

void wait_until(Clock::time_point when)
{
    if (when - Clock::now() > 2 * kSleep) std::this_thread::sleep_until(when - kSleep);
    while (Clock::now() < when)
        ;
}

double nanoseconds(Clock::duration time)
{
    return std::chrono::duration<double, std::nano>(time).count();
}

// Returns what timing a call costs by itself.
double clock_cost()
{
    constexpr int kRounds = 100000;
    Clock::duration sum{};
    for (int i = 0; i < kRounds; i++) {
        const auto start = Clock::now();
        sum += Clock::now() - start;
    }
    return nanoseconds(sum) / kRounds;
}

// Streams by number. Stream 0 is the default one; a replay without others never asks CUDA for a stream.
class Streams
{
  public:
    explicit Streams(int64_t count)
    {
        if (count < 2) return;
        all_.push_back(c10::cuda::getDefaultCUDAStream());
        while (static_cast<int64_t>(all_.size()) < count)
            all_.push_back(c10::cuda::getStreamFromPool());
    }

    ~Streams()
    {
        if (!all_.empty()) c10::cuda::setCurrentCUDAStream(all_[0]);
    }

    void make_current(int64_t number)
    {
        if (number == current_ || all_.empty()) return;
        c10::cuda::setCurrentCUDAStream(all_[number]);
        current_ = number;
    }

    const c10::cuda::CUDAStream &operator[](int64_t number) const { return all_.at(number); }

  private:
    std::vector<c10::cuda::CUDAStream> all_;
    int64_t current_ = 0;
};

Clock::duration replay(const Event *events, size_t count, size_t slots, int64_t stream_count, bool is_paced)
{
    std::vector<c10::DataPtr> blocks(slots);
    Streams streams(stream_count);
    Clock::duration sum{};
    const auto begin = Clock::now();
    for (const Event *event = events; event != events + count; event++) {
        if (is_paced) wait_until(begin + std::chrono::microseconds(event->time_us));
        c10::DataPtr &block = blocks[event->slot];
        if (event->kind == kAlloc) streams.make_current(event->stream);
        const auto start = Clock::now();
        switch (event->kind) {
        case kAlloc: block = get()->allocate(event->bytes); break;
        case kUse: get()->recordStream(block, streams[event->stream]); break;
        default: block.clear(); break;
        }
        sum += Clock::now() - start;
    }
    return sum;
}

} // namespace

// Returns nanoseconds in the allocator's calls, or a negative number and a sentence in `error`.
extern "C" __attribute__((visibility("default"))) double recorded_replay(const int64_t *events, size_t count,
                                                                         size_t slots, int64_t streams, int is_paced,
                                                                         char *error, size_t error_bytes)
{
    try {
        const double cost = clock_cost();
        const Clock::duration sum =
            replay(reinterpret_cast<const Event *>(events), count, slots, streams, is_paced != 0);
        return std::max(0.0, nanoseconds(sum) - cost * static_cast<double>(count));
    } catch (const std::exception &failure) {
        std::snprintf(error, error_bytes, "%s", failure.what());
        return -1;
    }
}
