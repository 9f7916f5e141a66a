/* SPDX-License-Identifier: MIT */
/** @file allocator.hpp
 *  Allocators: a shared handle of a loch_allocator, whatever its kind; a block that is freed at the end; pressure
 *  functions.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_ALLOCATOR_HPP)
#define LOCH_CPP_ALLOCATOR_HPP

#include <loch/allocator.h>
#include <loch/cpp/stats.hpp>
#include <loch/cpp/stream.hpp>
#include <loch/cpp/tag.hpp>
#include <loch/registry.h>

namespace loch
{

namespace detail
{
template <> struct calls<loch_allocator> {
    static constexpr const char *name = "allocator";
    static loch_allocator *retain(loch_allocator *raw) noexcept { return loch_allocator_retain(raw); }
    static void release(loch_allocator *raw) noexcept { loch_allocator_release(raw); }
};
} // namespace detail

/** Combines two sets of attributes. Throws LOCH_E_INVALID if both have a scope and the scopes differ. */
inline loch_attributes merge(loch_attributes a, loch_attributes b)
{
    loch_attributes merged{};
    check(loch_attributes_merge(a, b, &merged));
    return merged;
}

/** An allocator: a shared handle of a loch_allocator. A copy is another reference on the same allocator. */
class allocator : public detail::shared<loch_allocator>
{
  public:
    /** Makes an empty handle. */
    allocator() noexcept = default;
    /** Acquires the default allocator of a device. */
    explicit allocator(const device &of) { check(loch_device_acquire_default(of.get(), slot())); }
    /** Acquires the allocator of a device for given attributes. */
    allocator(const device &of, loch_attributes attributes, loch_fallback fallback = LOCH_FALLBACK_NONE)
    {
        check(loch_device_acquire_allocator(of.get(), attributes, fallback, slot()));
    }
    /** Creates an allocator from a table of functions. The slot `destroy` frees `self`; on failure `self` still belongs
     *  to the caller. The functions must not throw. */
    allocator(const device &of, const text &name, const loch_allocator_ops &ops, void *self)
    {
        check(loch_allocator_create(of.get(), name.get(), &ops, self, slot()));
    }
    /** Takes another reference on an allocator of the caller. */
    static allocator retain(loch_allocator *raw) noexcept { return allocator(loch_allocator_retain(raw)); }
    /** Takes over the caller's reference. */
    static allocator take(loch_allocator *raw) noexcept { return allocator(raw); }

    /** @name Blocks */
    /** @{ */
    /** Allocates a block. The caller frees it by free(); loch::block does so by itself. */
    [[nodiscard]] void *alloc(std::size_t bytes) const
    {
        void *made = nullptr;
        check(loch_alloc(need(), bytes, &made));
        return made;
    }
    /** Allocates a block as a request says; its size member is set if it is 0. The caller frees it by free(). */
    [[nodiscard]] void *alloc(const loch_request &request) const
    {
        void *made = nullptr;
        check(loch_allocator_alloc(need(), options<loch_request>(request).get(), &made));
        return made;
    }
    /** Allocates `count` elements of `bytes` each. The caller frees them by free(). */
    [[nodiscard]] void *alloc_array(std::size_t count, std::size_t bytes,
                                    const options<loch_request> &request = nullptr) const
    {
        void *made = nullptr;
        check(loch_alloc_array(need(), count, bytes, request.get(), &made));
        return made;
    }
    /** Frees a block, ordered on the stream of its allocation. */
    void free(void *address) const { check(loch_free(need(), address)); }
    /** Frees a block without throwing. */
    loch_status try_free(void *address) const noexcept { return loch_free(get(), address); }
    /** Frees a block, ordered on a stream; nullptr for the default stream. */
    void free_on(void *address, stream_ref on) const { check(loch_allocator_free_on(need(), address, on.get())); }
    /** Frees a block and checks its size. */
    void free_sized(void *address, std::size_t bytes) const
    {
        check(loch_allocator_free_sized(need(), address, bytes));
    }
    /** Changes the size of a block, in place or by a copy, and returns its address. */
    [[nodiscard]] void *realloc(void *address, std::size_t bytes, stream_ref on = nullptr) const
    {
        void *made = nullptr;
        check(loch_allocator_realloc(need(), address, bytes, on.get(), &made));
        return made;
    }
    /** Records that a stream also uses a block: its free is ordered after that work too. */
    void record_use(void *address, stream_ref on) const { check(loch_allocator_record_use(need(), address, on.get())); }
    /** Reads what is known of the live block that starts at `address`. */
    loch_block find(const void *address) const
    {
        auto found = sized<loch_block>();
        check(loch_allocator_find(need(), address, &found));
        return found;
    }
    /** Calls `visitor(const loch_block &)` for each live block. The visitor must not call the allocator. */
    template <class Visitor> void walk(Visitor &&visitor) const
    {
        detail::walk<const loch_block *>(
            [&](const loch_block *block) { return visitor(*block); },
            [&](auto *function, void *user) { return loch_allocator_walk(need(), function, user); });
    }
    /** @} */

