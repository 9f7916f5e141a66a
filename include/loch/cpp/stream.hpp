/* SPDX-License-Identifier: MIT */
/** @file stream.hpp
 *  Streams and events. A stream is a shared handle; an event has one owner.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_STREAM_HPP)
#define LOCH_CPP_STREAM_HPP

#include <loch/cpp/device.hpp>
#include <loch/stream.h>

namespace loch
{

namespace detail
{
template <> struct calls<loch_stream> {
    static constexpr const char *name = "stream";
    static loch_stream *retain(loch_stream *raw) noexcept { return loch_stream_retain(raw); }
    static void release(loch_stream *raw) noexcept { loch_stream_release(raw); }
};
template <> struct calls<loch_event> {
    static constexpr const char *name = "event";
    static void release(loch_event *raw) noexcept { loch_event_destroy(raw); }
};
template <class Handle> class event_calls;
} // namespace detail

/** A stream: a shared handle of a loch_stream. The last reference ends the stream. */
class stream : public detail::shared<loch_stream>
{
  public:
    /** Makes an empty handle. */
    stream() noexcept = default;
    /** Creates a stream on a device. */
    explicit stream(const device &of, const options<loch_stream_options> &how = nullptr)
    {
        check(loch_stream_create(of.get(), how.get(), slot()));
    }
    /** Takes over the caller's reference. */
    static stream take(loch_stream *raw) noexcept { return stream(raw); }
    /** Takes another reference on a stream of the caller. */
    static stream retain(loch_stream *raw) noexcept { return stream(loch_stream_retain(raw)); }
    /** Wraps a queue that the caller created with the driver itself. Call close() before destroying the queue. */
    static stream wrap(const device &of, void *native)
    {
        stream made;
        check(loch_stream_wrap(of.get(), native, made.slot()));
        return made;
    }
    /** Returns the default stream of a device. */
    static stream default_of(const device &of) { return stream(loch_stream_get_default(of.need())); }
    /** Returns the default stream of the calling thread on a device. Valid until the thread ends. */
    static stream thread_default_of(const device &of)
    {
        loch_stream *found = nullptr;
        check(loch_stream_require_thread_default(of.get(), &found));
        return stream(found); /* default streams are not counted */
    }

    /** Ends the stream now, also for other holders of a reference. The handle is empty then. */
    void close() noexcept { loch_stream_close(release()); }
    /** Returns the id of the stream: a number that is never used for another stream of this process. */
    std::uint64_t id() const { return loch_stream_get_id(need()); }
    /** Returns the device of the stream. */
    loch::device device() const { return loch::device::retain(loch_stream_get_device(need())); }
    /** Returns the driver's own handle of the stream (CUstream). */
    void *native() const { return loch_stream_get_native(need()); }
    /** Waits on the host for the work queued on the stream. */
    void sync() const { check(loch_stream_sync(need())); }
    /** Tells whether all work queued on the stream has ended. Returns immediately. */
    bool is_idle() const { return detail::has_ended(loch_stream_query(need())); }
    /** Makes work that is queued after this call wait for an event on the device. */
    template <class Handle> void wait(const detail::event_calls<Handle> &mark) const
    {
        check(loch_stream_wait(need(), mark.need()));
    }
    /** Queues a call of a host function. `user` must stay valid until the function has run. A plain function, because
     *  a graph that captured the call runs it at every launch. */
    void call(loch_stream_function *function, void *user) const { check(loch_stream_call(need(), function, user)); }
    /** Reads whether the stream is being captured into a graph. */
    loch_capture_info capture() const
    {
        auto found = sized<loch_capture_info>();
        check(loch_stream_query_capture(need(), &found));
        return found;
    }

  private:
    explicit stream(loch_stream *raw) noexcept : shared(raw) {}
};

/** A stream as an argument: a loch::stream, a loch_stream pointer, or nothing for the default stream. Borrows the
 *  stream. */
class stream_ref
{
  public:
    /** Names the default stream. */
    stream_ref(std::nullptr_t = nullptr) noexcept {}
    /** Names a stream of the C interface; NULL for the default stream. */
    stream_ref(loch_stream *raw) noexcept : raw_(raw) {}
    /** Names the stream of a handle. Throws LOCH_E_INVALID for an empty handle. */
    stream_ref(const stream &of) : raw_(of.need()) {}
    /** Returns the C object; NULL for the default stream. */
    loch_stream *get() const noexcept { return raw_; }

  private:
    loch_stream *raw_ = nullptr;
};

namespace detail
{

/* The methods of events, owned or lent by a stream pool. */
template <class Handle> class event_calls : public Handle
{
  public:
    event_calls() noexcept = default;
    explicit event_calls(loch_event *raw) noexcept : Handle(raw) {}

    /** Places the mark of the event after the work queued so far on a stream; without one, on the default stream. */
    void record(stream_ref on = nullptr) const { check(loch_event_record(this->need(), on.get())); }
    /** Tells whether the mark has passed, or was never placed. Returns immediately. */
    bool has_passed() const { return has_ended(loch_event_query(this->need())); }
    /** Waits on the host until the mark has passed. */
    void sync() const { check(loch_event_sync(this->need())); }
    /** Computes the nanoseconds on the device from the mark of `start` to the mark of this event. Both are timed. */
    template <class Other> std::uint64_t ns_since(const event_calls<Other> &start) const
    {
        std::uint64_t ns = 0;
        check(loch_event_elapsed(start.get(), this->need(), &ns));
        return ns;
    }
};

} // namespace detail

/** An event: a mark in a stream. Can be moved but not copied. */
class event : public detail::event_calls<detail::owned<loch_event>>
{
  public:
    /** Makes an empty handle. */
    event() noexcept = default;
    /** Creates an event on a device. LOCH_EVENT_TIMED measures time. */
    explicit event(const device &of, loch_event_kind kind = LOCH_EVENT_PLAIN)
    {
        check(loch_event_create(of.get(), kind, slot()));
    }
    event(event &&) noexcept = default;
    event &operator=(event &&) noexcept = default;
    /** Takes over an event of the caller. */
    static event take(loch_event *raw) noexcept { return event(raw); }

  private:
    explicit event(loch_event *raw) noexcept : event_calls(raw) {}
};

/** An event that belongs to another owner, as an argument and from a stream pool. */
using event_ref = detail::event_calls<detail::borrowed<loch_event>>;

} // namespace loch

#endif
