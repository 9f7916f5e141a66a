# SPDX-License-Identifier: MIT
# Finds cmocka and makes the target loch_cmocka; no target where there is none.
#
# Test programs have to run on machines without cmocka, so a static library is taken first: LOCH_CMOCKA_DIR, then what
# scripts/setup built into the user's cache, then the system's. Of a shared one, a copy is put beside the tests.

set(cache "$ENV{XDG_CACHE_HOME}")
if(NOT cache)
    set(cache "$ENV{HOME}/.cache")
endif()
file(GLOB built LIST_DIRECTORIES true ${cache}/loch/cmocka-*)
set(hints ${LOCH_CMOCKA_DIR} ${built})

foreach(found IN ITEMS LOCH_CMOCKA_INCLUDE LOCH_CMOCKA_LIBRARY) # the cache may have been emptied since
    if(${found} AND NOT EXISTS ${${found}})
        unset(${found} CACHE)
    endif()
endforeach()
find_path(LOCH_CMOCKA_INCLUDE cmocka.h HINTS ${hints} PATH_SUFFIXES include)
find_library(LOCH_CMOCKA_LIBRARY NAMES libcmocka.a cmocka HINTS ${hints} PATH_SUFFIXES lib)
mark_as_advanced(LOCH_CMOCKA_INCLUDE LOCH_CMOCKA_LIBRARY)

if(LOCH_CMOCKA_INCLUDE AND LOCH_CMOCKA_LIBRARY)
    add_library(loch_cmocka INTERFACE)
    target_include_directories(loch_cmocka SYSTEM INTERFACE ${LOCH_CMOCKA_INCLUDE})
    if(LOCH_CMOCKA_LIBRARY MATCHES "\\.a$")
        target_link_libraries(loch_cmocka INTERFACE ${LOCH_CMOCKA_LIBRARY})
    else()
        file(GLOB copies ${LOCH_CMOCKA_LIBRARY}*)
        file(COPY ${copies} DESTINATION ${PROJECT_BINARY_DIR}/tests/lib)
        target_link_libraries(loch_cmocka INTERFACE ${PROJECT_BINARY_DIR}/tests/lib/libcmocka.so)
    endif()
    message(STATUS "cmocka: ${LOCH_CMOCKA_LIBRARY}")
else()
    message(STATUS "cmocka: not found, programs that need it are left out (scripts/setup test brings it)")
endif()
