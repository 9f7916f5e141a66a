// SPDX-License-Identifier: MIT
// Errors, text, options, spans and visitors: what all headers build on.
#include "test.hpp"

#include <loch/cpp/allocator.hpp>
#include <loch/cpp/tag.hpp>
#include <loch/pool.h>

#include <array>
#include <stdexcept>
#include <vector>

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
static_assert(std::is_nothrow_copy_constructible_v<loch::error>);

TEST(a_failure_is_an_exception_with_status_and_sentence)
{
    try {
        loch::device nowhere("no such device");
        EXPECT(false);
    } catch (const std::exception &error) {
        EXPECT(test::has(error.what(), "no such device"));
    }
    try {
        loch::device nowhere("nodriver:0");
        EXPECT(false);
    } catch (const loch::error &error) {
        EXPECT(error.status() == LOCH_E_NOT_FOUND && test::equal(error.name(), "E_NOT_FOUND"));
        EXPECT(test::equal(error.driver(), "") && error.driver_code() == 0);
        EXPECT(loch::last_error().status == LOCH_E_NOT_FOUND);
        loch::clear_error();
        EXPECT(loch::last_error().status == LOCH_OK);
        EXPECT(error.restore() == LOCH_E_NOT_FOUND && test::equal(loch::last_error().sentence, error.what()));
    }
    EXPECT_THROWS(LOCH_E_IO, loch::check(LOCH_E_IO)); // a status without a record of its own
    loch::check(LOCH_OK);
    EXPECT_THROWS(LOCH_E_LIMIT, loch::fail(LOCH_E_LIMIT, "too much: 100 %"));
    EXPECT(test::equal(loch::last_error().sentence, "too much: 100 %"));
    EXPECT(test::equal(loch::version(), LOCH_VERSION_STRING));
}

TEST(names_are_literals_strings_and_views)
{
    const std::string string = "cpp-name";
    const std::string_view view = std::string_view("cpp-name and more").substr(0, 8); // no zero behind it
    const loch::tag tag("cpp-name");
    EXPECT(loch::tag(string) == tag && loch::tag(view) == tag && tag.get() != 0);
    EXPECT(loch::text(string).get() == string.c_str() && loch::text().get() == nullptr);
    EXPECT(test::equal(loch::text(view).get(), "cpp-name"));
    EXPECT_THROWS(LOCH_E_INVALID, loch::tag{std::string_view("a\0b", 3)});
    EXPECT_THROWS(LOCH_E_INVALID, loch::tag{std::string("a\0b", 3)});
    EXPECT_THROWS(LOCH_E_INVALID, loch::tag{loch::text(nullptr)});
}

TEST(options_without_a_size_get_one)
{
    loch_pool_options options{};
    options.limit_bytes = 5;
    const loch::options<loch_pool_options> copied(options), borrowed(&options), none;
    EXPECT(copied.get()->size == sizeof options && copied.get()->limit_bytes == 5);
    EXPECT(borrowed.get() == &options && none.get() == nullptr);
    EXPECT(borrowed.value().size == sizeof options && none.value().size == sizeof options);
    options.size = 8; // of an older header: kept
    EXPECT(loch::options<loch_pool_options>(options).get()->size == 8);
}

TEST(spans_are_made_of_containers_and_arrays)
{
    std::vector<int> vector{1, 2, 3};
    const std::array<int, 2> array{4, 5};
    int plain[] = {6};
    loch::span<int> a = vector;
    const loch::span<const int> b = array, c = plain, d = a;
    EXPECT(a.size() == 3 && a[2] == 3 && a.size_bytes() == 12 && !a.empty() && a.data() == vector.data());
    EXPECT(b[1] == 5 && c.at(0) == 6 && d.size() == 3 && loch::span<int>().empty());
    a[0] = 9;
    EXPECT(vector[0] == 9 && *(d.end() - 3) == 9);
    EXPECT_THROWS(LOCH_E_OUT_OF_RANGE, static_cast<void>(c.at(1)));
    static_assert(!std::is_constructible_v<loch::span<int>, const std::vector<int> &>, "const elements stay const");
    static_assert(!std::is_constructible_v<loch::span<int>, std::vector<long> &>, "elements keep their type");
}

TEST(a_visitor_goes_on_ends_fails_or_throws)
{
    const loch::tag first("cpp-first"), second("cpp-second");
    int visits = 0;
    loch::tag::walk([&](loch::tag, const char *) { visits++; });
    EXPECT(visits >= 2);
    visits = 0;
    loch::tag::walk([&](loch::tag, const char *) { return ++visits < 2; });
    EXPECT(visits == 2);
    EXPECT_THROWS(LOCH_E_CORRUPT, loch::tag::walk([](loch::tag, const char *) {
                      return loch_error_set(LOCH_E_CORRUPT, nullptr, 0, "a visitor failed");
                  }));
    bool is_caught = false;
    try {
        loch::tag::walk([](loch::tag, const char *) { throw std::runtime_error("from inside"); });
    } catch (const std::runtime_error &error) {
        is_caught = test::equal(error.what(), "from inside");
    }
    EXPECT(is_caught);
    EXPECT(test::equal(first.name(), "cpp-first") && test::equal(loch::tag().name(), "") && first != second);
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
