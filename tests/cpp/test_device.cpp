// SPDX-License-Identifier: MIT
// Devices, streams, events, and the cache of both.
#include "test.hpp"

#include <loch/cpp/copy.hpp>
#include <loch/cpp/sim.hpp>
#include <loch/cpp/stream_pool.hpp>

#include <algorithm>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_shared<loch::device> && test::is_shared<loch::stream> && test::is_owner<loch::event>);
static_assert(test::is_owner<loch::stream_pool> && test::is_owner<loch::pooled_stream>);

TEST(a_device_tells_what_it_is)
{
    test::on_devices([](loch::device device) {
        EXPECT(test::equal(device.name(), device.can(LOCH_CAN_HOST_ACCESS) ? "cpu" : test::sim_name));
        EXPECT(device.memory().total_bytes > 0 && device.memory().free_bytes <= device.memory().total_bytes);
        EXPECT(device.properties().total_bytes == device.memory().total_bytes);
        device.sync();
        std::uint64_t calls = 0;
        device.measure_calls(LOCH_MEASURE_OFF);
        device.walk_calls([&](const loch_call_count &count) { calls += count.count; });
        EXPECT(calls == 0);
        static_cast<void>(device.memory());
        device.walk_calls([&](const loch_call_count &count) { calls += count.count; });
        EXPECT(calls == 1);
        const loch::device copy = device;
        EXPECT(copy.get() == device.get() && loch::device::retain(copy.get()).get() == copy.get());
        test::moves(device);
        device.reset();
        EXPECT(test::equal(copy.name(), copy.name()));
        EXPECT_THROWS(LOCH_E_INVALID, device.name());
        EXPECT_THROWS(LOCH_E_INVALID, copy.enable_peer(device));
    });
    const std::vector<std::string> names = loch::device::names();
    EXPECT(std::find(names.begin(), names.end(), "cpu") != names.end());
    EXPECT(test::equal(loch::name_of(LOCH_MEMORY_PINNED), "pinned"));
}

TEST(peers_reach_each_other)
{
    const loch::device a("sim:64MiB,id=1"), b("sim:64MiB,id=2");
    a.enable_peer(b);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, a.enable_peer(loch::device("cpu")));
}

TEST(a_stream_orders_work)
{
    test::on_devices([](const loch::device &device) {
        loch::stream stream(device), other(device);
        EXPECT(stream.id() != other.id() && stream.device().get() == device.get());
        const loch::stream copy = other; // shares it
        EXPECT(copy.id() == other.id());
        other = std::move(stream); // the one that it had lives on in the copy
        copy.sync();
        EXPECT(loch::stream::retain(copy.get()).id() == copy.id());
        test::moves(other);
        other.sync();
        EXPECT(other.is_idle() && !other.capture().active);
        int calls = 0;
        other.call([](void *user) { ++*static_cast<int *>(user); }, &calls);
        other.sync();
        EXPECT(calls == 1);
        EXPECT(loch::stream::default_of(device).get() == loch_stream_get_default(device.get()));
        EXPECT(loch::stream::thread_default_of(device).get() != nullptr);
        other.close();
        EXPECT(!other);
        EXPECT_THROWS(LOCH_E_INVALID, other.sync());
        EXPECT_THROWS(LOCH_E_INVALID, static_cast<void>(other.native()));
    });
    EXPECT_THROWS(LOCH_E_INVALID, loch::stream{loch::device{}});
    loch_stream_options options{};
    options.priority = -1;
    const loch::stream urgent{loch::device(test::sim_name), options};
    EXPECT(urgent.id() != 0); // keeps its device open
}

TEST(a_closed_stream_is_closed_for_all_holders)
{
    loch::stream stream{loch::device(test::sim_name)};
    const loch::stream copy = stream;
    stream.close();
    EXPECT_THROWS(LOCH_E_INVALID, copy.sync());
}

TEST(a_wrapped_queue_stays_with_its_owner)
{
    const loch::device device(test::sim_name);
    const loch::stream owner(device);
    loch::stream wrapped = loch::stream::wrap(device, owner.native());
    EXPECT(wrapped.native() == owner.native());
    wrapped.close();
    owner.sync();
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::stream::wrap(loch::device("cpu"), &wrapped));
}

