# SPDX-License-Identifier: MIT
# A toolchain file: builds for arm64 with Debian's cross compiler, and runs tests under qemu's emulation of one process.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER CMAKE_CXX_COMPILER-NOTFOUND) # loch.hpp is tested natively
set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/../scripts/run-arm64)
# The emulator keeps a record of every page of addresses, so pools reserve less; and with a limit on addresses (scripts/run-arm64) it
# unmaps what MREMAP_DONTUNMAP leaves.
set(CMAKE_C_FLAGS_INIT "-DLOCHI_SPAN_MAX=0x80000000 -DLOCHI_NO_DONTUNMAP")
