// SPDX-License-Identifier: MIT
// Arrays of the host, arrays of objects, and memory for the containers of the standard library.
#include "test.hpp"

#include <loch/cpp/host_array.hpp>
#include <loch/cpp/memory_resource.hpp>
#include <loch/cpp/pool.hpp>
#include <loch/cpp/sim.hpp>

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <stdexcept>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(test::is_owner<loch::host_array<int>> && test::is_owner<loch::object_array<std::string>>);
static_assert(std::is_nothrow_copy_constructible_v<loch::std_allocator<int>>);

static loch_attributes pinned()
{
    return {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0};
}

TEST(a_host_array_has_zeroed_elements)
{
    loch::host_array<float> a(1000);
    EXPECT(a.size() == 1000 && a.size_in_bytes() == 4000 && !a.empty() && a.data() == a.begin());
    EXPECT(std::accumulate(a.begin(), a.end(), 0.0f) == 0);
    a[999] = 2;
    EXPECT(a.at(999) == 2 && *(a.end() - 1) == 2);
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, a.at(1000));
    loch::host_array<float> b = std::move(a);
    EXPECT(a.empty() && a.data() == nullptr && a.size_in_bytes() == 0 && a.begin() == a.end());
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, a.at(0));
    EXPECT(b[999] == 2);
    loch::host_array<float> &self = b;
    b = std::move(self);
    EXPECT(b.size() == 1000 && b[999] == 2);
    a = loch::host_array<float>(0);
    EXPECT(a.empty());
    struct alignas(256) wide {
        char bytes[256];
    };
    const loch::host_array<wide> aligned(3);
    EXPECT(reinterpret_cast<std::uintptr_t>(aligned.data()) % 256 == 0);
    EXPECT_THROWS(LOCH_E_OVERFLOW, loch::host_array<double>(SIZE_MAX / 4));
    const loch::device sim(test::sim_name);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::host_array<int>(10, sim));
    loch::host_array<int> reachable(10, loch::allocator(sim, pinned()));
    EXPECT(reachable[9] == 0);
}

TEST(the_zeros_are_there_whatever_the_stream_still_has_to_do)
{
    const loch::device slow("sim:64MiB,backed,clock=stepped");
    const loch::stream busy(slow);
    const loch::allocator host(slow, pinned());
    loch::place where(host);
    loch::unique_buffer used(40, where.on(busy));
    std::fill_n(static_cast<int *>(used.address()), 10, 7);
    used.reset();
    loch_sim_kernel kernel{};
    kernel.duration_ns = 100000;
    loch::sim::launch(busy, kernel);
    EXPECT(loch::host_array<int>(10, where)[9] == 0);
}

static int constructed, destroyed, last_destroyed;

struct counted {
    counted() : number(constructed)
    {
        if (constructed == 5) throw std::runtime_error("the sixth");
        constructed++;
    }
    counted(const counted &) = delete;
    counted &operator=(const counted &) = delete;
    ~counted()
    {
        destroyed++;
        last_destroyed = number;
    }
    int number;
};

TEST(objects_are_constructed_in_order_and_destroyed_in_reverse)
{
    const loch::pool pool(loch::device("cpu"));
    constructed = destroyed = 0;
    {
        loch::object_array<counted> a(pool, 4);
        EXPECT(a.size() == 4 && a[3].number == 3 && a.begin()->number == 0 && a.end() - a.begin() == 4);
        loch::object_array<counted> b = std::move(a);
        EXPECT(!a.data() && a.size() == 0 && b[2].number == 2);
        loch::object_array<counted> &self = b;
        b = std::move(self);
        EXPECT(b.size() == 4 && destroyed == 0);
    }
    EXPECT(destroyed == 4 && last_destroyed == 0 && pool.stats().blocks == 0);
    bool is_caught = false;
    constructed = 3, destroyed = 0;
    try {
        const loch::object_array<counted> a(pool, 4);
    } catch (const std::runtime_error &error) {
        is_caught = test::equal(error.what(), "the sixth");
    }
    EXPECT(is_caught && destroyed == 2 && last_destroyed == 3 && pool.stats().blocks == 0);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::object_array<std::string>(loch::pool(loch::device(test::sim_name)), 1));
    EXPECT_THROWS(LOCH_E_INVALID, loch::object_array<int>(loch::allocator(), 1));
}