TEST(an_event_marks_a_place_in_a_stream)
{
    const loch::device slow("sim:64MiB,clock=stepped");
    const loch::stream stream(slow), other(slow);
    loch::event start(slow, LOCH_EVENT_TIMED), end(slow, LOCH_EVENT_TIMED);
    test::moves(start);
    EXPECT(start.has_passed()); // never recorded
    start.record(stream);
    loch_sim_kernel kernel{};
    kernel.duration_ns = 5000;
    loch::sim::launch(stream, kernel);
    end.record(stream);
    EXPECT(!end.has_passed() && !stream.is_idle());
    EXPECT_THROWS(LOCH_E_BUSY, static_cast<void>(end.ns_since(start)));
    other.wait(end);
    other.sync();
    EXPECT(end.has_passed() && end.ns_since(start) == 5000);
    end.sync();
    EXPECT_THROWS(LOCH_E_INVALID, loch::event().sync());
    EXPECT_THROWS(LOCH_E_INVALID, stream.wait(loch::event()));
    test::on_devices([](const loch::device &device) {
        const loch::event event(device);
        event.record();
        event.sync();
        EXPECT(event.has_passed());
    });
}

TEST(a_stream_pool_lends_streams_and_events)
{
    test::on_devices([](const loch::device &device) {
        loch::stream_pool pool(device);
        test::moves(pool);
        loch_stream *first = nullptr;
        {
            loch::pooled_stream stream = pool.acquire(), second = pool.acquire();
            first = stream.get();
            EXPECT(first != second.get() && pool.info().streams_out == 2);
            int from = 1, to = 0;
            loch::copy_on(&to, &from, sizeof to, stream);
            stream.sync();
            EXPECT(to == 1);
            test::moves(stream);
            second = std::move(stream); // gives its own back
            EXPECT(pool.info().streams_out == 1 && second.get() == first && !stream);
            EXPECT_THROWS(LOCH_E_INVALID, stream.sync());
            const loch::event event(device);
            event.record(second);
            event.sync();
            loch::stream::default_of(device).wait(event);
        }
        EXPECT(pool.info().streams_out == 0);
        loch::pooled_stream again = pool.acquire();
        EXPECT(pool.info().streams_again == 1 && pool.info().streams_made == 2);
        again.give_back();
        EXPECT(!again && pool.info().streams_out == 0);
    });
    EXPECT_THROWS(LOCH_E_INVALID, static_cast<void>(loch::stream_pool().acquire()));
}

TEST(copies_and_fills_reach_every_device)
{
    test::on_devices([](const loch::device &device) {
        const loch::stream stream(device);
        void *there = nullptr;
        loch::check(loch_raw_alloc(device.get(), LOCH_MEMORY_DEVICE, 64, 0, &there));
        std::vector<std::uint32_t> here(16, 7), back(16);
        loch::copy(there, here.data(), 64);
        loch::copy(loch::span<std::uint32_t>(back),
                   loch::span<const std::uint32_t>(static_cast<const std::uint32_t *>(there), 16));
        EXPECT(back == here);
        loch::fill(there, 64, std::uint32_t{5});
        loch_copy_options options{};
        options.stream = stream.get();
        options.wait = LOCH_WAIT_END;
        loch::fill_on(there, 16, std::uint16_t{0}, stream);
        loch::fill(static_cast<char *>(there) + 16, 16, std::uint16_t{0}, options);
        loch::copy(back.data(), there, 64, options);
        EXPECT(back[0] == 0 && back[7] == 0 && back[8] == 5 && back[15] == 5);
        loch_pitched shape{};
        shape.row_bytes = 4;
        shape.rows = 2;
        shape.planes = 1;
        shape.to_row_pitch = 4;
        shape.from_row_pitch = 32;
        std::uint32_t rows[2] = {9, 9};
        loch::copy_pitched(rows, there, shape);
        EXPECT(rows[0] == 0 && rows[1] == 5);
        EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, loch::copy(back.data(), there, 1 << 20));
        EXPECT_THROWS(LOCH_E_INVALID,
                      loch::copy(loch::span<std::uint32_t>(back), loch::span<const std::uint32_t>(here.data(), 3)));
        loch::check(loch_raw_free(there));
    });
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
