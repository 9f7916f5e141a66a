/* SPDX-License-Identifier: MIT */
/** @file context.hpp
 *  Contexts: what one thread works with on an engine. Guards restore a setting at the end of their block.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_CONTEXT_HPP)
#define LOCH_CPP_CONTEXT_HPP

#include <loch/context.h>
#include <loch/cpp/engine.hpp>
#include <loch/cpp/pool.hpp>
#include <loch/cpp/tensor.hpp>

namespace loch
{

namespace detail
{
template <> struct calls<loch_context> {
    static constexpr const char *name = "context";
    static void release(loch_context *raw) noexcept { ignore(loch_context_close(raw)); }
};
template <> struct calls<loch_parameter> {
    static constexpr const char *name = "parameter";
    static loch_parameter *retain(loch_parameter *raw) noexcept { return loch_parameter_retain(raw); }
    static void release(loch_parameter *raw) noexcept { loch_parameter_release(raw); }
};
} // namespace detail

/** A guard of a context: restores what it changed at the end of the block. Guards nest. Not copied, not moved. */
class [[nodiscard]] guard : detail::fixed
{
  public:
    /** Ends the guard, and all guards begun after it. */
    ~guard() { loch_guard_end(&guard_); }
    /** Ends the guard now. */
    void end() noexcept
    {
        loch_guard_end(&guard_);
        guard_ = loch_guard{};
    }

  private:
    friend class context; /* begins guards */
    template <class Begin> explicit guard(const Begin &begin) { check(begin(&guard_)); }

    loch_guard guard_{};
};

/** A child pool on top of the stack of a context's current seat, popped at the end of the block. Not copied, not
 *  moved. */
class [[nodiscard]] pushed_pool : detail::fixed
{
  public:
    /** Creates a child and pushes it. */
    pushed_pool(loch_context *context, const text &name, const options<loch_child_options> &how)
        : context_(context), seat_(loch_context_get_seat(context))
    {
        loch_allocator *child = nullptr;
        check(loch_context_push_pool(context, name.get(), how.get(), &child));
        pool_ = loch::pool::retain(child);
    }
    /** Pops the pool off the stack of the seat that was current at the push. Its blocks stay valid. */
    ~pushed_pool()
    {
        const loch_seat now = loch_context_get_seat(context_);
        detail::ignore(loch_context_set_seat(context_, seat_));
        detail::ignore(loch_context_pop_pool(context_));
        detail::ignore(loch_context_set_seat(context_, now));
    }
    /** Returns the child. With direct memory it is a limit wrapper or the direct allocator. */
    const loch::pool &pool() const noexcept { return pool_; }

  private:
    loch_context *context_;
    loch_seat seat_;
    loch::pool pool_;
};

/** A parameter: declared without memory, loaded later. A shared handle. */
class parameter : public detail::shared<loch_parameter>
{
  public:
    /** Makes an empty handle. */
    parameter() noexcept = default;
    /** Takes another reference on a parameter of the caller. */
    static parameter retain(loch_parameter *raw) noexcept { return parameter(loch_parameter_retain(raw)); }
    /** Takes over the caller's reference. */
    static parameter take(loch_parameter *raw) noexcept { return parameter(raw); }

    /** Returns the tensor of the parameter on a seat: all of it or its part. LOCH_E_BUSY: it is not completely
     *  loaded. */
    loch::tensor tensor(loch_seat seat) const
    {
        loch_tensor *found = nullptr;
        check(loch_parameter_acquire_tensor(need(), seat, &found));
        return loch::tensor::take(found);
    }
    /** Returns the name of the parameter. Borrowed. */
    const char *name() const { return loch_parameter_get_name(need()); }

  private:
    explicit parameter(loch_parameter *raw) noexcept : shared(raw) {}
};

/** A context on an engine, for the thread that opened it. Close it on that thread, before the engine. Can be moved but
 *  not copied. */
class context : public detail::owned<loch_context>
{
  public:
    /** Makes an empty handle. */
    context() noexcept = default;
    /** Opens a context on an engine for the calling thread. */
    template <class Handle>
    explicit context(const detail::engine_calls<Handle> &on, const options<loch_context_options> &how = nullptr)
    {
        check(loch_context_open(on.get(), how.get(), slot()));
    }
    context(context &&) noexcept = default;
    context &operator=(context &&) noexcept = default;

    /** Closes the context. The handle is empty then. LOCH_E_WRONG_THREAD, nothing changed: called from another
     *  thread. */
    void close()
    {
        check(loch_context_close(need()));
        static_cast<void>(release());
    }

