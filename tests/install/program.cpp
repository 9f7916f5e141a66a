// SPDX-License-Identifier: MIT
// The same in C++: loch.hpp is installed, and needs nothing else.
#include <loch/loch.hpp>

#include <iostream>

int main()
{
    const loch::buffer memory(16, loch::device("cpu"));
    std::cout << loch_version() << ' ' << memory.device().name() << '\n';
    return memory.bytes() == 16 ? 0 : 1;
}
