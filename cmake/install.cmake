# SPDX-License-Identifier: MIT
# Headers, libraries, adapters, the program, the pkg-config file and the CMake package. The installed tree can be moved: both
# files find their prefix from where they lie.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/loch)
file(RELATIVE_PATH LOCH_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" LOCH_PC_TO_PREFIX "${LOCH_PC_TO_PREFIX}")
configure_file(cmake/loch.pc.in loch.pc @ONLY)
foreach(part IN LISTS loch_parts)
    configure_file(cmake/loch-${part}.pc.in loch-${part}.pc @ONLY)
endforeach()
configure_package_config_file(cmake/loch-config.cmake.in ${PROJECT_BINARY_DIR}/loch-config.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/loch-config-version.cmake COMPATIBILITY SameMinorVersion)

if(TARGET loch_program)
    file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(loch_program PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS loch_program)
endif()
foreach(adapter IN LISTS loch_adapters)
    set_target_properties(loch_${adapter} PROPERTIES INSTALL_RPATH "$ORIGIN") # all libraries lie side by side
    install(TARGETS loch_${adapter})
endforeach()
foreach(adapter onnxruntime umf)
    if(TARGET loch_${adapter})
        install(FILES adapters/${adapter}/loch_${adapter}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    endif()
endforeach()
install(FILES adapters/arrow/loch_arrow.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS loch_shared loch_static EXPORT loch-targets)
foreach(part IN LISTS loch_parts)
    set_target_properties(loch_${part} PROPERTIES INSTALL_RPATH "$ORIGIN") # all libraries lie side by side
    install(TARGETS loch_${part} loch_${part}_static EXPORT loch-targets)
    install(DIRECTORY parts/${part}/include/loch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT loch-targets NAMESPACE loch:: DESTINATION ${package_dir})
install(DIRECTORY include/loch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_BINARY_DIR}/loch-config.cmake ${PROJECT_BINARY_DIR}/loch-config-version.cmake
        DESTINATION ${package_dir})
set(pc_files ${loch_parts})
list(TRANSFORM pc_files REPLACE "(.+)" "${PROJECT_BINARY_DIR}/loch-\\1.pc")
install(FILES ${PROJECT_BINARY_DIR}/loch.pc ${pc_files}
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
