# SPDX-License-Identifier: MIT
# libloch_malloc.so: malloc for programs that preload it. It has a copy of Loch of its own, whose names are hidden: a program that uses
# libloch.so itself shares no lock, no option and no host allocator with its malloc. Needs the GNU C library, whose own allocator has
# second names; sanitizers bring an allocator of their own.
include(CheckFunctionExists)
check_function_exists(__libc_memalign LOCH_HAS_LIBC_MEMALIGN)
if(LOCH_ADAPTERS AND LOCH_HAS_LIBC_MEMALIGN AND NOT LOCH_SANITIZE AND NOT LOCH_FUZZ)
    file(GLOB sources CONFIGURE_DEPENDS adapters/malloc/*.c)
    set(map ${PROJECT_SOURCE_DIR}/adapters/malloc/loch_malloc.map)
    add_library(loch_malloc SHARED ${sources})
    set_target_properties(loch_malloc PROPERTIES LINK_DEPENDS ${map})
    target_compile_options(loch_malloc PRIVATE -fexceptions) # C++ exceptions pass through the operators
    target_link_options(loch_malloc PRIVATE LINKER:--version-script=${map} LINKER:-z,nodelete LINKER:--no-undefined)
    target_link_libraries(loch_malloc PRIVATE loch_static Threads::Threads ${CMAKE_DL_LIBS} loch_flags)
endif()
