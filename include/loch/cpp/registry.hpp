/* SPDX-License-Identifier: MIT */
/** @file registry.hpp
 *  The registry: named allocators, factories, and the default allocators of devices.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_REGISTRY_HPP)
#define LOCH_CPP_REGISTRY_HPP

#include <loch/cpp/allocator.hpp>

namespace loch
{

/** The functions of the registry. All work from any thread. */
namespace registry
{

/** Registers an allocator under a name; nullptr for its own name. loch::registration removes it at the end. */
inline void add(const allocator &of, const text &name = nullptr, int priority = 0)
{
    check(loch_registry_add(of.get(), name.get(), priority));
}
/** Registers a factory under a name. `user` is borrowed until the entry is removed. The function must not throw. */
inline void add_factory(const text &name, loch_allocator_factory *factory, void *user, int priority = 0)
{
    check(loch_registry_add_factory(name.get(), priority, factory, user));
}
/** Removes an entry by name and priority. */
inline void remove(const text &name, int priority = 0)
{
    check(loch_registry_remove(name.get(), priority));
}
/** Acquires the allocator with a name and the highest priority, of any device. */
inline allocator acquire(const text &name)
{
    loch_allocator *found = nullptr;
    check(loch_registry_acquire(name.get(), nullptr, &found));
    return allocator::take(found);
}
/** Acquires the allocator with a name and the highest priority on a device. */
inline allocator acquire(const text &name, const device &on)
{
    loch_allocator *found = nullptr;
    check(loch_registry_acquire(name.get(), on.need(), &found));
    return allocator::take(found);
}
/** Acquires the allocator with the highest priority that matches a device and attributes. */
inline allocator acquire_best(const device &on, loch_attributes attributes = {})
{
    loch_allocator *found = nullptr;
    check(loch_registry_acquire_best(on.need(), attributes, &found));
    return allocator::take(found);
}
/** Sets the default allocator of a device; an empty handle restores the library's own. */
inline void set_default(const device &of, const allocator &chosen)
{
    check(loch_device_set_allocator(of.need(), chosen.get()));
}
/** Calls `visitor(const loch_registry_entry &)` for each entry, highest priority first. */
template <class Visitor> void walk(Visitor &&visitor)
{
    detail::walk<const loch_registry_entry *>([&](const loch_registry_entry *entry) { return visitor(*entry); },
                                              loch_registry_walk);
}
/** Empties the registry and releases every default allocator. Returns the number of live blocks in them. */
inline std::size_t clear()
{
    std::size_t leaks = 0;
    check(loch_registry_clear(nullptr, nullptr, &leaks));
    return leaks;
}
/** Empties the registry and releases every default allocator. Calls `visitor(const loch::allocator &, const loch_block
 *  &)` for each live block in them, and returns their number. Only name, kind and device of the allocator may be
 *  read. */
template <class Visitor> std::size_t clear(Visitor &&visitor)
{
    std::size_t leaks = 0;
    struct borrowing { /* the locks of the allocator are held: its count must not change */
        explicit borrowing(loch_allocator *raw) : of(allocator::take(raw)) {}
        borrowing(const borrowing &) = delete;
        borrowing &operator=(const borrowing &) = delete;
        ~borrowing() { static_cast<void>(of.release()); }
        allocator of;
    };
    detail::walk<loch_allocator *, const loch_block *>(
        [&](loch_allocator *of, const loch_block *block) {
            const borrowing held(of);
            return visitor(held.of, *block);
        },
        [&](auto *function, void *user) { return loch_registry_clear(function, user, &leaks); });
    return leaks;
}

} // namespace registry

/** An allocator that is registered under a name as long as this object. Not copied, not moved. */
class [[nodiscard]] registration : detail::fixed
{
  public:
    /** Registers an allocator; nullptr for its own name. */
    explicit registration(const allocator &of, const text &name = nullptr, int priority = 0)
        : name_(name.get() ? name.get() : of.name()), priority_(priority)
    {
        registry::add(of, name_, priority_);
    }
    /** Removes the entry, if it is still there. */
    ~registration() { detail::ignore(loch_registry_remove(name_.c_str(), priority_)); }

  private:
    std::string name_;
    int priority_;
};

} // namespace loch

#endif
