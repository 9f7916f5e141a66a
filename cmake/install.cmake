# SPDX-License-Identifier: MIT
# Headers, libraries, adapters, the program with its manual pages and completion, the pkg-config files, the CMake package, the
# licence and the docs. The installed tree can be moved: pkg-config files and the CMake package find their prefix from where they lie.
# `make uninstall` removes all of it: scripts/uninstall.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/loch)
set(LOCH_ZSH_COMPLETIONS ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "Where the completion for zsh is installed")

# Notes which folders an installation makes, before it makes them: scripts/uninstall removes those and no others.
set(folders ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${package_dir} ${CMAKE_INSTALL_INCLUDEDIR}
    ${CMAKE_INSTALL_DOCDIR}/docs ${CMAKE_INSTALL_DOCDIR}/examples ${CMAKE_INSTALL_DOCDIR}/apps
    ${CMAKE_INSTALL_MANDIR}/man1 ${CMAKE_INSTALL_MANDIR}/man3 ${CMAKE_INSTALL_MANDIR}/man7
    ${CMAKE_INSTALL_DATADIR}/bash-completion/completions ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
    ${LOCH_ZSH_COMPLETIONS})
if(LOCH_INSTALL_DEBUG)
    list(APPEND folders ${CMAKE_INSTALL_LIBDIR}/.debug ${CMAKE_INSTALL_BINDIR}/.debug)
endif()
file(GLOB_RECURSE inner CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${PROJECT_SOURCE_DIR} include/* docs/* examples/* apps/*)
foreach(path IN LISTS inner)
    if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${path})
        string(REGEX REPLACE "^include" ${CMAKE_INSTALL_INCLUDEDIR} path ${path})
        string(REGEX REPLACE "^(docs|examples|apps)" "${CMAKE_INSTALL_DOCDIR}/\\1" path ${path})
        list(APPEND folders ${path})
    endif()
endforeach()
install(CODE "set(LOCH_FOLDERS \"${folders}\")\nset(LOCH_FOLDERS_FILE \"${PROJECT_BINARY_DIR}/install_folders.txt\")")
install(SCRIPT cmake/note-folders.cmake)

file(RELATIVE_PATH LOCH_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" LOCH_PC_PREFIX "\${pcfiledir}/${LOCH_PC_PREFIX}")
if(CMAKE_INSTALL_PREFIX STREQUAL /usr) # a package of the system: pkg-config leaves out the compiler's own folders
    set(LOCH_PC_PREFIX /usr)
endif()
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
foreach(adapter IN LISTS loch_linked_adapters)
    install(FILES adapters/${adapter}/loch_${adapter}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
install(FILES adapters/arrow/loch_arrow.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET loch_malloc)
    install(TARGETS loch_malloc)
endif()
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

# --- the docs: README.md, SECURITY.md, CHANGELOG.md and docs/ keep their places, so that links between them work ---

install(FILES LICENSE README.md SECURITY.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
    FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg" PATTERN "*.schema.json" PATTERN man EXCLUDE)
install(DIRECTORY examples apps DESTINATION ${CMAKE_INSTALL_DOCDIR}
    FILES_MATCHING PATTERN "*.c" PATTERN "*.h" PATTERN "*.cpp" PATTERN "*.cu" PATTERN "*.ptx" PATTERN "*.py" PATTERN "*.md")

# --- manual pages, written by the program that was built, and completion ---

if(TARGET loch_program)
    install(FILES tools/completion/loch.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME loch)
    install(FILES tools/completion/loch.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    install(FILES tools/completion/_loch DESTINATION ${LOCH_ZSH_COMPLETIONS})
endif()
if(TARGET loch_program AND NOT LOCH_SANITIZE AND NOT LOCH_COVERAGE AND
   (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
    file(GLOB page_sources CONFIGURE_DEPENDS docs/man/* include/loch/*.h parts/*/include/loch/*.h)
    add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/done
        COMMAND ${PROJECT_SOURCE_DIR}/docs/man/make-pages $<TARGET_FILE:loch_program> ${PROJECT_BINARY_DIR}/man/pages
            ${PROJECT_SOURCE_DIR} ${CMAKE_CROSSCOMPILING_EMULATOR}
        COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/done
        DEPENDS loch_program ${page_sources} CHANGELOG.md examples/01_devices.c)
    add_custom_target(loch_man ALL DEPENDS ${PROJECT_BINARY_DIR}/man/done)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/pages/ DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()

# --- libraries and program without debug information: behind all files ---

if(LOCH_INSTALL_STRIP AND NOT LOCH_SANITIZE AND NOT LOCH_COVERAGE AND CMAKE_STRIP AND CMAKE_OBJCOPY)
    install(CODE "set(LOCH_STRIP \"${CMAKE_STRIP}\")\nset(LOCH_OBJCOPY \"${CMAKE_OBJCOPY}\")\nset(LOCH_KEEP_DEBUG ${LOCH_INSTALL_DEBUG})")
    install(SCRIPT cmake/strip-installed.cmake)
endif()
