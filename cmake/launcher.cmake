# SPDX-License-Identifier: MIT
# LOCH_LAUNCHER runs a test, LOCH_TEST_ENVIRONMENT is what it sees: for sanitizers, and for programs of another processor.
#
# Sanitizers of this compiler generation want their shadow memory at fixed addresses and start only by luck where the
# kernel randomises more than 28 bits of an address; there, tests run without randomisation.

set(LOCH_LAUNCHER "")
set(LOCH_TEST_ENVIRONMENT "")
if(CMAKE_CROSSCOMPILING)
    set(LOCH_LAUNCHER ${CMAKE_CROSSCOMPILING_EMULATOR})
    set(LOCH_TEST_ENVIRONMENT LOCH_TEST_LAUNCHER=${CMAKE_CROSSCOMPILING_EMULATOR}) # for tests that start themselves
endif()
if(LOCH_SANITIZE)
    set(LOCH_TEST_ENVIRONMENT
        ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1
        UBSAN_OPTIONS=print_stacktrace=1
        MSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1
        TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1)
    set(random_bits 0)
    if(EXISTS /proc/sys/vm/mmap_rnd_bits)
        execute_process(COMMAND cat /proc/sys/vm/mmap_rnd_bits OUTPUT_VARIABLE random_bits
            OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    if(NOT random_bits MATCHES "^[0-9]+$" OR random_bits GREATER 28)
        execute_process(COMMAND setarch -R true RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
        if(result EQUAL 0)
            set(LOCH_LAUNCHER setarch -R)
        endif()
    endif()
endif()