// Memory that was given back while a device still reads it is not written before that.
TEST(containers_wait_for_devices)
{
    const loch::device slow("sim:64MiB,backed,clock=stepped");
    const loch::allocator host(slow, pinned());
    loch_stream *const stream = loch_stream_get_default(slow.get());
    loch::buffer from(4096, host), to(4096, slow);
    from.fill('a');
    loch_sim_kernel kernel{};
    kernel.duration_ns = 100000;
    loch::sim::launch(stream, kernel);
    to.copy_from(from, stream);
    from.reset();
    loch::memory_resource resource(host);
    const std::pmr::vector<char> other(4096, 'b', &resource);
    char seen = 0;
    loch::check(loch_copy(&seen, to.address(), 1));
    EXPECT(seen == 'a');
}

TEST(containers_of_pmr_take_memory_from_a_pool)
{
    const loch::device cpu("cpu"), sim(test::sim_name);
    const loch::pool pool(cpu, "containers"), other(cpu, "other");
    {
        loch::memory_resource resource(pool), same(pool), different(other);
        EXPECT(resource == same && resource != different && resource != *std::pmr::new_delete_resource());
        std::pmr::vector<int> numbers(1000, 7, &resource);
        std::pmr::map<int, std::pmr::string> names(&resource);
        names[1] = "a string that is too long for the small buffer of any implementation";
        EXPECT(pool.stats().blocks >= 2 && resource.allocator().get() == pool.get());
        numbers.resize(100000);
        EXPECT(numbers[999] == 7 && numbers[99999] == 0);
        void *first = resource.allocate(0), *second = resource.allocate(0);
        EXPECT(first && second && first != second);
        resource.deallocate(first, 0);
        resource.deallocate(second, 0);
        void *wide = resource.allocate(100, 4096);
        EXPECT(reinterpret_cast<std::uintptr_t>(wide) % 4096 == 0);
        resource.deallocate(wide, 100, 4096);
        bool is_bad_alloc = false;
        try {
            static_cast<void>(resource.allocate(SIZE_MAX / 2));
        } catch (const std::bad_alloc &) {
            is_bad_alloc = true;
        }
        EXPECT(is_bad_alloc);
    }
    EXPECT(pool.stats().blocks == 0);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::memory_resource{loch::pool(sim)});
    EXPECT_THROWS(LOCH_E_INVALID, loch::memory_resource{loch::allocator()});
}

TEST(containers_with_an_allocator_take_memory_from_a_pool)
{
    const loch::pool pool(loch::device("cpu"), "containers"), other(loch::device("cpu"), "other");
    const loch::tag tag("cpp-containers");
    {
        std::vector<int, loch::std_allocator<int>> numbers({1, 2, 3}, loch::std_allocator<int>(pool, tag));
        std::list<double, loch::std_allocator<double>> list(numbers.get_allocator());
        list.push_back(1.5);
        EXPECT(pool.stats(tag).blocks >= 2 && numbers.get_allocator() == list.get_allocator());
        std::vector<int, loch::std_allocator<int>> copy(numbers, other), moved(std::move(numbers));
        EXPECT(other.stats().blocks == 1 && copy == moved && copy.get_allocator() != moved.get_allocator());
        copy = std::move(moved); // takes the memory and its allocator
        EXPECT(other.stats().blocks == 0 && copy[2] == 3 && copy.get_allocator().source().get() == pool.get());
        bool is_bad_alloc = false;
        try {
            static_cast<void>(loch::std_allocator<int>(pool).allocate(SIZE_MAX));
        } catch (const std::bad_alloc &) {
            is_bad_alloc = true;
        }
        EXPECT(is_bad_alloc);
    }
    EXPECT(pool.stats().blocks == 0);
    EXPECT_THROWS(LOCH_E_UNSUPPORTED, loch::std_allocator<int>{loch::pool(loch::device(test::sim_name))});
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
