# SPDX-License-Identifier: MIT
# C++, for the tests and the example of loch.hpp: LOCH_CXX is true where a compiler for it is found. Nothing that is installed
# needs it.
include(CheckLanguage)

check_language(CXX)
if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    if(LOCH_SANITIZE AND NOT CMAKE_CXX_COMPILER_ID STREQUAL CMAKE_C_COMPILER_ID)
        message(STATUS "C++: not with this sanitizer, its run-time would be another compiler's")
    else()
        set(LOCH_CXX ON)
    endif()
endif()
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
