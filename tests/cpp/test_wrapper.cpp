// SPDX-License-Identifier: MIT
// Wrappers, the direct allocator, the registry, profiles, recordings.
#include "test.hpp"

#include <loch/cpp/memory_resource.hpp>
#include <loch/cpp/pool.hpp>
#include <loch/cpp/profile.hpp>
#include <loch/cpp/recorder.hpp>
#include <loch/cpp/registry.hpp>
#include <loch/cpp/wrapper.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_shared<loch::limit> && test::is_shared<loch::direct> && test::is_shared<loch::wrapper>);
static_assert(test::is_owner<loch::profile> && test::is_owner<loch::census>);
static_assert(test::is_guard<loch::registration> && test::is_guard<loch::recording>);

static std::string contents(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(a_limit_is_exact)
{
    test::on_devices([](const loch::device &device) {
        loch::limit limit(loch::pool(device), 1000);
        test::moves(limit);
        const loch::block block(limit, 1000);
        EXPECT_THROWS(LOCH_E_LIMIT, loch::block(limit, 1));
        limit.set(2000);
        const loch::block more(limit, 1000);
        EXPECT(limit.wrapped().stats().blocks == 2);
        int above = 0;
        loch_limit_options options{};
        options.soft_bytes = 10;
        options.above = [](loch_allocator *, std::uint64_t, void *user) { ++*static_cast<int *>(user); };
        options.user = &above;
        const loch::limit soft(limit.wrapped(), "soft", options);
        const loch::block third(soft, 11);
        EXPECT(above == 1);
    });
    EXPECT_THROWS(LOCH_E_INVALID, loch::limit(loch::allocator(), 1));
    EXPECT_THROWS(LOCH_E_INVALID, loch::limit().set(1));
}

TEST(tracking_keeps_records)
{
    loch_tracking_options options{};
    options.records = 16;
    const loch::tracking tracking(loch::pool(loch::device("cpu")), "tracked", options);
    loch::block(tracking, 10).free();
    std::int64_t sum = 0;
    int records = 0;
    tracking.walk_records([&](const loch_tracking_record &record) {
        sum += record.bytes;
        records++;
    });
    EXPECT(records == 2 && sum == 0);
}

TEST(logging_writes_a_file)
{
    const std::string path = test::temporary("log.csv");
    loch_logging_options options{};
    options.format = LOCH_LOGGING_CSV;
    options.path = path.c_str();
    const loch::logging logging(loch::pool(loch::device("cpu")), nullptr, options);
    loch::block(logging, 4321).free();
    logging.flush();
    EXPECT(test::has(contents(path), ",4321,"));
    std::remove(path.c_str());
    options.path = "/no/such/folder/log.csv";
    EXPECT_THROWS(LOCH_E_IO, loch::logging(logging.wrapped(), nullptr, options));
}

TEST(faults_locks_and_your_own_wrapper)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        const loch::fault fault(pool);
        loch_fault_options options{};
        options.after = 1;
        options.count = 1;
        fault.set(options);
        const loch::block first(fault, 10);
        EXPECT_THROWS(LOCH_E_DEVICE_MEMORY, loch::block(fault, 10));
        fault.set(nullptr);
        const loch::block second(fault, 10);
        const loch::locked locked(fault, "locked");
        const loch::block third(locked, 10);
        loch_allocator_ops ops{};
        ops.size = sizeof ops;
        ops.kind = "mine";
        const loch::wrapper wrapper(locked, "wrapper", ops, nullptr);
        const loch::block fourth(wrapper, 10);
        EXPECT(pool.stats().blocks == 4);
        EXPECT(loch::pool(wrapper).info().handles > 0); // looks through the wrappers
    });
}

TEST(an_arena_drops_its_blocks_together)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        {
            loch::arena first(pool, "scratch");
            loch_arena_options options{};
            options.piece_bytes = 64 << 10;
            loch::arena arena(pool, nullptr, options);
            const void *block = nullptr;
            for (int round = 0; round < 3; round++) {
                const void *next = arena.alloc(100);
                EXPECT(!round || next == block);
                block = next;
                arena.reset();
            }
            (void)arena.alloc(1000);
            first = std::move(arena);
            EXPECT(first.stats().blocks == 1);
            EXPECT_THROWS(LOCH_E_INVALID, arena.reset());
        }
        EXPECT(pool.stats().blocks == 0);
    });
}

TEST(containers_live_in_an_arena)
{
    const loch::device device("cpu");
    const loch::pool pool(device);
    loch::arena arena(pool);
    {
        loch::memory_resource resource(arena);
        std::pmr::vector<std::pmr::string> words(&resource);
        for (int i = 0; i < 1000; i++)
            words.emplace_back("a string that is longer than the string itself");
        EXPECT(words[999].get_allocator().resource() == &resource);
        EXPECT(arena.stats().blocks == 1001);
    }
    EXPECT(arena.stats().blocks == 0 && arena.stats().allocs > 1001);
    arena.reset();
}

