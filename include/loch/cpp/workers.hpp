/* SPDX-License-Identifier: MIT */
/** @file workers.hpp
 *  Workers: threads that run tasks from a queue. A task is any callable; its result and its exception come back to the
 *  thread that waits for it.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_WORKERS_HPP)
#define LOCH_CPP_WORKERS_HPP

#include <loch/cpp/object.hpp>
#include <loch/workers.h>

#include <exception>
#include <memory>
#include <optional>

namespace loch
{

namespace detail
{

template <> struct calls<loch_workers> {
    static constexpr const char *name = "workers";
    static void release(loch_workers *raw) noexcept { ignore(loch_workers_close(raw, LOCH_WORKERS_DRAIN, nullptr)); }
};
template <> struct calls<loch_task> {
    static constexpr const char *name = "job";
};

/* A callable with what becomes of it. The status for the C side is never E_INVALID, by which loch_task_wait refuses. */
template <class Function> struct job_state {
    using result = std::invoke_result_t<Function &>;

    explicit job_state(Function &&callable) : function(std::move(callable)) {}
    static loch_status run(void *user) noexcept
    {
        auto *const self = static_cast<job_state *>(user);
        try {
            if constexpr (std::is_void_v<result>)
                self->function();
            else
                self->value.emplace(self->function());
            return LOCH_OK;
        } catch (...) {
            self->thrown = std::current_exception();
            return LOCH_E_CANCELLED;
        }
    }
    /* Returns the result after a wait, or throws. */
    result take(loch_status status)
    {
        if (thrown) std::rethrow_exception(std::move(thrown));
        check(status);
        if constexpr (!std::is_void_v<result>) return std::move(*value);
    }

    Function function;
    std::optional<std::conditional_t<std::is_void_v<result>, char, result>> value;
    std::exception_ptr thrown;
};

} // namespace detail

/** A task that was started by loch::workers: wait for its result, or cancel it. The destructor waits too, so what the
 *  callable refers to may live in the same block. Can be moved but not copied. */
template <class Function> class [[nodiscard]] job
{
    using state = detail::job_state<Function>;

  public:
    /** Type of the result. */
    using result = typename state::result;

    /** Queues a task. */
    job(loch_workers *workers, Function function) : state_(std::make_unique<state>(std::move(function)))
    {
        check(loch_workers_run(workers, &state::run, state_.get(), &task_));
    }
    /** Takes over the task of another handle, which is empty then. */
    job(job &&other) noexcept : state_(std::move(other.state_)), task_(std::exchange(other.task_, nullptr)) {}
    /** Waits for the task, and takes over that of another handle, which is empty then. */
    job &operator=(job &&other) noexcept
    {
        job taken(std::move(other));
        std::swap(state_, taken.state_);
        std::swap(task_, taken.task_);
        return *this;
    }
    job(const job &) = delete;
    job &operator=(const job &) = delete;
    /** Waits until the task has ended. Its result is lost. */
    ~job()
    {
        if (!task_ || loch_task_wait(task_) != LOCH_E_INVALID) return;
        loch_task_release(task_); /* the wait would never end: the task runs later, and needs its state then */
        static_cast<void>(state_.release());
    }

    /** Waits until the task has ended, and returns its result, or throws its exception. LOCH_E_CANCELLED: it was
     *  cancelled. LOCH_E_INVALID: the wait would never end; the handle keeps the task. Otherwise the handle is empty
     *  then. */
    result get()
    {
        const loch_status status = loch_task_wait(detail::need(task_));
        if (status == LOCH_E_INVALID) check(status);
        task_ = nullptr;
        const std::unique_ptr<state> ended = std::move(state_);
        return ended->take(status);
    }
    /** Tells whether the task has ended in any way. Returns immediately. */
    bool has_ended() const { return detail::has_ended(loch_task_query(detail::need(task_))); }
    /** Cancels the task if it does not run yet, and tells whether that was so. */
    bool cancel() const { return detail::has_ended(loch_task_cancel(detail::need(task_))); }
    /** Tells whether the handle holds a task. */
    explicit operator bool() const noexcept { return task_ != nullptr; }

  private:
    std::unique_ptr<state> state_;
    loch_task *task_ = nullptr;
};

namespace detail
{

/* The methods of workers, owned or of an engine. */
template <class Handle> class workers_calls : public Handle
{
  public:
    workers_calls() noexcept = default;
    explicit workers_calls(loch_workers *raw) noexcept : Handle(raw) {}

    /** Queues a callable as a task. The result waits for it: `auto sum = workers.start([&] { return add(a); });
     *  sum.get()`. */
    template <class Function> job<std::decay_t<Function>> start(Function &&function) const
    {
        return {this->need(), std::decay_t<Function>(std::forward<Function>(function))};
    }
    /** Queues a callable, waits for it, and returns its result or throws its exception. */
    template <class Function> std::invoke_result_t<std::decay_t<Function> &> run_wait(Function &&function) const
    {
        job_state<std::decay_t<Function>> state(std::decay_t<Function>(std::forward<Function>(function)));
        const loch_status status = loch_workers_run_wait(this->need(), &job_state<std::decay_t<Function>>::run, &state);
        return state.take(status);
    }
    /** Queues a task that is not waited for. `user` must stay valid until it has run; wait() throws its failure. The
     *  function must not throw. */
    void run(loch_task_function *function, void *user) const
    {
        check(loch_workers_run(this->need(), function, user, nullptr));
    }
    /** Waits until all tasks queued before this call, and all tasks that they queued, have ended. Throws the first
     *  failure of the tasks that are not waited for; `failed` receives their number. */
    void wait(std::size_t *failed = nullptr) const { check(loch_workers_wait(this->need(), failed)); }
    /** Cancels all tasks that do not run yet. Returns their number. */
    std::size_t cancel() const { return loch_workers_cancel(this->need()); }
    /** Returns the number of threads. */
    std::size_t threads() const { return loch_workers_get_threads(this->need()); }
    /** Returns the index of the calling thread among the threads of the workers; SIZE_MAX if it is not one of them. */
    std::size_t current() const { return loch_workers_get_current(this->need()); }
};

} // namespace detail

/** Threads with one queue. The destructor lets queued tasks run, and joins the threads. Can be moved but not copied. */
class workers : public detail::workers_calls<detail::owned<loch_workers>>
{
  public:
    /** Makes an empty handle. */
    workers() noexcept = default;
    /** Starts threads as the options say. */
    explicit workers(const options<loch_workers_options> &how) { check(loch_workers_open(how.get(), slot())); }
    /** Starts a number of threads. */
    explicit workers(std::size_t threads)
    {
        auto how = sized<loch_workers_options>();
        how.threads = threads;
        check(loch_workers_open(&how, slot()));
    }
    workers(workers &&) noexcept = default;
    workers &operator=(workers &&) noexcept = default;

    /** Ends the threads and joins them. Returns the number of tasks that did not run. Throws the first failure of the
     *  tasks that are not waited for; the handle is empty then too. LOCH_E_INVALID, nothing changed: called from one of
     *  the threads. */
    std::size_t close(loch_workers_closing how = LOCH_WORKERS_DRAIN)
    {
        if (current() != SIZE_MAX) fail(LOCH_E_INVALID, "a thread of the workers cannot close them");
        std::size_t cancelled = 0;
        check(loch_workers_close(release(), how, &cancelled));
        return cancelled;
    }
};

/** The workers of an engine: borrowed. */
using workers_ref = detail::workers_calls<detail::borrowed<loch_workers>>;

} // namespace loch

#endif
