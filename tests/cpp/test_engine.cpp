// SPDX-License-Identifier: MIT
// Engines, contexts with their guards and parameters, vendor libraries.
#include "test.hpp"

#include <loch/cpp/context.hpp>

#include <atomic>
#include <stdexcept>
#include <thread>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_owner<loch::engine> && test::is_owner<loch::context> && test::is_shared<loch::parameter>);
static_assert(test::is_guard<loch::guard> && test::is_guard<loch::pushed_pool> && test::is_guard<loch::seat_lock>);
static_assert(test::is_owner<loch::cublas>);

static const char *const sim = "sim:64MiB,granule=64KiB,backed";

TEST(an_engine_has_seats)
{
    loch::engine engine({"cpu", sim});
    test::moves(engine);
    EXPECT(engine.count() == 2 && test::equal(engine.device(loch::seat(1)).name(), sim));
    EXPECT(engine.info(loch::seat(1)).workers == 1);
    EXPECT(engine.workers(loch::seat(1)).run_wait([] { return 7; }) == 7);
    EXPECT(engine.streams(loch::seat(1)).acquire().get() && !engine.str().empty());
    EXPECT(engine.can_reach(loch::seat(0), loch::seat(0)) && !engine.can_reach(loch::seat(1), loch::seat(0)));
    engine.timeline().set_level(0);
    engine.timeline().begin("span").end();
    EXPECT(engine.timeline().count() == 1);
    EXPECT_THROWS(LOCH_E_NOT_FOUND, engine.device(loch::seat(2)));
    EXPECT_THROWS(LOCH_E_NOT_FOUND, static_cast<void>(engine.workers(loch::seat(2)).threads()));
    EXPECT_THROWS(LOCH_E_NOT_FOUND, engine.info(loch::seat(2)));
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, engine.require_nccl());
    const loch::block leaked(engine.allocator(loch::seat(0)), 100);
    EXPECT(engine.freeze() == 100);
    EXPECT(engine.close().bytes == 100 && !engine);
    EXPECT_THROWS(LOCH_E_INVALID, engine.count());
    EXPECT_THROWS(LOCH_E_NOT_FOUND, loch::engine({"nodriver"}));
}

TEST(work_runs_on_every_seat)
{
    const loch::engine engine({"cpu", sim});
    std::atomic<unsigned> seen{0};
    engine.for_each([&](loch_seat seat) { seen |= 1u << seat.number; });
    EXPECT(seen == 3);
    std::string what;
    try {
        engine.for_each([](loch_seat seat) { throw std::runtime_error(std::to_string(seat.number)); });
    } catch (const std::runtime_error &error) {
        what = error.what();
    }
    EXPECT(what == "0"); // the first by seat
}

TEST(a_seat_is_locked_to_the_end_of_a_block)
{
    loch::engine engine({"cpu"});
    {
        const loch::seat_lock lock = engine.lock(loch::seat(0)), again = engine.lock(loch::seat(0));
        EXPECT_THROWS(LOCH_E_BUSY, engine.close());
        EXPECT(engine); // a failed close keeps it
    }
    EXPECT_THROWS(LOCH_E_NOT_FOUND, static_cast<void>(engine.lock(loch::seat(1))));
    engine.close();
}

TEST(an_engine_ends_even_if_a_task_failed_as_busy)
{
    loch::engine engine({"cpu"});
    engine.workers(loch::seat(0)).run([](void *) { return loch_error_set(LOCH_E_BUSY, nullptr, 0, "mine"); }, nullptr);
    EXPECT_THROWS(LOCH_E_BUSY, engine.close());
    EXPECT(!engine); // it has ended: a second close would be a crash
}

TEST(a_context_has_a_seat_a_stream_and_guards)
{
    loch::engine engine({"cpu", sim});
    loch::context context(engine);
    test::moves(context);
    EXPECT(context.engine().get() == engine.get() && context.seat().number == 0 && context.debug() == 0);
    EXPECT_THROWS(LOCH_E_BUSY, engine.close());
    {
        const loch::guard seat = context.begin_seat(loch::seat(1), LOCH_SEAT_LOCKED);
        EXPECT(context.seat().number == 1 && test::equal(context.device().name(), sim));
        const loch::stream own = context.stream(), other(context.device());
        {
            const loch::guard stream = context.begin_stream(other), debug = context.begin_debug(3);
            EXPECT(context.stream().get() == other.get() && context.debug() == 3);
        }
        EXPECT(context.stream().get() == own.get() && context.debug() == 0);
        context.set_stream(other);
        EXPECT(context.stream().get() == other.get());
        context.set_stream(nullptr);
        const loch::guard still = context.begin_still();
        EXPECT_THROWS(LOCH_E_MOVING_FORBIDDEN, loch::pool(context.allocator()).compact());
    }
    EXPECT(context.seat().number == 0);
    context.set_seat(loch::seat(1));
    loch::guard ended = context.begin_debug(9);
    ended.end();
    EXPECT(context.debug() == 0);
    EXPECT_THROWS(LOCH_E_NOT_FOUND, static_cast<void>(context.begin_seat(loch::seat(2))));
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, context.require_cublas());
    std::thread([&] { EXPECT_THROWS(LOCH_E_WRONG_THREAD, context.close()); }).join();
    EXPECT(context);
    context.close();
    EXPECT(!context);
    EXPECT_THROWS(LOCH_E_INVALID, context.stats());
    EXPECT_THROWS(LOCH_E_INVALID, loch::context{loch::engine()});
}

