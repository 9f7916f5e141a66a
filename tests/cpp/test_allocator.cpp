// SPDX-License-Identifier: MIT
// Allocators of any kind, blocks that free themselves, pressure functions, statistics.
#include "test.hpp"

#include <loch/cpp/allocator.hpp>
#include <loch/cpp/pool.hpp>
#include <loch/cpp/wrapper.hpp>

#include <cstdlib>
#include <stdexcept>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_shared<loch::allocator> && test::is_owner<loch::block>);
static_assert(test::is_guard<loch::pressure<std::size_t (*)(loch_allocator *, std::size_t)>>);

TEST(an_allocator_hands_out_blocks)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device, "mine");
        const loch::stream stream(device);
        void *a = pool.alloc(100);
        loch_request request{}; // the size member is set
        request.bytes = 1000;
        request.alignment = 4096;
        request.stream = stream.get();
        void *b = pool.alloc(request), *c = pool.alloc_array(10, 8);
        EXPECT(reinterpret_cast<std::uintptr_t>(b) % 4096 == 0 && pool.stats().blocks == 3);
        EXPECT(pool.find(c).requested_bytes == 80 && pool.find(a).requested_bytes == 100);
        pool.record_use(a, stream);
        EXPECT_THROWS(LOCH_E_INVALID, pool.free_sized(a, 99));
        pool.free_sized(a, 100);
        b = pool.realloc(b, 2000, stream);
        EXPECT(pool.find(b).requested_bytes == 2000);
        pool.free_on(b, stream);
        loch::free_address(c);
        EXPECT_THROWS(LOCH_E_DOUBLE_FREE, pool.free(c));
        EXPECT(pool.try_free(c) == LOCH_E_DOUBLE_FREE && pool.try_free(nullptr) == LOCH_OK);
        EXPECT_THROWS(LOCH_E_OVERFLOW, static_cast<void>(pool.alloc_array(SIZE_MAX, 2)));
        EXPECT(pool.stats().blocks == 0);
        stream.sync();
    });
    EXPECT_THROWS(LOCH_E_INVALID, static_cast<void>(loch::allocator().alloc(1)));
    EXPECT_THROWS(LOCH_E_INVALID, loch::allocator().stats());
    EXPECT_THROWS(LOCH_E_INVALID, loch::allocator{loch::device{}});
}

TEST(an_allocator_tells_what_it_is)
{
    const loch::device device(test::sim_name), cpu("cpu");
    loch::allocator pool = loch::pool(device, "mine");
    EXPECT(test::equal(pool.name(), "mine") && !pool.is_on_host());
    EXPECT(pool.device().get() == device.get() && !pool.wrapped() && (pool.traits() & LOCH_TRAIT_THREAD_SAFE));
    EXPECT(loch::allocator(cpu).is_on_host() && loch::allocator(cpu).get() == loch::allocator(cpu).get());
    const loch_attributes pinned{LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0};
    EXPECT(loch::allocator(device, pinned).is_on_host() && loch::allocator(device, pinned).attributes().bits != 0);
    EXPECT(loch::merge({LOCH_ATTRIBUTE_ON_HOST, 0}, {0, 3}).scope == 3);
    EXPECT_THROWS(LOCH_E_INVALID, loch::merge({0, 1}, {0, 2}));
    test::moves(pool);
    const loch::allocator copy = pool;
    pool.reset();
    EXPECT(test::equal(copy.name(), "mine"));
}

TEST(statistics_are_read_summed_and_printed)
{
    const loch::pool pool(loch::device("cpu"), "counted");
    const loch::tag tag("cpp-counted");
    loch_request request{};
    request.bytes = 1000;
    request.tag = tag;
    pool.measure(LOCH_MEASURE_ON);
    void *block = pool.alloc(request);
    EXPECT(pool.stats(tag).blocks == 1 && pool.stats(tag).requested_bytes == 1000);
    EXPECT(pool.measurements().bytes.count == 1 && loch::percentile(pool.measurements().bytes, 1) >= 512);
    std::size_t seen = 0;
    pool.walk([&](const loch_block &found) { seen += found.requested_bytes; });
    EXPECT(seen == 1000);
    loch_stats sum = pool.stats();
    loch::add(sum, pool.stats());
    EXPECT(sum.requested_bytes == 2000);
    EXPECT(test::has(loch::str(sum), "in use") && loch::str(sum, LOCH_FORMAT_JSON)[0] == '{');
    pool.free(block);
    pool.reset_stats();
    EXPECT(pool.stats().allocs == 0 && loch::fragmentation(pool.stats()) <= 1);
    EXPECT(pool.trim() > 0);
    EXPECT_THROWS(LOCH_E_INVALID, pool.stats(loch::tag()));
}

