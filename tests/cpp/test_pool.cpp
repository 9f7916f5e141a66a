// SPDX-License-Identifier: MIT
// Pools: children, figures, growable blocks, moving, freezing, sleep.
#include "test.hpp"

#include <loch/cpp/buffer.hpp>
#include <loch/cpp/moving.hpp>
#include <loch/cpp/sim.hpp>
#include <loch/cpp/sleep.hpp>
#include <loch/cpp/wrapper.hpp>

#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_shared<loch::pool> && test::is_owner<loch::growable>);
static_assert(test::is_guard<loch::forbid_moving> && test::is_guard<loch::asleep>);
static_assert(test::is_guard<loch::move_hook<void (*)(const loch_move &)>>);

TEST(a_pool_has_limits_and_figures)
{
    test::on_devices([](const loch::device &device) {
        loch_pool_options options{};
        options.limit_bytes = 8 << 20;
        loch::pool pool(device, std::string("limited"), options);
        test::moves(pool);
        EXPECT(pool.info().limit_bytes == 8 << 20 && test::equal(pool.name(), "limited"));
        EXPECT_THROWS(LOCH_E_LIMIT, loch::block(pool, 9 << 20));
        pool.set_limit(16 << 20);
        pool.set_idle(1 << 20);
        loch::block block(pool, 9 << 20);
        EXPECT(test::has(pool.str(), "limited") && pool.info().limit_bytes == 16 << 20);
        std::size_t used = 0;
        pool.walk_memory([&](const loch_memory_piece &piece) {
            if (piece.state == LOCH_PIECE_USED) used += piece.requested_bytes;
        });
        EXPECT(used == 9 << 20);
        EXPECT_THROWS(LOCH_E_NOT_FOUND, pool.release_capture(12345));
        block.free();
    });
    EXPECT_THROWS(LOCH_E_INVALID, loch::pool(loch::device{}));
    EXPECT_THROWS(LOCH_E_INVALID, loch::pool(loch::direct(loch::device("cpu"))).info()); // not a pool
    EXPECT_THROWS(LOCH_E_INVALID, loch::pool().str());
}

TEST(children_share_the_memory_of_their_parent)
{
    test::on_devices([](const loch::device &device) {
        loch::pool child;
        loch::block kept;
        {
            const loch::pool parent(device, "parent");
            loch_child_options options{};
            options.limit_bytes = 2 << 20;
            child = parent.create_child("tenant-a", options);
            const loch::pool other = parent.create_child();
            std::vector<std::string> names;
            parent.walk_children([&](const loch::pool &each) { names.emplace_back(each.name()); });
            EXPECT(names.size() == 2 && names[0] == "tenant-a");
            EXPECT(child.parent().get() == parent.get() && !parent.parent());
            kept = loch::block(child, 1 << 20);
            EXPECT_THROWS(LOCH_E_LIMIT, loch::block(child, 3 << 20));
        }
        EXPECT(test::equal(child.parent().name(), "parent")); // kept by the child
        child.reset();
        EXPECT(kept.bytes() == 1 << 20); // and the child by its block
    });
}

TEST(growable_blocks_keep_their_address)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        loch_request request{};
        request.bytes = 1 << 20;
        loch::growable cache(pool, 16 << 20, request);
        void *const address = cache.get();
        cache.resize(8 << 20);
        EXPECT(cache.get() == address && cache.bytes() == 8 << 20);
        EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, cache.resize(17 << 20));
        test::moves(cache);
        cache.resize(0);
        cache = loch::growable();
        EXPECT(pool.stats().blocks == 0);
        EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, loch::growable(pool, 100, request));
    });
}

TEST(moving_is_forbidden_by_a_guard)
{
    const loch::device device(test::sim_name);
    const loch::pool pool(device, "moving");
    loch_compact_options goal{};
    {
        const loch::forbid_moving outer(pool);
        {
            const loch::forbid_moving inner(pool);
            EXPECT_THROWS(LOCH_E_MOVING_FORBIDDEN, pool.compact(goal));
        }
        EXPECT_THROWS(LOCH_E_MOVING_FORBIDDEN, pool.compact());
    }
    static_cast<void>(pool.compact(goal));
    EXPECT(loch_pool_allow_moving(pool.get()) == LOCH_E_INVALID); // each guard undid its own
    EXPECT_THROWS(LOCH_E_INVALID, const loch::forbid_moving made{loch::pool()});
}

