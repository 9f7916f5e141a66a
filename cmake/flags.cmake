# SPDX-License-Identifier: MIT
# Compiler flags of everything in this tree, as one interface library; they do not reach users of the installed library.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)

add_library(loch_flags INTERFACE)
target_compile_definitions(loch_flags INTERFACE _GNU_SOURCE)
target_compile_options(loch_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Wno-sign-conversion
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
# Later compilers warn of things that nobody has seen yet; that must not stop anybody's build.
if(LOCH_WERROR AND ((CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13) OR
                    (CMAKE_C_COMPILER_ID STREQUAL Clang AND CMAKE_C_COMPILER_VERSION VERSION_LESS 15)))
    target_compile_options(loch_flags INTERFACE -Werror)
endif()
if(LOCH_SANITIZE)
    set(sanitize -fsanitize=${LOCH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    if(LOCH_SANITIZE MATCHES memory)
        list(APPEND sanitize -fsanitize-memory-track-origins)
    endif()
    target_compile_options(loch_flags INTERFACE ${sanitize} -O1)
    target_link_options(loch_flags INTERFACE ${sanitize})
endif()
if(LOCH_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "LOCH_FUZZ needs clang: cmake -DCMAKE_C_COMPILER=clang")
    endif()
    target_compile_options(loch_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(LOCH_COVERAGE) # -O0: lines as they are written; counters that threads share are atomic
    target_compile_options(loch_flags INTERFACE --coverage -O0 -fprofile-update=atomic)
    target_link_options(loch_flags INTERFACE --coverage)
endif()
