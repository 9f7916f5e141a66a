# SPDX-License-Identifier: MIT
# apps/embedder: its files are a library, because tests use them too, with two programs: main.c, and driver.c
# for the comparisons in bench/embedder.

file(GLOB embedder_sources CONFIGURE_DEPENDS apps/embedder/*.c)
list(REMOVE_ITEM embedder_sources ${PROJECT_SOURCE_DIR}/apps/embedder/main.c
    ${PROJECT_SOURCE_DIR}/apps/embedder/driver.c)
file(GLOB embedder_kernels CONFIGURE_DEPENDS apps/embedder/cpu_kernels*.c)
set_source_files_properties(${embedder_kernels} PROPERTIES COMPILE_OPTIONS -ffp-contract=fast) # a * b + c is one instruction
set_source_files_properties(apps/embedder/cuda.c PROPERTIES
    COMPILE_DEFINITIONS EMBEDDER_PTX="${PROJECT_SOURCE_DIR}/apps/embedder/kernels.ptx"
    OBJECT_DEPENDS ${PROJECT_SOURCE_DIR}/apps/embedder/kernels.ptx)

add_library(apps_embedder_parts STATIC ${embedder_sources})
set_target_properties(apps_embedder_parts PROPERTIES OUTPUT_NAME embedder
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/apps)
# Programs choose between shared libraries and archives.
target_include_directories(apps_embedder_parts PRIVATE include parts/kernel/include parts/safetensors/include
    INTERFACE apps/embedder)
target_link_libraries(apps_embedder_parts PUBLIC Threads::Threads m ${CMAKE_DL_LIBS} PRIVATE loch_flags)

foreach(program IN ITEMS apps:main bench:driver)
    string(REGEX REPLACE "(.*):(.*)" "\\1;\\2" pair ${program})
    list(GET pair 0 folder)
    list(GET pair 1 file)
    add_executable(${folder}_embedder apps/embedder/${file}.c)
    set_target_properties(${folder}_embedder PROPERTIES
        OUTPUT_NAME embedder RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
    target_link_libraries(${folder}_embedder PRIVATE apps_embedder_parts loch_kernel loch_safetensors loch_engine loch_flags)
endforeach()
