# SPDX-License-Identifier: MIT
# The Python package `loch`: the extension module loch._core and the files of python/loch.
#
# In the build tree the package lies in BUILD/python/loch and is used with PYTHONPATH=BUILD/python. scikit-build-core
# (pyproject.toml) installs it into a wheel, with the libraries, the program and the headers inside the package.

# find_package(Python) before CMake 3.26 does not know the limited API: the include folders of the interpreter serve, and the
# module links with no library of Python. The tag of a wheel is right only if SKBUILD_SABI_VERSION decides.
set(Python3_FIND_VIRTUALENV FIRST)
set(python_components Interpreter Development.Module)
if(SKBUILD_SABI_COMPONENT AND CMAKE_VERSION VERSION_GREATER_EQUAL 3.26)
    list(APPEND python_components ${SKBUILD_SABI_COMPONENT})
endif()
if(SKBUILD)
    find_package(Python3 3.11 REQUIRED COMPONENTS ${python_components})
else()
    find_package(Python3 3.11 QUIET COMPONENTS ${python_components})
endif()
if(NOT Python3_Development.Module_FOUND OR NOT Python3_Interpreter_FOUND)
    message(STATUS "Python 3.11 with its headers: not found, the package loch is not built")
    return()
endif()

# A free-threaded interpreter before 3.15 has no limited API.
execute_process(COMMAND ${Python3_EXECUTABLE} -c
    "import sysconfig; print(int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))"
    OUTPUT_VARIABLE is_free_threaded OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(is_limited ON)
if(is_free_threaded OR (SKBUILD AND NOT SKBUILD_SABI_VERSION))
    set(is_limited OFF)
endif()

file(GLOB python_sources CONFIGURE_DEPENDS python/src/*.c)
add_library(loch_python MODULE ${python_sources})
target_include_directories(loch_python SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
target_include_directories(loch_python PRIVATE adapters/torch) # door.h
target_link_libraries(loch_python PRIVATE loch_safetensors loch_plan loch_tensor loch_kit Threads::Threads m loch_flags)
set(python_folder ${PROJECT_BINARY_DIR}/python/loch)
set_target_properties(loch_python PROPERTIES PREFIX "" OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${python_folder})
if(is_limited)
    target_compile_definitions(loch_python PRIVATE Py_LIMITED_API=0x030B0000)
    set_target_properties(loch_python PROPERTIES SUFFIX .abi3.so)
else()
    set_target_properties(loch_python PROPERTIES SUFFIX .${Python3_SOABI}.so)
endif()

set(LOCH_TORCH_SHIMS "" CACHE PATH "Folder with shims of PyTorch for the wheel")

if(SKBUILD)
    set(package loch)
    set_target_properties(loch_python PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
    install(TARGETS loch_python LIBRARY DESTINATION ${package})
    # Wheels hold no symbolic links: the file carries the name that programs load.
    set(libraries loch_shared)
    foreach(library IN LISTS loch_libraries)
        list(APPEND libraries loch_${library})
    endforeach()
    foreach(library IN LISTS libraries)
        set_target_properties(${library} PROPERTIES VERSION ${loch_soversion})
    endforeach()
    foreach(adapter IN LISTS loch_adapters)
        list(APPEND libraries loch_${adapter})
    endforeach()
    foreach(library IN LISTS libraries)
        set_target_properties(${library} PROPERTIES INSTALL_RPATH "$ORIGIN")
        install(TARGETS ${library} LIBRARY DESTINATION ${package}/lib NAMELINK_SKIP)
    endforeach()
    # Shims of PyTorch that were built before (scripts/build-torch-shim), and what loch.torch compiles one from.
    if(LOCH_TORCH_SHIMS)
        install(DIRECTORY ${LOCH_TORCH_SHIMS}/ DESTINATION ${package}/lib FILES_MATCHING PATTERN "loch_torch_*.so")
    endif()
    install(DIRECTORY adapters/torch/shim DESTINATION ${package}/torch/_source/adapters/torch)
    install(FILES adapters/torch/door.h DESTINATION ${package}/torch/_source/adapters/torch)
    install(DIRECTORY parts/share/include parts/share/src DESTINATION ${package}/torch/_source/parts/share)
    install(DIRECTORY parts/plan/include parts/plan/src DESTINATION ${package}/torch/_source/parts/plan)
    install(DIRECTORY src/kit DESTINATION ${package}/torch/_source/src)
    install(PROGRAMS scripts/build-torch-shim DESTINATION ${package}/torch/_source/scripts)
    install(FILES adapters/arrow/loch_arrow.hpp adapters/arrow/shim.cpp DESTINATION ${package}/arrow/_source)
    set_target_properties(loch_program PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS loch_program RUNTIME DESTINATION ${package}/bin)
    install(DIRECTORY include/loch DESTINATION ${package}/include FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
    foreach(part IN LISTS loch_parts)
        install(DIRECTORY parts/${part}/include/loch DESTINATION ${package}/include FILES_MATCHING PATTERN "*.h")
    endforeach()
else()
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/loch
        python/loch/*.py python/loch/*.pyi python/loch/py.typed)
    foreach(file IN LISTS files)
        configure_file(python/loch/${file} ${python_folder}/${file} COPYONLY)
    endforeach()
    # The libraries and the program of the build tree, where the package looks for them.
    foreach(folder IN ITEMS lib bin)
        file(CREATE_LINK ../../${folder} ${python_folder}/${folder} SYMBOLIC)
    endforeach()
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include ${python_folder}/include SYMBOLIC)
    # What loch.torch compiles a shim from. A link of an earlier build would lead into the source tree.
    if(IS_SYMLINK ${python_folder}/torch/_source)
        file(REMOVE ${python_folder}/torch/_source)
    endif()
    file(MAKE_DIRECTORY ${python_folder}/torch/_source)
    foreach(folder IN ITEMS adapters parts scripts src)
        file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${python_folder}/torch/_source/${folder} SYMBOLIC)
    endforeach()
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/adapters/arrow ${python_folder}/arrow/_source SYMBOLIC) # and loch.arrow
endif()