    /** @name Properties and statistics */
    /** @{ */
    /** Returns the name of the allocator. Borrowed. */
    const char *name() const { return loch_allocator_get_name(need()); }
    /** Returns the device of the allocator. */
    loch::device device() const { return loch::device::retain(loch_allocator_get_device(need())); }
    /** Returns the allocator that a wrapper wraps; an empty handle for an allocator that is not a wrapper. */
    allocator wrapped() const { return retain(loch_allocator_get_wrapped(need())); }
    /** Returns the set of loch_trait of the allocator. */
    std::uint32_t traits() const { return loch_allocator_get_traits(need()); }
    /** Returns the attributes of the memory that the allocator hands out. */
    loch_attributes attributes() const { return loch_allocator_get_attributes(need()); }
    /** Tells whether the host may read and write the memory that the allocator hands out. */
    bool is_on_host() const
    {
        return loch_attributes_has(attributes(), LOCH_ATTRIBUTE_ON_HOST) ||
               loch_device_can(loch_allocator_get_device(need()), LOCH_CAN_HOST_ACCESS);
    }
    /** Returns the statistics of the allocator. */
    loch_stats stats() const
    {
        auto found = sized<loch_stats>();
        check(loch_allocator_get_stats(need(), &found));
        return found;
    }
    /** Returns the statistics of the blocks with one tag. */
    loch_stats stats(tag of) const
    {
        auto found = sized<loch_stats>();
        check(loch_allocator_get_tag_stats(need(), of, &found));
        return found;
    }
    /** Sets peaks to the present use, and all counts to 0. */
    void reset_stats() const { check(loch_allocator_reset_stats(need())); }
    /** Gives cached memory back until at most `keep_bytes` are cached. Returns the number of bytes given back. */
    std::size_t trim(std::size_t keep_bytes = 0) const
    {
        std::size_t released = 0;
        check(loch_allocator_trim(need(), keep_bytes, &released));
        return released;
    }
    /** Turns the measuring of sizes and durations on or off, and sets the histograms to zero. */
    void measure(loch_measure measure) const { check(loch_allocator_measure(need(), measure)); }
    /** Returns the histograms of the calls while the allocator was measured. */
    loch_measurements measurements() const
    {
        auto found = sized<loch_measurements>();
        check(loch_allocator_get_measurements(need(), &found));
        return found;
    }
    /** @} */

  protected:
    explicit allocator(loch_allocator *raw) noexcept : shared(raw) {}
};

/** Frees a block by its address alone, through the allocator that handed it out. Searches all allocators. */
inline void free_address(void *address)
{
    check(loch_address_free(address));
}

/** A block of an allocator that is freed at the end, ordered on the stream of its allocation. Can be moved but not
 *  copied. Keeps its allocator. */
