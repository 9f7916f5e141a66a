/* SPDX-License-Identifier: MIT */
/** @file engine.hpp
 *  Engines: the devices of a program, opened together. A lock on a seat is a guard.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_ENGINE_HPP)
#define LOCH_CPP_ENGINE_HPP

#include <loch/cpp/allocator.hpp>
#include <loch/cpp/library.hpp>
#include <loch/cpp/stream_pool.hpp>
#include <loch/cpp/timeline.hpp>
#include <loch/cpp/workers.hpp>
#include <loch/engine.h>

#include <initializer_list>
#include <vector>

namespace loch
{

namespace detail
{
template <> struct calls<loch_engine> {
    static constexpr const char *name = "engine";
    static void release(loch_engine *raw) noexcept
    {
        ignore(loch_engine_close(raw, LOCH_WORKERS_DRAIN, nullptr, nullptr, nullptr));
    }
};
} // namespace detail

/** Makes a seat from a number. */
constexpr loch_seat seat(unsigned number) noexcept
{
    return loch_seat{number};
}

/** The lock of a seat, held to the end of the block. The seat's device is current in the calling thread. Not copied,
 *  not moved. */
class [[nodiscard]] seat_lock : detail::fixed
{
  public:
    /** Locks a seat of an engine, waiting for it if needed. */
    seat_lock(loch_engine *engine, loch_seat seat) : engine_(engine), seat_(seat)
    {
        check(loch_engine_lock(engine, seat));
    }
    /** Unlocks the seat. */
    ~seat_lock() { detail::ignore(loch_engine_unlock(engine_, seat_)); }

  private:
    loch_engine *engine_;
    loch_seat seat_;
};

namespace detail
{

/* The methods of engines, owned or of a context. */
template <class Handle> class engine_calls : public Handle
{
  public:
    engine_calls() noexcept = default;
    explicit engine_calls(loch_engine *raw) noexcept : Handle(raw) {}

    /** Returns the number of seats. */
    unsigned count() const { return loch_engine_count(this->need()); }
    /** Returns the device of a seat. Throws LOCH_E_NOT_FOUND if there is no such seat. */
    loch::device device(loch_seat seat) const
    {
        return loch::device::retain(found(loch_engine_get_device(this->need(), seat)));
    }
    /** Returns the allocator of a seat: its pool, or its direct memory. */
    loch::allocator allocator(loch_seat seat) const
    {
        return loch::allocator::retain(found(loch_engine_get_allocator(this->need(), seat)));
    }
    /** Returns the workers of a seat. Borrowed. */
    workers_ref workers(loch_seat seat) const
    {
        return workers_ref(found(loch_engine_get_workers(this->need(), seat)));
    }
    /** Returns the stream pool of a seat. Borrowed. */
    stream_pool_ref streams(loch_seat seat) const
    {
        return stream_pool_ref(found(loch_engine_get_streams(this->need(), seat)));
    }
    /** Returns the timeline of the engine. Borrowed. */
    timeline_ref timeline() const { return timeline_ref(loch_engine_get_timeline(this->need())); }
    /** Returns the NCCL communicators of all seats, created on first use. Borrowed. */
    nccl_ref require_nccl() const
    {
        loch_nccl *made = nullptr;
        check(loch_engine_require_nccl(this->need(), &made));
        return nccl_ref(made);
    }
    /** Returns the figures of a seat. */
    loch_engine_info info(loch_seat seat) const
    {
        auto figures = sized<loch_engine_info>();
        check(loch_engine_get_info(this->need(), seat, &figures));
        return figures;
    }
    /** Returns for people what each seat holds by tag. */
    std::string str() const
    {
        return print([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_engine_print(this->need(), to, bytes, length);
        });
    }
    /** Tells whether work on the seat `from` may read and write memory of the seat `to`. */
    bool can_reach(loch_seat from, loch_seat to) const { return loch_engine_can_reach(this->need(), from, to) != 0; }
    /** Calls `function(loch_seat)` for every seat at the same time, each on a worker of the seat, and waits for all.
     *  Throws the first exception, by seat. */
    template <class Function> void for_each(Function &&function) const
    {
        struct work {
            std::remove_reference_t<Function> &function;
            std::vector<std::exception_ptr> thrown;
        } work{function, std::vector<std::exception_ptr>(count())};
        const loch_status status = loch_engine_for_each(
            this->need(),
            [](loch_engine *, loch_seat seat, void *user) noexcept {
                auto *const all = static_cast<struct work *>(user);
                try {
                    all->function(seat);
                    return LOCH_OK;
                } catch (...) {
                    all->thrown[seat.number] = std::current_exception();
                    return LOCH_E_CANCELLED;
                }
            },
            &work, nullptr);
        for (std::exception_ptr &each : work.thrown)
            if (each) std::rethrow_exception(std::move(each));
        check(status);
    }
    /** Freezes all memory of a tag (none: all live memory) on all seats. Returns the bytes frozen. */
    std::size_t freeze(tag of = {}) const
    {
        std::size_t bytes = 0;
        check(loch_engine_freeze(this->need(), of, &bytes));
        return bytes;
    }
    /** Locks a seat to the end of the block. */
    seat_lock lock(loch_seat seat) const { return seat_lock(this->need(), seat); }

  private:
    template <class T> static T *found(T *part)
    {
        if (!part) fail(LOCH_E_NOT_FOUND, "the engine has no such seat");
        return part;
    }
};

} // namespace detail

/** An engine. The destructor lets queued tasks run, and closes it; close its contexts before. Can be moved but not
 *  copied. */
class engine : public detail::engine_calls<detail::owned<loch_engine>>
{
  public:
    /** Makes an empty handle. */
    engine() noexcept = default;
    /** Opens an engine as the options say. */
    explicit engine(const options<loch_engine_options> &how) { check(loch_engine_open(how.get(), slot())); }
    /** Opens an engine on devices by name, one seat for each: engine({"cuda:0", "cuda:1"}). */
    explicit engine(std::initializer_list<const char *> devices)
    {
        std::vector<loch_engine_device> table;
        for (const char *name : devices) {
            table.push_back(sized<loch_engine_device>());
            table.back().name = name;
        }
        auto how = sized<loch_engine_options>();
        how.devices = table.data();
        how.devices_count = table.size();
        check(loch_engine_open(&how, slot()));
    }
    engine(engine &&) noexcept = default;
    engine &operator=(engine &&) noexcept = default;

    /** Closes the engine and returns what was left in it. The handle is empty then. LOCH_E_BUSY, nothing changed: its
     *  contexts are open, or a seat is locked. Any other failure is that of a task that was not waited for; the handle
     *  is empty then too. */
    loch_engine_leaks close(loch_workers_closing how = LOCH_WORKERS_DRAIN)
    {
        auto leaks = sized<loch_engine_leaks>();
        leaks.blocks = SIZE_MAX; /* written only when the engine has ended: a task may fail with E_BUSY too */
        const loch_status status = loch_engine_close(need(), how, nullptr, nullptr, &leaks);
        if (leaks.blocks != SIZE_MAX) static_cast<void>(release());
        check(status);
        return leaks;
    }
};

/** An engine that belongs to another owner: borrowed. */
using engine_ref = detail::engine_calls<detail::borrowed<loch_engine>>;

} // namespace loch

#endif
