// SPDX-License-Identifier: MIT
// Cases of the C++ headers: TEST(a_claim) { ... } in files test_<noun>.cpp, run by main.cpp. A case fails if a check
// does not hold, if an exception leaves it, or if the library holds more host memory after it than before.
#ifndef LOCH_TESTS_CPP_TEST_HPP
#define LOCH_TESTS_CPP_TEST_HPP

#include <loch/cpp/device.hpp>
#include <loch/cpp/error.hpp>

#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

namespace test
{

extern int failures;

// Adds a case to the list of the program.
struct adder {
    adder(const char *name, void (*run)());
};

inline void expect(bool holds, const char *file, int line, const char *text)
{
    if (holds) return;
    std::printf("%s:%d: not so: %s\n", file, line, text);
    failures++;
}

// Runs what has to fail; returns the status that it threw, LOCH_OK if it threw nothing.
template <class Function> loch_status thrown(Function &&function)
{
    try {
        function();
    } catch (const loch::error &error) {
        expect(error.what()[0] != '\0', __FILE__, __LINE__, "the error has a sentence");
        return error.status();
    }
    return LOCH_OK;
}

constexpr const char *sim_name = "sim:64MiB,granule=64KiB,backed";

// Runs a function on the CPU and on a simulated device.
template <class Function> void on_devices(Function &&function)
{
    for (const char *name : {"cpu", sim_name})
        function(loch::device(name));
}

inline bool equal(const char *a, const char *b)
{
    return std::strcmp(a, b) == 0;
}
inline bool has(const std::string &text, const char *part)
{
    return text.find(part) != std::string::npos;
}

// Returns the name of a file in the temporary folder, for this process alone.
std::string temporary(const char *name);

// What every handle with one owner is: moved without exceptions, not copied, as large as a pointer if `bytes` says so.
template <class T>
constexpr bool is_moved = std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T>;
template <class T> constexpr bool is_copied = std::is_copy_constructible_v<T> &&std::is_copy_assignable_v<T>;
template <class T> constexpr bool is_never_copied = !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
template <class T> constexpr bool is_owner = is_moved<T> &&is_never_copied<T> &&std::is_nothrow_destructible_v<T>;
template <class T> constexpr bool is_shared = is_moved<T> &&is_copied<T> &&std::is_nothrow_destructible_v<T>;
template <class T>
constexpr bool is_guard = is_never_copied<T> && !std::is_move_constructible_v<T> && !std::is_move_assignable_v<T> &&
                          std::is_nothrow_destructible_v<T>;

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what objects are after a move is what is tested
// Moves a handle to another one, to itself and back: an object is never released twice and never lost.
template <class Handle> void moves(Handle &handle)
{
    auto *const raw = handle.get();
    expect(raw != nullptr, __FILE__, __LINE__, "the handle is not empty at first");
    Handle other(std::move(handle));
    expect(!handle && !handle.get() && other.get() == raw, __FILE__, __LINE__, "the move empties its source");
    handle = std::move(other);
    expect(!other && handle.get() == raw, __FILE__, __LINE__, "the move back empties the other");
    Handle &self = handle;
    handle = std::move(self);
    expect(handle.get() == raw, __FILE__, __LINE__, "a move to itself changes nothing");
    other = Handle();
    std::swap(handle, other);
    expect(!handle && other.get() == raw, __FILE__, __LINE__, "a swap exchanges");
    std::swap(handle, other);
}
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)

} // namespace test

#define TEST(claim)                                                                                                    \
    static void claim();                                                                                               \
    static const test::adder adder_of_##claim(#claim, claim);                                                          \
    static void claim()
#define EXPECT(...) test::expect(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__)
#define EXPECT_THROWS(code, ...) EXPECT(test::thrown([&] { __VA_ARGS__; }) == (code))

#endif
