# SPDX-License-Identifier: MIT
# tests/fake: a CUDA driver for tests, which is a test double. Programs of tests/gpu and tests/contract run on it as they run on a GPU.

file(GLOB fake_sources CONFIGURE_DEPENDS fake/*.c)
list(FILTER fake_sources EXCLUDE REGEX "/test_")
set(fake_texts ${PROJECT_SOURCE_DIR}/parts/kernel/src/text.c)
file(GLOB texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/parts/kernel/ptx/*.ptx)
set_source_files_properties(${fake_texts} PROPERTIES OBJECT_DEPENDS "${texts}"
    COMPILE_DEFINITIONS LOCH_KERNEL_PTX="${PROJECT_SOURCE_DIR}/parts/kernel/ptx")

# loch_add_fake(NAME DEFINITION...): a library build/tests/fake/NAME. Definitions take entry points away, as older drivers lack them.
function(loch_add_fake name)
    add_library(fake.${name} MODULE EXCLUDE_FROM_ALL ${fake_sources} ${fake_texts})
    set_target_properties(fake.${name} PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${name} C_VISIBILITY_PRESET hidden
        CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fake)
    target_include_directories(fake.${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/parts/kernel ${PROJECT_SOURCE_DIR}/parts/kernel/src)
    target_compile_definitions(fake.${name} PRIVATE ${ARGN})
    if(LOCH_CXX)
        target_sources(fake.${name} PRIVATE parts/kernel/emulated.cpp)
    else()
        target_compile_definitions(fake.${name} PRIVATE FAKE_NO_KERNELS)
    endif()
    target_link_libraries(fake.${name} PRIVATE Threads::Threads loch_flags)
    add_dependencies(tests fake.${name})
endfunction()
if(LOCH_CXX)
    set_source_files_properties(parts/kernel/emulated.cpp PROPERTIES
        COMPILE_OPTIONS "-std=c++17;-w;-fno-strict-aliasing;-fno-exceptions;-fno-rtti;-fno-threadsafe-statics")
endif()
loch_add_fake(libcuda.so.1)
loch_add_fake(libcuda_old.so.1 FAKE_OLD)
loch_add_fake(libcuda_oldest.so.1 FAKE_OLD FAKE_OLDEST)

# loch_on_fake(NAME SWITCHES VARIABLE=VALUE...): the test finds the fake in the place of the driver.
function(loch_on_fake test switches)
    get_test_property(${test} ENVIRONMENT environment)
    if(NOT environment)
        set(environment "")
    endif()
    set_property(TEST ${test} PROPERTY ENVIRONMENT ${environment} LOCH_TEST_FAKE_CUDA=${switches}
        LOCH_CUDA_LIBRARY=${PROJECT_BINARY_DIR}/tests/fake/libcuda.so.1 ${ARGN})
endfunction()

file(GLOB sources CONFIGURE_DEPENDS gpu/test_*.c contract/test_*.c)
list(FILTER sources EXCLUDE REGEX "/test_cuda_(comm|embedder|libraries)\\.c$") # they need NCCL, cuBLAS and cuDNN
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(kind ${source} DIRECTORY)
    get_filename_component(kind ${kind} NAME)
    if(NOT TARGET ${kind}.${name})
        continue() # test_cuda_embedder without the applications
    endif()
    loch_add_test(fake.${kind}.${name} fake 400 $<TARGET_FILE:${kind}.${name}>)
    if(kind STREQUAL gpu)
        set(late ",late=50") # programs of gpu find out what is not ordered; the others would only take longer
    else()
        set(late "")
    endif()
    loch_on_fake(fake.${kind}.${name} "quiet${late}" LOCH_TEST_DEVICES=cuda:0 LOCH_TEST_KERNELS=few)
endforeach()

# Drivers that share no events, as between containers: processes wait on the host.
foreach(call IN ITEMS cuIpcGetEventHandle cuIpcOpenEventHandle)
    loch_add_test(fake.gpu.test_cuda_share.${call} fake 400 $<TARGET_FILE:gpu.test_cuda_share>)
    loch_on_fake(fake.gpu.test_cuda_share.${call} "quiet,late=50,fail=${call}:1:forever" LOCH_TEST_DEVICES=cuda:0)
endforeach()

file(GLOB sources CONFIGURE_DEPENDS fake/test_*.c)
foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    target_link_libraries(fake.${name} PRIVATE ${CMAKE_DL_LIBS})
    if(name MATCHES "^test_(edges|kernel_calls)$")
        target_link_libraries(fake.${name} PRIVATE loch_kernel_static)
        target_include_directories(fake.${name} PRIVATE ${PROJECT_SOURCE_DIR}/parts/kernel/src)
    endif()
    if(name STREQUAL test_share_calls)
        target_link_libraries(fake.${name} PRIVATE loch_share_static)
        target_include_directories(fake.${name} PRIVATE ${PROJECT_SOURCE_DIR}/parts/share/src)
    endif()
    add_dependencies(fake.${name} fake.libcuda.so.1 fake.libcuda_old.so.1 fake.libcuda_oldest.so.1)
    loch_on_fake(fake.${name} "quiet,devices=2,total=256MiB")
endforeach()
