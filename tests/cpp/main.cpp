// SPDX-License-Identifier: MIT
// Runs the cases of a program, and prints each that fails.
#include "test.hpp"

#include <loch/host.h>
#include <loch/registry.h>

#include <cstdlib>
#include <unistd.h>
#include <utility>
#include <vector>

int test::failures;

static std::vector<std::pair<const char *, void (*)()>> &cases()
{
    static std::vector<std::pair<const char *, void (*)()>> list;
    return list;
}

test::adder::adder(const char *name, void (*run)())
{
    cases().emplace_back(name, run);
}

std::string test::temporary(const char *name)
{
    const char *folder = std::getenv("TMPDIR");
    return std::string(folder && *folder ? folder : "/tmp") + "/loch-cpp-" + std::to_string(getpid()) + "-" + name;
}

static std::size_t blocks_of_library()
{
    loch_host_usage usage{};
    usage.size = sizeof usage;
    EXPECT(loch_host_get_usage(&usage) == LOCH_OK);
    return usage.blocks;
}

int main()
{
    for (const auto &[name, run] : cases()) {
        const std::size_t before = blocks_of_library();
        const int failed = test::failures;
        try {
            run();
        } catch (const std::exception &error) {
            std::printf("not caught: %s\n", error.what());
            test::failures++;
        }
        std::size_t leaks = 0; // the default allocators of the devices
        EXPECT(loch_registry_clear(nullptr, nullptr, &leaks) == LOCH_OK && leaks == 0);
        EXPECT(blocks_of_library() == before);
        if (test::failures != failed) std::printf("failed: %s\n", name);
    }
    std::printf("%zu cases, %d failed checks\n", cases().size(), test::failures);
    return test::failures || cases().empty() ? 1 : 0;
}
