/* SPDX-License-Identifier: MIT */
/** @file walk.hpp
 *  Functions of C++ as visitors and callbacks of the C interface: any callable, and no exception passes through C.
 *
 *  A visitor returns nothing to go on, a bool that is false to end the walk, or a loch_status that ends it with a
 *  failure unless it is LOCH_OK. An exception ends the walk and comes out of the call.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_WALK_HPP)
#define LOCH_CPP_WALK_HPP

#include <loch/cpp/error.hpp>

#include <exception>
#include <type_traits>
#include <utility>

namespace loch
{

namespace detail
{

/* A callable during a call of the C interface. The C side sees E_CANCELLED for an exception and for an early end. */
template <class Function> class visiting
{
  public:
    explicit visiting(Function &function) noexcept : function_(function) {}

    /* Calls the function; its result as a status. */
    template <class... Arguments> loch_status step(Arguments &&...arguments) noexcept
    {
        using result = std::invoke_result_t<Function &, Arguments...>;
        try {
            if constexpr (std::is_void_v<result>) {
                function_(std::forward<Arguments>(arguments)...);
                return LOCH_OK;
            } else if constexpr (std::is_same_v<result, bool>) {
                if (function_(std::forward<Arguments>(arguments)...)) return LOCH_OK;
                has_ended_ = true;
                return LOCH_E_CANCELLED;
            } else {
                static_assert(std::is_same_v<result, loch_status>, "a visitor returns void, bool or loch_status");
                return function_(std::forward<Arguments>(arguments)...);
            }
        } catch (...) {
            thrown_ = std::current_exception();
            return LOCH_E_CANCELLED;
        }
    }
    /* Throws what the function threw, or the failure of the call. */
    void finish(loch_status status)
    {
        if (thrown_) std::rethrow_exception(std::move(thrown_));
        if (!has_ended_) check(status);
    }

  private:
    Function &function_;
    std::exception_ptr thrown_;
    bool has_ended_ = false;
};

/* The C function of a visitor with the arguments A... before `user`. */
template <class Function, class... A> struct visitor_of {
    static loch_status call(A... arguments, void *user)
    {
        return static_cast<visiting<Function> *>(user)->step(arguments...);
    }
};

/* Calls a walk of the C interface, whose visitor has the arguments A..., with a callable. */
template <class... A, class Function, class Walk> void walk(Function &&function, Walk &&call)
{
    visiting<std::remove_reference_t<Function>> state(function);
    state.finish(call(&visitor_of<std::remove_reference_t<Function>, A...>::call, static_cast<void *>(&state)));
}

} // namespace detail

} // namespace loch

#endif
