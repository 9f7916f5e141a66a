/* SPDX-License-Identifier: MIT */
/** @file raw.hpp
 *  Memory directly from a driver, host memory that is page-locked for a device, and what is known of an address.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_RAW_HPP)
#define LOCH_CPP_RAW_HPP

#include <loch/cpp/virtual.hpp>
#include <loch/raw.h>

namespace loch
{

/** A block from one driver call. The destructor frees it at once: no work may use it any more. Can be moved but not
 *  copied. */
class raw_block : public detail::owned_address<loch_raw_free>
{
  public:
    /** Makes an empty handle. */
    raw_block() noexcept = default;
    /** Allocates a block. */
    raw_block(const device &of, loch_memory_kind kind, std::size_t bytes, std::size_t alignment = 0)
    {
        check(loch_raw_alloc(of.get(), kind, bytes, alignment, &address_));
    }
};

/** Host memory of the caller that is page-locked for a device as long as this object. Can be moved but not copied. */
class registered_memory : public detail::owned_address<loch_raw_unregister>
{
  public:
    /** Makes an empty handle. */
    registered_memory() noexcept = default;
    /** Page-locks memory. */
    registered_memory(const device &with, void *address, std::size_t bytes)
    {
        check(loch_raw_register(with.get(), address, bytes));
        address_ = address;
    }
};

/** Finds out what memory an address belongs to. */
inline loch_address_info query_address(const void *address)
{
    auto found = sized<loch_address_info>();
    check(loch_address_query(address, &found));
    return found;
}

} // namespace loch

#endif