TEST(a_context_makes_tensors)
{
    const loch::engine engine({"cpu", sim});
    const loch::context context(engine);
    const float data[] = {1, 2, 3, 4};
    const loch::tensor here = context.create_from(data, {2, 2}, "here");
    const loch::tensor empty = context.create_tensor(LOCH_F32, {3}, std::string("empty"));
    EXPECT(here.item<float>({1, 1}) == 4 && test::equal(empty.name(), "empty") && context.stats().tensors == 2);
    context.set_seat(loch::seat(1));
    const loch::tensor there = context.acquire_copy(here);
    EXPECT(test::equal(there.device().name(), sim) && context.acquire_copy(here).get() == there.get());
    EXPECT(context.stats().copies == 1);
    const loch::allocator own = context.allocator();
    {
        const loch::pushed_pool pushed = context.push_pool("child");
        EXPECT(context.allocator().get() == pushed.pool().get() && pushed.pool().parent().get() == own.get());
        context.use_pool(LOCH_CONTEXT_POOL_SEAT);
        EXPECT(context.allocator().get() == own.get());
        context.use_pool(LOCH_CONTEXT_POOL_STACK);
        context.set_seat(loch::seat(0)); // the end pops the stack of its own seat
    }
    EXPECT(context.seat().number == 0);
    context.set_seat(loch::seat(1));
    EXPECT(context.allocator().get() == own.get());
    EXPECT(loch_context_pop_pool(context.get()) == LOCH_E_NOT_FOUND);
}

TEST(parameters_are_declared_and_loaded)
{
    loch::parameter kept;
    {
        const loch::engine engine({"cpu", sim});
        const loch::context context(engine);
        loch::parameter split = context.declare("split", LOCH_F32, {4}, LOCH_SPREAD_PARTS);
        test::moves(split);
        EXPECT_THROWS(LOCH_E_BUSY, split.tensor(loch::seat(0)));
        context.load_part(split, 0, 0, loch::tensor::from({1.0f, 2.0f}));
        EXPECT(test::equal(split.name(), "split"));
        context.load_part(split, 0, 2, loch::tensor::from({3.0f, 4.0f}));
        EXPECT(split.tensor(loch::seat(1)).item<float>({0}) == 3);
        context.load(split, loch::tensor::from({5.0f, 6.0f, 7.0f, 8.0f}));
        EXPECT_THROWS(LOCH_E_INVALID, context.load(split, loch::tensor::from({1.0f})));
        kept = split;
        EXPECT(loch::parameter::retain(kept.get()).get() == split.get());
    }
    EXPECT(kept.tensor(loch::seat(1)).item<float>({1}) == 8); // outlives context and engine
    EXPECT_THROWS(LOCH_E_INVALID, loch::parameter().name());
}

TEST(vendor_libraries_that_are_missing_are_unsupported)
{
    const loch::device cpu("cpu");
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::cublas{cpu});
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, static_cast<void>(loch::engine({"cpu"}).require_nccl()));
    EXPECT_THROWS(LOCH_E_INVALID, loch::cublas().native());
    EXPECT_THROWS(LOCH_E_INVALID, loch::nccl_ref().native(0));
    // A machine may have them: then a symbol that they do not have is missing.
    const loch_status status = test::thrown([] { loch::find<void()>(LOCH_LIBRARY_NCCL, "ncclNoSuchFunction"); });
    EXPECT(status == LOCH_E_UNSUPPORTED || status == LOCH_E_NOT_FOUND);
    const loch_status loaded = test::thrown([] { EXPECT(loch::load(LOCH_LIBRARY_NCCL) > 0); });
    EXPECT(loaded == (status == LOCH_E_NOT_FOUND ? LOCH_OK : LOCH_E_UNSUPPORTED));
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
