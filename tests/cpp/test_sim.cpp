// SPDX-License-Identifier: MIT
// Simulated devices, and the settings of the process.
#include "test.hpp"

#include <loch/cpp/copy.hpp>
#include <loch/cpp/process.hpp>
#include <loch/cpp/raw.hpp>
#include <loch/cpp/sim.hpp>

#include <cstdlib>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_owner<loch::sim::graph> && test::is_guard<loch::sim::capture>);
static_assert(test::is_guard<loch::log_hook<void (*)(loch_log_level, const char *)>>);

TEST(time_is_set_by_the_program)
{
    const loch::device device("sim:64MiB,backed,clock=stepped");
    const loch::stream stream(device);
    const std::uint64_t start = loch::sim::time(device);
    loch::sim::advance(device, 1000);
    EXPECT(loch::sim::time(device) == start + 1000);
    loch::sim::set_time(device, start + 5000);
    EXPECT_THROWS(LOCH_E_INVALID, loch::sim::set_time(device, start));
    loch_sim_kernel kernel{};
    kernel.duration_ns = 700;
    loch::sim::launch(stream, kernel);
    EXPECT(loch::sim::stats(device).pending == 1 && !stream.is_idle());
    loch::sim::step(stream);
    EXPECT(loch::sim::stats(device).pending == 0 && stream.is_idle());
    EXPECT(loch::sim::number_of(loch::stream::default_of(device)) == 1 && loch::sim::number_of(stream) > 1);
    EXPECT_THROWS(LOCH_E_INVALID, loch::sim::time(loch::device("cpu")));
}

TEST(faults_violations_and_lost_devices)
{
    const loch::device device("sim:64MiB,backed,id=7");
    loch_sim_fault fault{};
    fault.call = "stream_create";
    loch::sim::set_fault(device, fault);
    EXPECT_THROWS(LOCH_E_DRIVER, loch::stream{device});
    loch::sim::set_fault(device, nullptr);
    const loch::stream a(device), b(device);
    const loch::raw_block block(device, LOCH_MEMORY_DEVICE, 64);
    const loch_sim_range range{block.get(), 64};
    loch_sim_kernel kernel{};
    kernel.writes = &range;
    kernel.writes_count = 1;
    loch::sim::launch(a, kernel);
    loch::sim::launch(b, kernel); // without an order
    int violations = 0;
    loch::sim::walk_violations(
        device, [&](const loch_sim_violation &found) { violations += found.kind == LOCH_SIM_UNORDERED; });
    EXPECT(violations == 1 && loch::sim::stats(device).violations == 1);
    loch::sim::clear_violations(device);
    EXPECT(loch::sim::stats(device).violations == 0);
    loch::sim::lose(device);
    EXPECT_THROWS(LOCH_E_DEVICE_LOST, a.sync());
}

TEST(a_capture_ends_with_its_block)
{
    const loch::device device(test::sim_name);
    const loch::stream stream(device);
    const loch::raw_block block(device, LOCH_MEMORY_DEVICE, 64);
    loch::fill(block.get(), 64, 'a');
    loch::sim::graph graph;
    {
        loch::sim::capture capture(stream);
        EXPECT(stream.capture().active);
        loch::fill_on(block.get(), 64, 'b', stream);
        graph = capture.end();
    }
    EXPECT(!stream.capture().active);
    test::moves(graph);
    char seen = 0;
    loch::copy(&seen, block.get(), 1);
    EXPECT(seen == 'a');
    graph.launch(stream);
    stream.sync();
    loch::copy(&seen, block.get(), 1);
    EXPECT(seen == 'b');
    {
        const loch::sim::capture dropped(stream);
    }
    EXPECT(!stream.capture().active);
    EXPECT_THROWS(LOCH_E_INVALID, loch::sim::graph().launch(stream));
}

TEST(options_are_read_and_set)
{
    EXPECT_THROWS(LOCH_E_NOT_FOUND, loch::option::get("no_such_option"));
    EXPECT_THROWS(LOCH_E_INVALID, loch::option::set("log", "loud"));
    const std::string before = loch::option::get("direct_memory");
    loch::option::set("direct_memory", std::string("1"));
    EXPECT(loch::option::get("direct_memory") != before);
    loch::option::set("direct_memory", nullptr);
    EXPECT(loch::option::get("direct_memory") == before);
    bool is_there = false;
    loch::option::walk([&](const loch_option &option) { is_there |= test::equal(option.name, "direct_memory"); });
    EXPECT(is_there);
    setenv("LOCH_LOGG", "x", 1);
    std::string nearest;
    loch::option::walk_unknown([&](const char *variable, const char *found) {
        if (test::equal(variable, "LOCH_LOGG")) nearest = found;
    });
    unsetenv("LOCH_LOGG");
    EXPECT(nearest == "LOCH_LOG");
}

TEST(the_log_goes_to_a_hook)
{
    std::vector<std::string> lines;
    {
        const loch::log_hook hook(LOCH_LOG_INFO, [&](loch_log_level, const char *line) { lines.emplace_back(line); });
        const loch::device device("sim:8MiB,id=77");
    }
    const std::size_t heard = lines.size();
    EXPECT(heard > 0);
    const loch::device device("sim:8MiB,id=78");
    EXPECT(lines.size() == heard);
}

TEST(host_memory_can_be_replaced)
{
    EXPECT(loch::host::now_ns() > 0);
    static int allocated;
    loch_host_allocator allocator{};
    allocator.alloc = [](std::size_t bytes, std::size_t alignment, void *) {
        allocated++;
        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    };
    allocator.free = [](void *address, std::size_t, void *) { std::free(address); };
    const std::size_t before = loch::host::usage().blocks;
    const loch_status status = test::thrown([&] { loch::host::set_allocator(allocator); });
    if (before != 0) {
        EXPECT(status == LOCH_E_BUSY); // memory of the present one is held
        return;
    }
    {
        const loch::device device("cpu");
        EXPECT(allocated > 0 && loch::host::usage().blocks > 0);
        EXPECT_THROWS(LOCH_E_BUSY, loch::host::set_allocator(nullptr));
    }
    loch::host::set_allocator(nullptr);
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