TEST(a_direct_allocator_defers_frees)
{
    test::on_devices([](const loch::device &device) {
        loch_direct_options options{};
        options.when = LOCH_DIRECT_FREE_DEFERRED;
        const loch::direct direct(device, "deferred", options);
        loch::block(direct, 100).free();
        EXPECT(direct.free_deferred() == 100 && direct.free_deferred() == 0);
    });
}

TEST(the_registry_finds_allocators_by_name)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device, "named");
        {
            const loch::registration registered(pool);
            const loch::registration again(pool, std::string_view("other"), 5);
            EXPECT(loch::registry::acquire("named").get() == pool.get());
            EXPECT(loch::registry::acquire("other", device).get() == pool.get());
            EXPECT(loch::registry::acquire_best(device).get() == pool.get());
            EXPECT_THROWS(LOCH_E_EXISTS, const loch::registration made(pool, "named"));
            int entries = 0;
            loch::registry::walk([&](const loch_registry_entry &entry) { entries += entry.allocator == pool.get(); });
            EXPECT(entries == 2);
        }
        EXPECT_THROWS(LOCH_E_NOT_FOUND, loch::registry::acquire("named"));
        static int made;
        loch::registry::add_factory(
            "made",
            [](loch_device *of, loch_attributes, void *user, loch_allocator **out) {
                ++*static_cast<int *>(user);
                return loch_pool_create(of, "made", nullptr, out);
            },
            &made);
        EXPECT(test::equal(loch::registry::acquire("made", device).name(), "made"));
        loch::registry::walk([](const loch_registry_entry &entry) { EXPECT(!entry.allocator); });
        loch::registry::remove("made");
        EXPECT_THROWS(LOCH_E_NOT_FOUND, loch::registry::remove("made"));
    });
}

TEST(the_registry_reports_leaks_when_it_is_cleared)
{
    const loch::device cpu("cpu");
    const loch::pool pool(cpu, "default");
    loch::registry::set_default(cpu, pool);
    loch::block leaked(loch::allocator(cpu), 77);
    EXPECT(leaked.allocator().get() == pool.get());
    std::size_t bytes = 0;
    const std::size_t leaks = loch::registry::clear([&](const loch::allocator &of, const loch_block &block) {
        EXPECT(test::equal(of.name(), "default"));
        bytes += block.requested_bytes;
    });
    EXPECT(leaks == 1 && bytes == 77 && loch::registry::clear() == 0);
    loch::registry::set_default(cpu, loch::allocator());
}

TEST(a_profile_measures_a_span_of_work)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        loch::profile profile(pool, "step");
        test::moves(profile);
        const loch::census before(pool);
        const loch::block block(pool, 100);
        EXPECT(profile.read().delta_bytes == 100 && test::equal(profile.read().label, "step"));
        EXPECT(test::has(loch::str(profile.read()), "step"));
        loch::census after(pool);
        test::moves(after);
        int blocks = 0, tags = 0;
        after.walk([&](const loch_block &) { blocks++; }, before);
        after.walk_tags([&](const loch_census_tag &sum) { tags += sum.requested_bytes == 100; });
        EXPECT(blocks == 1 && tags == 1 && !after.str(LOCH_FORMAT_TEXT, before).empty());
        EXPECT(after.str(LOCH_FORMAT_JSON)[0] == '{');
        EXPECT(profile.end().allocs == 1 && !profile);
        EXPECT_THROWS(LOCH_E_INVALID, profile.read());
        EXPECT_THROWS(LOCH_E_INVALID, profile.end());
        EXPECT_THROWS(LOCH_E_INVALID, loch::census().str());
    });
}

TEST(a_recording_ends_with_its_block)
{
    const std::string path = test::temporary("recording.loch"), ring = test::temporary("ring.loch");
    {
        const loch::recording recording(path);
        EXPECT_THROWS(LOCH_E_BUSY, const loch::recording made{ring});
        EXPECT_THROWS(LOCH_E_UNSUPPORTED, recording.save(ring));
    }
    EXPECT(contents(path).size() > 0);
    {
        loch_recorder_options options{};
        options.ring_bytes = 1 << 20;
        loch::recording recording{loch::options<loch_recorder_options>(options)};
        const loch::block block(loch::pool(loch::device("cpu")), 100);
        recording.save(ring);
        recording.stop();
        EXPECT_THROWS(LOCH_E_NOT_FOUND, recording.save(ring));
        const loch::recording next; // the first has ended
    }
    EXPECT(contents(ring).size() > 0);
    loch::save_snapshot(ring);
    EXPECT(contents(ring)[0] == '{');
    EXPECT_THROWS(LOCH_E_IO, loch::save_snapshot("/no/such/folder/snapshot"));
    std::remove(path.c_str());
    std::remove(ring.c_str());
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
