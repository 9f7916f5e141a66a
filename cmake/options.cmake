# SPDX-License-Identifier: MIT
# What can be chosen when configuring. Inside another project (add_subdirectory, FetchContent) only the libraries that it links with are
# built unless it asks for more, and nothing here reaches that project: plain variables end with this folder.

option(LOCH_PROGRAM "Build the loch program" ${PROJECT_IS_TOP_LEVEL})
option(LOCH_EXAMPLES "Build the examples, the applications and the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(LOCH_ADAPTERS "Build the adapters: loch_torch, loch_onnxruntime, loch_umf, loch_malloc" ${PROJECT_IS_TOP_LEVEL})
option(LOCH_PYTHON "Build the Python package, where Python 3.11 and its headers are found" ${PROJECT_IS_TOP_LEVEL})
option(LOCH_INSTALL "Add Loch to what is installed" ${PROJECT_IS_TOP_LEVEL})
option(LOCH_INSTALL_STRIP "Install libraries and program without debug information" ON)
option(LOCH_INSTALL_DEBUG "Install that debug information in files of its own, in lib/.debug and bin/.debug" OFF)
option(LOCH_TESTS "Prepare the tests; those that need cmocka are left out where it is missing" ${PROJECT_IS_TOP_LEVEL})
option(LOCH_WERROR "Treat warnings as errors, with the compilers that CI knows: gcc up to 12, clang up to 14" OFF)
set(LOCH_SANITIZE "" CACHE STRING "Sanitizers for everything: address,undefined or thread; memory with clang")
option(LOCH_COVERAGE "Count which lines of the library run: make coverage" OFF)
option(LOCH_FUZZ "Build the fuzz targets with clang's libFuzzer; everything else is prepared for it, too" OFF)
set(LOCH_CMOCKA_DIR "$ENV{LOCH_CMOCKA_DIR}" CACHE PATH "A folder with include/cmocka.h and lib/libcmocka.a")
set(LOCH_CUDA_INCLUDE "" CACHE PATH "The folder with CUDA's cuda.h; the usual places are searched when empty")
set(LOCH_DLPACK_INCLUDE "" CACHE PATH "A folder with dlpack/dlpack.h; the usual places are searched when empty")

if(NOT CMAKE_BUILD_TYPE)
    if(LOCH_SANITIZE)
        set(CMAKE_BUILD_TYPE Debug) # assertions and lock ranks are checked
    else()
        set(CMAKE_BUILD_TYPE RelWithDebInfo) # -O2 -g -DNDEBUG
    endif()
endif()

if(NOT DEFINED CMAKE_INSTALL_LIBDIR)
    set(CMAKE_INSTALL_LIBDIR lib)
endif()
