// SPDX-License-Identifier: MIT
// Sessions and the guard of a thread inside one.
#include "test.hpp"

#include <loch/cpp/pool.hpp>
#include <loch/cpp/session.hpp>

#include <stdexcept>
#include <thread>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_owner<loch::session> && test::is_guard<loch::session_guard>);

TEST(a_session_frees_its_blocks)
{
    test::on_devices([](const loch::device &device) {
        const loch::pool pool(device);
        {
            loch::session session(pool, "request");
            test::moves(session);
            static_cast<void>(session.allocator().alloc(100));
            void *promoted = session.allocator().alloc(50);
            session.promote(promoted);
            EXPECT(session.stats().blocks == 1 && session.stats().bytes == 100);
            EXPECT_THROWS(LOCH_E_FOREIGN, session.promote(promoted));
            EXPECT(pool.stats().blocks == 2 && session.end() == 100 && !session);
            EXPECT(pool.stats().blocks == 1);
            pool.free(promoted);
            EXPECT_THROWS(LOCH_E_INVALID, session.end());
            loch::session next(pool);
            static_cast<void>(next.allocator().alloc(1));
            session = std::move(next); // ended by the destructor
        }
        EXPECT(pool.stats().blocks == 0);
    });
    EXPECT_THROWS(LOCH_E_INVALID, loch::session{loch::allocator()});
}

TEST(a_thread_is_inside_a_session_to_the_end_of_a_block)
{
    const loch::pool pool(loch::device("cpu"));
    loch::session session(pool);
    try {
        // NOLINTNEXTLINE(clang-analyzer-deadcode.DeadStores): the destructor of the guard is what counts
        const loch::session_guard inside = session.enter();
        static_cast<void>(pool.alloc(10));
        std::thread([&] { EXPECT_THROWS(LOCH_E_BUSY, session.end()); }).join();
        EXPECT(session); // a failed end keeps it
        throw std::runtime_error("out of the block");
    } catch (const std::runtime_error &) {
        EXPECT(session.stats().blocks == 1);
    }
    void *outside = pool.alloc(20);
    EXPECT(session.stats().blocks == 1 && session.end() == 10);
    pool.free(outside);
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
