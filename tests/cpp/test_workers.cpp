// SPDX-License-Identifier: MIT
// Workers and their jobs, timelines and their spans.
#include "test.hpp"

#include <loch/cpp/pool.hpp>
#include <loch/cpp/timeline.hpp>
#include <loch/cpp/workers.hpp>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_owner<loch::workers> && test::is_owner<loch::timeline>);
static_assert(test::is_moved<loch::job<int (*)()>> && test::is_never_copied<loch::job<int (*)()>>);
static_assert(test::is_guard<loch::timeline::span>);

TEST(a_job_brings_its_result_or_its_exception)
{
    loch::workers workers(2);
    test::moves(workers);
    EXPECT(workers.threads() == 2 && workers.current() == SIZE_MAX);
    auto number = workers.start([] { return std::string("a result that is longer than a small string"); });
    auto moved = std::move(number);
    EXPECT(!number && moved && test::has(moved.get(), "longer") && !moved);
    EXPECT_THROWS(LOCH_E_INVALID, moved.get());
    bool is_caught = false;
    auto failing = workers.start([] { throw std::runtime_error("from a task"); });
    try {
        failing.get();
    } catch (const std::runtime_error &error) {
        is_caught = test::equal(error.what(), "from a task");
    }
    EXPECT(is_caught && !failing);
    EXPECT_THROWS(LOCH_E_LIMIT, workers.run_wait([] { loch::fail(LOCH_E_LIMIT, "too much"); }));
    EXPECT(workers.run_wait([&] { return workers.current(); }) < 2);
    std::unique_ptr<int> only_moved = std::make_unique<int>(5);
    EXPECT(workers.run_wait([held = std::move(only_moved)] { return *held; }) == 5);
}

TEST(a_job_is_waited_for_at_its_end)
{
    std::atomic<int> ran{0};
    loch::workers workers(1);
    {
        const auto count = [&] { ran++; };
        const auto job = workers.start(count);
        auto other = workers.start(count);
        other = workers.start(count); // waits for what it had
    }
    EXPECT(ran == 3);
}

TEST(a_queued_job_can_be_cancelled)
{
    loch::workers workers(1);
    std::promise<void> is_running, go;
    auto first = workers.start([&] {
        is_running.set_value();
        go.get_future().wait();
    });
    is_running.get_future().wait();
    const auto number = [] { return 1; };
    auto second = workers.start(number), third = workers.start(number);
    EXPECT(!second.has_ended() && second.cancel() && !second.cancel());
    EXPECT(workers.cancel() == 1); // the third
    go.set_value();
    first.get();
    EXPECT_THROWS(LOCH_E_CANCELLED, second.get());
    EXPECT_THROWS(LOCH_E_CANCELLED, third.get());
}

TEST(a_wait_that_would_never_end_is_refused)
{
    loch::workers a(1);
    loch_status status = LOCH_OK;
    std::promise<void> is_there;
    loch::job<std::function<void()>> *inner = nullptr;
    loch::job<std::function<void()>> outer(a.get(), [&] {
        is_there.get_future().wait();
        status = test::thrown([&] { inner->get(); });
    });
    inner = &outer;
    is_there.set_value();
    outer.get();
    EXPECT(status == LOCH_E_INVALID);
}

TEST(tasks_that_are_not_waited_for_fail_in_wait)
{
    loch::workers workers(1);
    const auto fail = [](void *) { return loch_error_set(LOCH_E_IO, nullptr, 0, "a task failed"); };
    workers.run(fail, nullptr);
    workers.run(fail, nullptr);
    std::size_t failed = 0;
    EXPECT_THROWS(LOCH_E_IO, workers.wait(&failed));
    EXPECT(failed == 2);
    workers.wait();
    EXPECT_THROWS(LOCH_E_INVALID, workers.run_wait([&] { workers.close(); }));
    EXPECT(workers); // a thread of them cannot close them
    workers.run(fail, nullptr);
    EXPECT_THROWS(LOCH_E_IO, workers.close());
    EXPECT(!workers);
    EXPECT_THROWS(LOCH_E_INVALID, workers.wait());
    loch_workers_options options{};
    options.name = "named";
    EXPECT(loch::workers(options).close(LOCH_WORKERS_CANCEL) == 0);
}

TEST(spans_end_with_their_block)
{
    test::on_devices([](const loch::device &device) {
        loch::timeline timeline(1);
        test::moves(timeline);
        const loch::stream stream(device);
        {
            loch_span_options options{};
            options.stream = stream.get();
            options.flops = 2e9;
            options.bytes = 100;
            loch::timeline::span outer = timeline.begin(std::string_view("outer"), options);
            options.level = 2; // above the level of the timeline
            EXPECT(outer.is_recorded() && !timeline.begin("not recorded", options).is_recorded());
            loch::timeline::span inner = timeline.begin("inner", stream);
            inner.end();
            EXPECT(!inner.is_recorded() && timeline.count() == 1);
        }
        std::vector<std::string> names;
        timeline.walk([&](const loch_span_record &record) {
            names.emplace_back(record.name);
            if (names.size() == 1) EXPECT(record.flops == 2e9 && record.bytes == 100 && record.depth == 0);
        });
        EXPECT(names.size() == 2 && names[0] == "outer" && timeline.lost() == 0);
        EXPECT(test::has(timeline.str(), "outer") && timeline.str(LOCH_TIMELINE_TRACE).size() > 2);
        const std::string path = test::temporary("trace.json");
        timeline.save(path);
        EXPECT(std::ifstream(path).good());
        std::remove(path.c_str());
        timeline.forget();
        timeline.set_level(-1);
        EXPECT(timeline.count() == 0 && !timeline.begin("none").is_recorded());
        EXPECT(!loch::timeline().begin("none").is_recorded());
        EXPECT_THROWS(LOCH_E_INVALID, loch::timeline().str());
        EXPECT_THROWS(LOCH_E_IO, timeline.save("/no/such/folder/trace"));
    });
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
