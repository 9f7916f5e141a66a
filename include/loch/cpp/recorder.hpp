/* SPDX-License-Identifier: MIT */
/** @file recorder.hpp
 *  Recordings of what a program does with its memory, and snapshots of what it holds.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_RECORDER_HPP)
#define LOCH_CPP_RECORDER_HPP

#include <loch/cpp/argument.hpp>
#include <loch/recorder.h>
#include <loch/snapshot.h>

namespace loch
{

/** A recording to the end of the block, or until stop(). There is one at a time in a process. */
class [[nodiscard]] recording : detail::fixed
{
  public:
    /** Starts recording to a ring in memory, for save(). */
    recording() { start(nullptr); }
    /** Starts recording as the options say: to a file, or to a ring. */
    explicit recording(const options<loch_recorder_options> &how) { start(how.get()); }
    /** Starts recording to a file. */
    explicit recording(const text &path)
    {
        auto how = sized<loch_recorder_options>();
        how.path = path.get();
        start(&how);
    }
    /** Stops recording. A failure is not reported; call stop() to see it. */
    ~recording()
    {
        if (is_running_) detail::ignore(loch_recorder_stop());
    }

    /** Stops recording now: completes the file, or frees the ring. The recording has ended even if events are missing
     *  (LOCH_E_IO). */
    void stop()
    {
        is_running_ = false;
        check(loch_recorder_stop());
    }
    /** Writes the events of the ring to a file, and goes on recording. */
    void save(const text &path) const { check(loch_recorder_save(path.get())); }

  private:
    void start(const loch_recorder_options *how)
    {
        check(loch_recorder_start(how));
        is_running_ = true;
    }

    bool is_running_ = false;
};

/** Writes a snapshot of all allocators of the process to a file, as JSON. */
inline void save_snapshot(const text &path)
{
    check(loch_snapshot_save(path.get()));
}

} // namespace loch

#endif