TEST(movable_buffers_are_moved_pinned_and_reported)
{
    loch_pool_options options{};
    options.limit_bytes = 4 << 20;
    const loch::device device("sim:64MiB,granule=1MiB,backed,virtual=off");
    const loch::pool pool(device, "moving", options);
    std::vector<loch::buffer> buffers;
    buffers.reserve(8);
    for (int i = 0; i < 8; i++)
        buffers.emplace_back(std::size_t{512} << 10, loch::place(pool).movable());
    for (int i : {6, 4, 2}) // holes that are not side by side
        buffers.erase(buffers.begin() + i);
    buffers[2].fill('d');
    EXPECT(buffers[2].is_movable() && !buffers[2].address());
    EXPECT_THROWS(LOCH_E_BUSY, {
        const loch::pin pin = buffers[2].pin();
        buffers[2].resize(1);
    });
    std::size_t planned = 0, moved = 0;
    loch_compact_options goal{};
    goal.contiguous_bytes = 1 << 20;
    const loch_compact_report plan = pool.plan_compact(goal, [&](const loch_move &) { planned++; });
    EXPECT(planned > 0 && plan.moves == planned && pool.plan_compact(goal).moves == planned);
    EXPECT(pool.plan_compact().moves >= planned);
    {
        const loch::move_hook hook(pool, [&](const loch_move &move) {
            EXPECT(move.bytes == 512 << 10);
            moved++;
        });
        EXPECT(pool.compact(goal).moves == planned && moved == planned);
    }
    {
        const loch::pin pin = buffers[2].pin();
        char seen = 0;
        loch::check(loch_copy(&seen, pin.address(), 1));
        EXPECT(seen == 'd');
    }
    std::uint64_t generations = 0;
    for (const loch::buffer &each : buffers)
        generations += each.generation();
    EXPECT(generations == moved);
}

TEST(frozen_memory_stays)
{
    const loch::pool pool{loch::device(test::sim_name)};
    const loch::tag tag("cpp-weights");
    const loch::buffer weights(1 << 20, loch::place(pool).movable().tagged(tag));
    loch_freeze_options options{};
    options.tag = tag;
    EXPECT(pool.freeze(options).bytes == 1 << 20 && pool.freeze().blocks == 0);
    EXPECT(pool.unfreeze(tag) == 1 << 20 && pool.unfreeze() == 0);
}

TEST(a_pool_sleeps_to_the_end_of_a_block)
{
    const loch::device device(test::sim_name);
    const loch::pool pool(device);
    loch::buffer weights(1 << 20, pool);
    weights.fill('w');
    loch_sleep_options options{};
    options.contents = LOCH_SLEEP_HOST;
    {
        const loch::asleep asleep(pool, options);
        EXPECT(asleep.released() >= 1 << 20 && pool.info().asleep_bytes == asleep.released());
        EXPECT_THROWS(LOCH_E_BUSY, loch::block(pool, 100));
    }
    char seen = 0;
    loch::check(loch_copy(&seen, weights.address(), 1));
    EXPECT(seen == 'w' && pool.info().asleep_bytes == 0);
    EXPECT(pool.sleep() > 0 && pool.wake() == 1 << 20); // kept by default
    loch_sleep_options drop{};
    drop.contents = LOCH_SLEEP_DROP;
    EXPECT(pool.sleep(drop) > 0 && pool.wake() == 0);
    {
        loch::asleep asleep(pool, options);
        loch_sim_fault fault{};
        fault.call = "handle_create";
        loch::sim::set_fault(device, fault);
        EXPECT_THROWS(LOCH_E_DEVICE_MEMORY, asleep.wake());
        loch::sim::set_fault(device, nullptr);
        EXPECT(asleep.wake() == 1 << 20); // once more
    }
    EXPECT_THROWS(LOCH_E_INVALID, const loch::asleep made{loch::pool()});
    EXPECT_THROWS(LOCH_E_INVALID, const loch::asleep made{loch::pool(loch::direct(device))});
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