    /** @name Current seat and stream */
    /** @{ */
    /** Returns the engine of the context. Borrowed. */
    engine_ref engine() const { return engine_ref(loch_context_get_engine(need())); }
    /** Returns the current seat. */
    loch_seat seat() const { return loch_context_get_seat(need()); }
    /** Returns the device of the current seat. */
    loch::device device() const { return loch::device::retain(loch_context_get_device(need())); }
    /** Returns the current stream of the current seat, created on first use. */
    loch::stream stream() const
    {
        loch_stream *found = nullptr;
        check(loch_context_require_stream(need(), &found));
        return loch::stream::retain(found);
    }
    /** Sets the current seat. */
    void set_seat(loch_seat seat) const { check(loch_context_set_seat(need(), seat)); }
    /** Sets the current stream of the current seat; nullptr for the context's own. Borrowed. */
    void set_stream(stream_ref stream) const { check(loch_context_set_stream(need(), stream.get())); }
    /** Returns the cuBLAS handle of the current seat, set to the current stream. Borrowed. */
    cublas_ref require_cublas() const
    {
        loch_cublas *made = nullptr;
        check(loch_context_require_cublas(need(), &made));
        return cublas_ref(made);
    }
    /** @} */

    /** @name Guards, to the end of the block */
    /** @{ */
    /** Sets the current seat and makes its device current in the calling thread. */
    guard begin_seat(loch_seat seat, loch_seat_use use = LOCH_SEAT_PLAIN) const
    {
        return guard([&](loch_guard *out) { return loch_context_begin_seat(need(), seat, use, out); });
    }
    /** Sets the current stream of the current seat; nullptr for the context's own. Borrowed. */
    guard begin_stream(stream_ref stream) const
    {
        return guard([&](loch_guard *out) { return loch_context_begin_stream(need(), stream.get(), out); });
    }
    /** Sets the debug level. */
    guard begin_debug(int level) const
    {
        return guard([&](loch_guard *out) { return loch_context_begin_debug(need(), level, out); });
    }
    /** Forbids moving in the pool that new tensors come from now. */
    guard begin_still() const
    {
        return guard([&](loch_guard *out) { return loch_context_begin_still(need(), out); });
    }
    /** Returns the debug level. */
    int debug() const { return loch_context_get_debug(need()); }
    /** Creates a child of the current seat's own pool and uses it for new tensors. */
    pushed_pool push_pool(const text &name = nullptr, const options<loch_child_options> &how = nullptr) const
    {
        return pushed_pool(need(), name, how);
    }
    /** @} */

    /** @name Tensors and memory */
    /** @{ */
    /** Creates a tensor on the current seat, ordered on the current stream. */
    tensor create_tensor(loch_dtype dtype, const sizes &shape, const text &name = nullptr, tag tag = {}) const
    {
        loch_tensor *made = nullptr;
        check(loch_context_create_tensor(need(), dtype, shape.size(), shape.data(), name.get(), tag, &made));
        return tensor::take(made);
    }
    /** Creates a tensor on the current seat and copies its elements from host memory, in row-major order. */
    template <class T>
    tensor create_from(const T *elements, const sizes &shape, const text &name = nullptr, tag tag = {}) const
    {
        loch_tensor *made = nullptr;
        check(loch_context_create_from(need(), dtype_of<T>(), shape.size(), shape.data(), elements, name.get(), tag,
                                       &made));
        return tensor::take(made);
    }
    /** Returns a tensor on the current device: the tensor itself, or a cached copy. */
    tensor acquire_copy(const tensor &of) const
    {
        loch_tensor *made = nullptr;
        check(loch_context_acquire_copy(need(), of.get(), &made));
        return tensor::take(made);
    }
    /** Returns the allocator of new tensors on the current seat. */
    loch::allocator allocator() const { return loch::allocator::retain(loch_context_get_allocator(need())); }
    /** Selects where new tensors of the current seat come from. */
    void use_pool(loch_context_pool pool) const { check(loch_context_use_pool(need(), pool)); }
    /** Returns the figures of the context. */
    loch_context_stats stats() const
    {
        auto found = sized<loch_context_stats>();
        check(loch_context_get_stats(need(), &found));
        return found;
    }
    /** @} */

    /** @name Parameters */
    /** @{ */
    /** Declares a parameter. No memory is allocated. */
    parameter declare(const text &name, loch_dtype dtype, const sizes &shape, loch_spread spread = LOCH_SPREAD_ONE,
                      int axis = 0, tag tag = {}) const
    {
        loch_parameter *made = nullptr;
        check(loch_context_declare(need(), name.get(), dtype, shape.size(), shape.data(), spread, axis, tag, &made));
        return parameter::take(made);
    }
    /** Loads a whole parameter from a host tensor of its shape, and waits on the host. */
    void load(const parameter &into, const tensor &from) const
    {
        check(loch_context_load(need(), into.get(), from.get()));
    }
    /** Loads the elements of a parameter from index `start` on along an axis, and waits on the host. */
    void load_part(const parameter &into, int axis, std::int64_t start, const tensor &from) const
    {
        check(loch_context_load_part(need(), into.get(), axis, start, from.get()));
    }
    /** @} */
};

} // namespace loch

#endif
