/* SPDX-License-Identifier: MIT */
/** @file error.hpp
 *  Failures as exceptions: loch::error with the status and the sentence, and the functions that throw it.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_ERROR_HPP)
#define LOCH_CPP_ERROR_HPP

#include <loch/status.h>

#include <cstdint>
#include <exception>

namespace loch
{

/** A failed call as an exception: the status and the sentence of the thread's error record. */
class error : public std::exception
{
  public:
    /** Makes an exception from a copy of an error record. */
    explicit error(const loch_error &record) noexcept : record_(record) {}

    /** Returns the status of the call. */
    loch_status status() const noexcept { return record_.status; }
    /** Returns the name of the status: "E_LIMIT". Static string. */
    const char *name() const noexcept { return loch_status_name(record_.status); }
    /** Returns the sentence of the failure, or the general text of the status if there is none. Valid as long as the
     *  exception. */
    const char *what() const noexcept override
    {
        return record_.sentence[0] ? record_.sentence : loch_status_text(record_.status);
    }
    /** Returns the name of the driver ("cuda"); "" if no driver was involved. */
    const char *driver() const noexcept { return record_.driver ? record_.driver : ""; }
    /** Returns the error code of the driver; 0 for none. */
    long driver_code() const noexcept { return record_.driver_code; }
    /** Returns the name of the pool or limit that is full, or of the device without memory; "" if memory was not
     *  short. Valid as long as the exception. */
    const char *owner() const noexcept { return record_.owner; }
    /** Returns the bytes that the owner lacks for the request; 0 if memory was not short, or not in one piece. */
    std::uint64_t missing_bytes() const noexcept { return record_.missing_bytes; }
    /** Returns what can help if memory was short. */
    loch_remedy remedy() const noexcept { return record_.remedy; }
    /** Returns the number of attempts of a request that failed because memory was short. */
    std::uint32_t attempts() const noexcept { return record_.attempts; }
    /** Writes the failure to the error record of the calling thread, and returns its status. For functions that C
     *  code calls: a visitor, a slot of an allocator. */
    loch_status restore() const noexcept
    {
        return loch_error_set(record_.status, record_.driver, record_.driver_code, "%s", what());
    }

  private:
    loch_error record_;
};

/** Throws a loch::error with the calling thread's error record, unless `status` is LOCH_OK. */
inline void check(loch_status status)
{
    if (status == LOCH_OK) return;
    loch_error record = *loch_error_get();
    if (record.status != status) { /* the status does not belong to the record */
        record = loch_error{};
        record.status = status;
    }
    throw error(record);
}

/** Throws a loch::error with a status and a sentence. */
[[noreturn]] inline void fail(loch_status status, const char *sentence)
{
    check(loch_error_set(status, nullptr, 0, "%s", sentence));
    throw error(*loch_error_get()); /* the status was LOCH_OK */
}

/** Returns a copy of the error record of the calling thread. */
inline loch_error last_error() noexcept
{
    return *loch_error_get();
}
/** Clears the error record of the calling thread. */
inline void clear_error() noexcept
{
    loch_error_clear();
}
/** Returns the version of the library that is running: "0.3.0". Static string. */
inline const char *version() noexcept
{
    return loch_version();
}

namespace detail
{

/* Drops a status on purpose: destructors cannot report a failure. The error record of the thread has it. */
inline void ignore(loch_status) noexcept
{
}

/* Tells whether something has ended from a status that says E_BUSY for "not yet". */
inline bool has_ended(loch_status status)
{
    if (status != LOCH_E_BUSY) check(status);
    return status == LOCH_OK;
}

} // namespace detail

} // namespace loch

#endif