TEST(a_block_is_freed_once)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        const loch::stream stream(device);
        {
            loch::block a(pool, 100), b;
            void *const address = a.get();
            test::moves(a);
            b = std::move(a);
            EXPECT(b.get() == address && !a && b.bytes() == 100 && a.bytes() == 0);
            b.record_use(stream);
            b.resize(300);
            EXPECT(b.bytes() == 300 && pool.stats().blocks == 1);
            a = loch::block(pool, 50);
            b = std::move(a); // frees its own
            EXPECT(pool.stats().blocks == 1 && b.bytes() == 50);
            b.free();
            EXPECT(!b && pool.stats().blocks == 0);
            b.free(); // nothing
            loch_request request{};
            request.bytes = 10;
            b = loch::block(pool, request);
            b.free_on(stream);
            b = loch::block(pool, 10);
            void *released = b.release();
            const loch::block taken = loch::block::take(pool, released);
            EXPECT(!b && taken.get() == released && taken.allocator().get() == pool.get());
        }
        EXPECT(pool.stats().blocks == 0);
    });
}

TEST(a_block_may_outlive_its_handles)
{
    loch::block kept;
    {
        const loch::pool pool(loch::device("cpu"));
        kept = loch::block(pool, 64);
    }
    std::memset(kept.get(), 1, 64);
}

TEST(an_overwritten_block_is_freed_and_reported)
{
    const loch::redzone zones(loch::pool(loch::device("cpu")));
    loch::block block(zones, 16);
    static_cast<char *>(block.get())[16] = 1;
    EXPECT_THROWS(LOCH_E_CORRUPT, zones.check_all());
    EXPECT_THROWS(LOCH_E_CORRUPT, block.free());
    EXPECT(!block && zones.stats().blocks == 0);
}

TEST(pressure_functions_free_memory)
{
    loch_pool_options options{};
    options.limit_bytes = 1 << 20;
    const loch::pool pool{loch::device(test::sim_name), "small", options};
    loch::block cache(pool, 900 << 10);
    {
        const loch::pressure pressure(pool, [&](loch_allocator *of, std::size_t bytes) {
            EXPECT(of == pool.get() && bytes > 0 && loch::pressure_left_ns() == UINT64_MAX);
            const std::size_t held = cache ? cache.bytes() : 0;
            cache.free();
            return held;
        });
        const loch::block served(pool, 900 << 10);
        EXPECT(served && !cache);
    }
    const loch::block other(pool, 900 << 10);
    EXPECT_THROWS(LOCH_E_LIMIT, loch::block(pool, 900 << 10)); // the function is gone
}

TEST(an_exception_says_whose_memory_is_short)
{
    loch_pool_options options{};
    options.limit_bytes = 4 << 20;
    const loch::pool pool{loch::device(test::sim_name), "narrow", options};
    const loch::block held(pool, 3 << 20);
    try {
        const loch::block none(pool, 2 << 20);
        EXPECT(!none);
    } catch (const loch::error &error) {
        EXPECT(error.status() == LOCH_E_LIMIT && test::equal(error.owner(), "narrow"));
        EXPECT(error.missing_bytes() == 1 << 20 && error.remedy() == LOCH_REMEDY_FREE && error.attempts() == 1);
    }
    try {
        const loch::block none(pool, 6 << 20);
        EXPECT(!none);
    } catch (const loch::error &error) {
        EXPECT(error.status() == LOCH_E_LIMIT && error.remedy() == LOCH_REMEDY_NONE);
        EXPECT(error.missing_bytes() == 2 << 20);
    }
}

static int own_destroyed;

TEST(an_allocator_of_your_own)
{
    loch_allocator_ops ops{};
    ops.size = sizeof ops;
    ops.kind = "own";
    ops.alloc = [](void *, const loch_request *request, void **out) {
        *out = std::malloc(request->bytes);
        return *out ? LOCH_OK : loch_error_set(LOCH_E_HOST_MEMORY, nullptr, 0, "malloc failed");
    };
    ops.free = [](void *, void *address, std::size_t, loch_stream *) {
        std::free(address);
        return LOCH_OK;
    };
    ops.destroy = [](void *) { own_destroyed++; };
    const loch::device cpu("cpu");
    {
        const loch::allocator own(cpu, "own", ops, nullptr);
        const loch::block block(own, 100);
        EXPECT(own.stats().blocks == 1);
    }
    EXPECT(own_destroyed == 1);
    ops.free = nullptr;
    EXPECT_THROWS(LOCH_E_INVALID, loch::allocator(cpu, "own", ops, nullptr));
    EXPECT(own_destroyed == 1);
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
