/* SPDX-License-Identifier: MIT */
/** @file virtual.hpp
 *  Virtual memory: reservations of addresses, handles of physical memory, and mappings, each with one owner.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_VIRTUAL_HPP)
#define LOCH_CPP_VIRTUAL_HPP

#include <loch/cpp/device.hpp>
#include <loch/virtual.h>

#include <array>
#include <vector>

namespace loch
{

namespace detail
{

template <> struct calls<loch_handle> {
    static constexpr const char *name = "handle";
    static void release(loch_handle *raw) noexcept { loch_handle_destroy(raw); }
};

/* An address that is given back at the end by a function of the C interface. */
template <loch_status (*give_back)(void *)> class owned_address
{
  public:
    /** Returns the address; NULL for an empty handle. */
    void *get() const noexcept { return address_; }
    /** Returns the address `offset` bytes behind the start. Not checked. */
    void *at(std::size_t offset) const noexcept { return static_cast<char *>(address_) + offset; }
    /** Tells whether the handle holds an address. */
    explicit operator bool() const noexcept { return address_ != nullptr; }
    /** Gives the address back now. The handle is empty then; on failure it keeps the address. */
    void reset()
    {
        check(give_back(address_));
        address_ = nullptr;
    }
    /** Gives the address to the caller. The handle is empty then. */
    [[nodiscard]] void *release() noexcept { return std::exchange(address_, nullptr); }

  protected:
    owned_address() noexcept = default;
    owned_address(owned_address &&other) noexcept : address_(other.release()) {}
    owned_address &operator=(owned_address &&other) noexcept
    {
        void *const taken = other.release(); /* `other` may be this object */
        if (address_) ignore(give_back(address_));
        address_ = taken;
        return *this;
    }
    owned_address(const owned_address &) = delete;
    owned_address &operator=(const owned_address &) = delete;
    ~owned_address()
    {
        if (address_) ignore(give_back(address_));
    }

    void *address_ = nullptr;
};

} // namespace detail

/** A handle: physical memory of a device. Its memory goes back when no mapping of it is left. Can be moved but not
 *  copied. */
class handle : public detail::owned<loch_handle>
{
  public:
    /** Makes an empty handle. */
    handle() noexcept = default;
    /** Allocates physical memory: a multiple of the granule. */
    handle(const device &of, std::size_t bytes, const options<loch_handle_options> &how = nullptr)
    {
        check(loch_handle_create(of.get(), bytes, how.get(), slot()));
    }
    handle(handle &&) noexcept = default;
    handle &operator=(handle &&) noexcept = default;

    /** Returns the size in bytes. */
    std::size_t bytes() const { return loch_handle_get_bytes(need()); }
    /** Returns a file descriptor with which another process imports the handle. The caller closes it. */
    int export_fd() const
    {
        int fd = -1;
        check(loch_handle_export(need(), LOCH_SHARE_FD, sizeof fd, &fd));
        return fd;
    }
    /** Returns the data with which another host imports the handle over a fabric. */
    std::array<unsigned char, LOCH_SHARE_BYTES_MAX> export_fabric() const
    {
        std::array<unsigned char, LOCH_SHARE_BYTES_MAX> data{};
        check(loch_handle_export(need(), LOCH_SHARE_FABRIC, data.size(), data.data()));
        return data;
    }
    /** Makes a handle from a file descriptor of another process. The caller keeps the descriptor. */
    static handle import_fd(const device &of, int fd, std::size_t bytes)
    {
        handle made;
        check(loch_handle_import(of.get(), LOCH_SHARE_FD, &fd, bytes, made.slot()));
        return made;
    }
    /** Makes a handle from data of another host. */
    static handle import_fabric(const device &of, const std::array<unsigned char, LOCH_SHARE_BYTES_MAX> &data,
                                std::size_t bytes)
    {
        handle made;
        check(loch_handle_import(of.get(), LOCH_SHARE_FABRIC, data.data(), bytes, made.slot()));
        return made;
    }
};

/** Reserved addresses without memory. Mappings in it must end before it. Can be moved but not copied. */
class reservation : public detail::owned_address<loch_virtual_unreserve>
{
  public:
    /** Makes an empty handle. */
    reservation() noexcept = default;
    /** Reserves addresses: a multiple of the granule. */
    reservation(const device &of, std::size_t bytes, std::size_t alignment = 0)
    {
        check(loch_virtual_reserve(of.get(), bytes, alignment, &address_));
    }
};

/** A handle that is mapped at an address. The destructor removes the mapping; it does not wait for streams. Can be
 *  moved but not copied. */
class mapped : public detail::owned_address<loch_virtual_unmap>
{
  public:
    /** Makes an empty handle. */
    mapped() noexcept = default;
    /** Maps a handle at reserved addresses, readable and writable for its device and for peers. */
    mapped(void *address, const handle &memory, const std::vector<device> &peers = {})
    {
        std::vector<loch_device *> raw;
        raw.reserve(peers.size());
        for (const device &peer : peers)
            raw.push_back(peer.need());
        check(loch_virtual_map(address, memory.get(), raw.data(), raw.size()));
        address_ = address;
    }
};

/** Finds the mapping around an address, of a pool's memory too. */
inline loch_virtual_info find_mapping(const void *address)
{
    auto found = sized<loch_virtual_info>();
    check(loch_virtual_find(address, &found));
    return found;
}

} // namespace loch

#endif
