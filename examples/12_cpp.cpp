// SPDX-License-Identifier: MIT
// Tensors and buffers in C++: handles release their references, failures are exceptions, and containers of std::pmr
// take memory from any allocator of host memory.
#include <loch/loch.hpp>

#include <iostream>
#include <numeric>

// Numbers for the time of one function, counted by their own allocator.
static int sum_of_squares(const loch::allocator &from, int n)
{
    loch::memory_resource resource(from);
    std::pmr::vector<int> squares(&resource);
    for (int i = 1; i <= n; i++)
        squares.push_back(i * i);
    return std::accumulate(squares.begin(), squares.end(), 0);
}

static float tensors(const loch::device &device)
{
    const loch::stream stream(device);
    const loch::tensor table = loch::tensor::full({3, 4}, 1.5f);
    table[1].fill(2); // a view of a row
    const loch::tensor there = table.to(loch::place(device).on(stream).named("table"));
    there.slice(1, 2).fill(-1, stream); // the columns from the third on, in the order of the stream
    stream.sync();
    std::cout << there.describe() << '\n' << there << '\n';
    return there.transpose(0, 1).item<float>({3, 1}) + there.item<float>({1, 1});
}

int main()
{
    try {
        const loch::allocator counted = loch::allocator::pool(loch::device("cpu"), "counted");
        const int sum = sum_of_squares(counted, 1000);
        const loch_stats stats = counted.stats();
        std::cout << "sum of squares: " << sum << ", at most " << stats.peak_requested_bytes << " bytes, "
                  << stats.blocks << " blocks left\n";

        const loch::device device("sim:1GiB,backed");
        const float found = tensors(device);
        try {
            const loch::host_array<float> array(100, device);
        } catch (const loch::error &error) {
            std::cout << loch_status_name(error.status()) << ": " << error.what() << '\n';
        }
        return sum == 333833500 && stats.blocks == 0 && found == 1 ? 0 : 1;
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