class block
{
  public:
    /** Makes an empty handle. */
    block() noexcept = default;
    /** Allocates a block. */
    block(loch::allocator from, std::size_t bytes) : allocator_(std::move(from)), address_(allocator_.alloc(bytes)) {}
    /** Allocates a block as a request says. */
    block(loch::allocator from, const loch_request &request)
        : allocator_(std::move(from)), address_(allocator_.alloc(request))
    {
    }
    /** Takes over a block of the caller. */
    static block take(loch::allocator from, void *address) noexcept
    {
        block made;
        made.allocator_ = std::move(from);
        made.address_ = address;
        return made;
    }
    /** Takes over the block of another handle, which is empty then. */
    block(block &&other) noexcept : allocator_(std::move(other.allocator_)), address_(other.release()) {}
    /** Frees the block and takes over that of another handle, which is empty then. */
    block &operator=(block &&other) noexcept
    {
        block taken(std::move(other));
        std::swap(allocator_, taken.allocator_);
        std::swap(address_, taken.address_);
        return *this;
    }
    block(const block &) = delete;
    block &operator=(const block &) = delete;
    /** Frees the block. A failure is not reported; call free() to see it. */
    ~block()
    {
        if (address_) detail::ignore(allocator_.try_free(address_));
    }

    /** Returns the address of the block; NULL for an empty handle. */
    void *get() const noexcept { return address_; }
    /** Tells whether the handle holds a block. */
    explicit operator bool() const noexcept { return address_ != nullptr; }
    /** Returns the requested size in bytes; 0 for an empty handle. */
    std::size_t bytes() const { return address_ ? allocator_.find(address_).requested_bytes : 0; }
    /** Returns the allocator of the block. */
    const loch::allocator &allocator() const noexcept { return allocator_; }
    /** Frees the block now. It is gone even if a red zone was overwritten (LOCH_E_CORRUPT). After any other failure the
     *  handle keeps the block. */
    void free() { freed(allocator_ ? allocator_.try_free(address_) : LOCH_OK); }
    /** Frees the block now, ordered on a stream that the caller has ordered after every use. */
    void free_on(stream_ref on)
    {
        freed(allocator_ ? loch_allocator_free_on(allocator_.get(), address_, on.get()) : LOCH_OK);
    }
    /** Changes the size of the block. The address may change. */
    void resize(std::size_t bytes, stream_ref on = nullptr) { address_ = allocator_.realloc(address_, bytes, on); }
    /** Records that a stream also uses the block. */
    void record_use(stream_ref on) const { allocator_.record_use(address_, on); }
    /** Gives the block to the caller, which frees it. The handle is empty then. */
    [[nodiscard]] void *release() noexcept { return std::exchange(address_, nullptr); }

  private:
    void freed(loch_status status)
    {
        if (status == LOCH_OK || status == LOCH_E_CORRUPT) address_ = nullptr;
        check(status);
    }

    loch::allocator allocator_;
    void *address_ = nullptr;
};

/** Returns how long the request may still wait that the calling pressure function runs for, in nanoseconds; UINT64_MAX
 *  without a timeout. */
inline std::uint64_t pressure_left_ns() noexcept
{
    return loch_pressure_get_left_ns();
}

/** A pressure function of an allocator, in force as long as this object: `function(loch_allocator *, size_t bytes)`
 *  returns the number of bytes that it freed. It must not throw. Not moved: the allocator knows its address. */
template <class Function> class [[nodiscard]] pressure : detail::fixed
{
  public:
    /** Adds a function to an allocator. */
    pressure(const loch::allocator &of, Function function) : allocator_(of), function_(std::move(function))
    {
        check(loch_allocator_add_pressure(allocator_.need(), &pressure::call, this));
    }
    /** Removes the function, after waiting until no thread is inside it. */
    ~pressure() { detail::ignore(loch_allocator_remove_pressure(allocator_.get(), &pressure::call, this)); }

  private:
    /* An exception cannot pass through C: it ends the program. NOLINTNEXTLINE(bugprone-exception-escape) */
    static std::size_t call(loch_allocator *of, std::size_t bytes, void *user) noexcept
    {
        return static_cast<pressure *>(user)->function_(of, bytes);
    }

    loch::allocator allocator_;
    Function function_;
};

} // namespace loch

#endif
