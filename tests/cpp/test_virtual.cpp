// SPDX-License-Identifier: MIT
// Virtual memory, memory directly from drivers, observers, drivers.
#include "test.hpp"

#include <loch/cpp/copy.hpp>
#include <loch/cpp/driver.hpp>
#include <loch/cpp/observer.hpp>
#include <loch/cpp/raw.hpp>
#include <loch/cpp/virtual.hpp>

#include <unistd.h>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_owner<loch::handle> && test::is_owner<loch::reservation> && test::is_owner<loch::mapped>);
static_assert(test::is_owner<loch::raw_block> && test::is_owner<loch::registered_memory>);
static_assert(test::is_guard<loch::observer<void (*)(loch_range_event, const loch_range &)>>);

TEST(handles_are_mapped_at_reserved_addresses)
{
    test::on_devices([](const loch::device &device) {
        const std::size_t granule = device.properties().granule_bytes;
        loch::reservation reserved(device, 4 * granule);
        test::moves(reserved);
        loch::handle handle(device, granule);
        test::moves(handle);
        EXPECT(handle.bytes() == granule);
        {
            loch::mapped mapped(reserved.get(), handle);
            test::moves(mapped);
            loch::fill(mapped.get(), granule, 'x');
            EXPECT(loch::find_mapping(mapped.at(5)).start == reserved.get());
            EXPECT_THROWS(LOCH_E_EXISTS, loch::mapped(reserved.get(), loch::handle(device, granule)));
            EXPECT_THROWS(LOCH_E_BUSY, reserved.reset());
            EXPECT(reserved); // a failure keeps it
            char seen = 0;
            loch::copy(&seen, mapped.get(), 1);
            EXPECT(seen == 'x');
            mapped.reset();
            EXPECT(!mapped);
        }
        EXPECT_THROWS(LOCH_E_NOT_FOUND, loch::find_mapping(reserved.get()));
        reserved.reset();
        EXPECT(!reserved);
        reserved.reset(); // nothing
        EXPECT_THROWS(LOCH_E_INVALID, loch::handle(device, 1));
    });
    EXPECT_THROWS(LOCH_E_INVALID, loch::handle().bytes());
    EXPECT_THROWS(LOCH_E_INVALID, loch::reservation(loch::device(), 4096));
}

TEST(handles_are_shared_by_file_descriptors)
{
    const loch::device cpu("cpu");
    const std::size_t granule = cpu.properties().granule_bytes;
    loch_handle_options options{};
    options.share = LOCH_SHARE_FD;
    const loch::handle handle(cpu, granule, options);
    const int fd = handle.export_fd();
    const loch::handle other = loch::handle::import_fd(cpu, fd, granule);
    close(fd);
    const loch::reservation a(cpu, granule), b(cpu, granule);
    const loch::mapped first(a.get(), handle), second(b.get(), other);
    static_cast<char *>(first.get())[0] = 'm';
    EXPECT(static_cast<char *>(second.get())[0] == 'm');
    EXPECT_THROWS(LOCH_E_INVALID, handle.export_fabric());
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::handle::import_fabric(cpu, {}, granule));
    EXPECT_THROWS(LOCH_E_INVALID, loch::handle(cpu, granule).export_fd());
}

TEST(raw_blocks_and_registered_memory_are_given_back)
{
    test::on_devices([](const loch::device &device) {
        loch::raw_block block(device, LOCH_MEMORY_DEVICE, 1000);
        test::moves(block);
        const loch_address_info info = loch::query_address(block.at(10));
        EXPECT(info.base == block.get() && info.bytes == 1000 && info.device == device.get());
        void *const address = block.get();
        block = loch::raw_block(device, LOCH_MEMORY_DEVICE, 10); // frees the first
        EXPECT(loch::query_address(address).base != address || loch::query_address(address).bytes != 1000);
        block.reset();
        EXPECT(!block);
        if (!device.can(LOCH_CAN_REGISTER)) return;
        std::vector<char> memory(8192);
        {
            loch::registered_memory registered(device, memory.data(), memory.size());
            test::moves(registered);
            EXPECT(loch::query_address(memory.data()).kind == LOCH_MEMORY_REGISTERED);
            EXPECT_THROWS(LOCH_E_EXISTS, loch::registered_memory(device, memory.data(), 10));
        }
        EXPECT(loch::query_address(memory.data()).kind == LOCH_MEMORY_HOST);
    });
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::raw_block(loch::device("cpu"), LOCH_MEMORY_MANAGED, 10));
}

TEST(observers_see_ranges_come_and_go)
{
    test::on_devices([](const loch::device &device) {
        std::vector<loch_range_event> seen, everywhere;
        {
            const loch::raw_block before(device, LOCH_MEMORY_DEVICE, 100);
            const loch::observer observer(device, [&](loch_range_event event, const loch_range &range) {
                EXPECT(range.device == device.get());
                seen.push_back(event);
            });
            const loch::observer all([&](loch_range_event event, const loch_range &) { everywhere.push_back(event); });
            EXPECT(seen.size() == 1);
            const loch::raw_block block(device, LOCH_MEMORY_DEVICE, 100);
            EXPECT(seen.size() == 2 && everywhere.size() == 2);
        }
        EXPECT(seen.size() == 3 && seen[2] == LOCH_RANGE_GOING); // of `block`; `before` went unobserved
    });
    EXPECT_THROWS(LOCH_E_INVALID,
                  const loch::observer made(loch::device(), [](loch_range_event, const loch_range &) {}));
}

TEST(drivers_are_found_and_refused)
{
    std::vector<std::string> names;
    loch::driver::walk([&](const loch_driver &driver) { names.emplace_back(driver.name); });
    EXPECT(names.size() >= 3 && names[0] == "cpu");
    const loch::device cpu("cpu");
    void *self = nullptr;
    EXPECT(loch::driver::find(names[0]) == loch::driver::of(cpu, &self) && loch::driver::of(cpu) != nullptr);
    EXPECT(!loch::driver::find("nothing") && test::equal(loch::driver::name_of(LOCH_CALL_map), "map"));
    EXPECT_THROWS(LOCH_E_EXISTS, loch::driver::add(*loch::driver::find("sim")));
    EXPECT_THROWS(LOCH_E_INVALID, loch::driver::add(loch_driver{}));
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
