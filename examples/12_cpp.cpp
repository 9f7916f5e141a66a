// SPDX-License-Identifier: MIT
// Loch in C++: handles release their objects, guards end with their block, failures are exceptions, and containers take
// memory from any allocator of host memory.
#include <loch/engine.hpp>

#include <iostream>
#include <numeric>

// Numbers for the time of one function, counted by their own allocator.
static int sum_of_squares(const loch::pool &from, int n)
{
    std::vector<int, loch::std_allocator<int>> squares(from);
    for (int i = 1; i <= n; i++)
        squares.push_back(i * i);
    return std::accumulate(squares.begin(), squares.end(), 0);
}

static float tensors(const loch::device &device, const loch::timeline &timeline)
{
    const loch::stream stream(device);
    const loch::timeline::span span = timeline.begin("tensors", stream); // to the end of this function
    float numbers[] = {1.5f, 1.5f, 1.5f, 1.5f, 2, 2, 2, 2};
    const loch::tensor here = loch::tensor::wrap(numbers, {2, 4}); // no copy
    const loch::tensor there = here.to(loch::place(device).on(stream).named("table"));
    there.slice(1, 2).fill(-1, stream); // the columns from the third on, in the order of the stream
    stream.sync();
    there[0].write(numbers + 4, 4); // the first row becomes the second
    loch::mapping<float>(there).at({1, 0}) = 7;
    std::cout << there.describe() << '\n' << there << '\n';
    return there.transpose(0, 1).item<float>({3, 1}) + there.item<float>({0, 3});
}

// One request: what it allocates is freed at its end, except what it promotes. Nothing moves meanwhile.
static std::size_t serve(const loch::pool &pool)
{
    loch::session session(pool, "request");
    const loch::forbid_moving still(pool);
    const loch::session_guard inside = session.enter();
    static_cast<void>(pool.alloc(1 << 20)); // belongs to the session
    return session.stats().bytes;
}

// A buffer that C code of the program holds too, as a reference of its own.
static bool share(const loch::pool &pool)
{
    loch::unique_buffer cache(1000, pool);
    cache.resize(4000);
    const std::uint64_t id = cache.id();
    const loch::buffer shared = std::move(cache), again = loch::buffer::retain(shared.get());
    const loch::stream stream(pool.device()), same = loch::stream::retain(stream.get());
    return again.id() == id && !again.is_on_host() && same.id() == stream.id() && shared.references() == 2;
}

int main()
{
    try {
        const loch::pool counted(loch::device("cpu"), "counted");
        const int sum = sum_of_squares(counted, 1000);
        const loch_stats stats = counted.stats();
        std::cout << "sum of squares: " << sum << ", at most " << stats.peak_requested_bytes << " bytes, "
                  << stats.blocks << " blocks left\n";

        const loch::device device("sim:1GiB");
        const loch::timeline timeline(0);
        const float found = tensors(device, timeline);

        loch_pool_options options{};
        options.limit_bytes = 64 << 20;
        const loch::pool pool(device, "model", options);
        const std::size_t served = serve(pool);
        std::cout << timeline.count() << " span, " << served << " bytes in the session, " << pool.stats().blocks
                  << " blocks after it\n";
        bool is_refused = false;
        try {
            const loch::block block(pool, 65 << 20);
        } catch (const loch::error &error) {
            std::cout << error.name() << ": " << error.what() << '\n';
            is_refused = error.status() == LOCH_E_LIMIT;
        }
        loch::workers workers(2);
        const bool is_shared = workers.run_wait([&] { return share(pool); });
        return sum == 333833500 && stats.blocks == 0 && found == 1 && served == 1 << 20 && is_refused && is_shared ? 0
                                                                                                                   : 1;
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
