// SPDX-License-Identifier: MIT
// Memory that is opened to other devices. Peer access of CUDA covers cudaMalloc's memory alone: every range that Loch
// maps is opened by a call of its own. Knows nothing of CUDA or PyTorch: the caller says how a range is opened.
#pragma once

#include <loch/observer.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace loch_torch
{

class Peers
{
  public:
    // Opens a range to a device. Returns 0 or an error code. Called on any thread; must not throw.
    using Open = int (*)(void *address, size_t bytes, int reader);

    explicit Peers(Open open) : open_(open) {}

    // Opens the mapped memory of device `owner` to device `reader`: the ranges that exist now, and every range that is
    // mapped later. `memory` is Loch's device for `owner`. `error` receives the code of a range that exists and cannot
    // be opened; the pair is then not added. A pair that is there already is left alone, unless a later range could not
    // be opened: all ranges are then tried again. Any thread.
    loch_status add(int reader, int owner, loch_device *memory, int *error)
    {
        const std::lock_guard<std::mutex> held(lock_);
        const std::pair<int, int> key(reader, owner);
        *error = 0;
        const auto found = pairs_.find(key);
        if (found != pairs_.end()) {
            if (!found->second->error) return LOCH_OK;
            const loch_status status = loch_observer_remove(memory, receive, found->second.get());
            if (status != LOCH_OK) return status;
            pairs_.erase(found);
        }
        auto pair = std::make_unique<Pair>(open_, reader);
        loch_status status = loch_observer_add(memory, receive, pair.get());
        if (status != LOCH_OK) return status;
        *error = pair->error;
        if (*error) {
            status = loch_observer_remove(memory, receive, pair.get());
            if (status != LOCH_OK) (void)pair.release(); // the observer still has it
            return status;
        }
        pairs_.emplace(key, std::move(pair));
        return LOCH_OK;
    }

  private:
    struct Pair {
        Pair(Open how, int device) : open(how), reader(device) {}
        const Open open;
        const int reader;
        std::atomic<int> error{0}; // of the last range that could not be opened
    };

    static void receive(loch_range_event event, const loch_range *range, void *user)
    {
        auto &pair = *static_cast<Pair *>(user);
        const bool is_mapped = range->memory && range->kind == LOCH_MEMORY_DEVICE;
        if (event != LOCH_RANGE_TAKEN || !is_mapped) return;
        if (const int error = pair.open(range->address, range->bytes, pair.reader)) pair.error = error;
    }

    const Open open_;
    std::mutex lock_; // guards pairs_
    std::map<std::pair<int, int>, std::unique_ptr<Pair>> pairs_;
};

} // namespace loch_torch
