# `make install`: header, libraries, pkg-config file, CMake package, man pages, the command and its completion.
include(CMakePackageConfigHelpers)

install(TARGETS weft weft_static EXPORT weft-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/weft.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET weft_cmd)
    install(TARGETS weft_cmd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Completion of the command in the folders where both shells look.
install(FILES completion/weft.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME weft)
install(FILES completion/_weft DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
configure_package_config_file(cmake/weft-config.cmake.in weft-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
    DESTINATION ${package_dir})

# The prefix is known when installing (cmake --install --prefix), so the file is written then.
install(CODE "
    get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    set(PROJECT_VERSION \"${PROJECT_VERSION}\")
    set(PROJECT_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
    set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
    set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
    # The dynamic linker looks in /usr/lib by itself, and elsewhere only if it is told.
    set(WEFT_RPATH \" -Wl,-rpath,\\\"\\\${libdir}\\\"\")
    if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
        set(WEFT_RPATH \"\")
    endif()
    configure_file(\"${PROJECT_SOURCE_DIR}/weft.pc.in\" \"${PROJECT_BINARY_DIR}/weft.pc\" @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Each function has a page: a link to the page whose synopsis declares it, so that `man weft_bind` finds it.
# A page that has the name of its function needs no link. One would take the page's place: installing skips a file
# that is already there and is less than a second older or younger.
set(links ${PROJECT_BINARY_DIR}/man3)
file(REMOVE_RECURSE ${links})
file(GLOB pages CONFIGURE_DEPENDS man/*.3)
foreach(page ${pages})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
    get_filename_component(target ${page} NAME)
    file(STRINGS ${page} synopsis REGEX "^\\.BI \"[a-z].*weft_[a-z0-9_]+\\(")
    foreach(line ${synopsis})
        if(line MATCHES "(weft_[a-z0-9_]+)\\(")
            if(NOT target STREQUAL "${CMAKE_MATCH_1}.3")
                file(WRITE ${links}/${CMAKE_MATCH_1}.3 ".so man3/${target}\n")
            endif()
        endif()
    endforeach()
endforeach()
install(DIRECTORY ${links}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)

foreach(section 1 3)
    file(GLOB pages CONFIGURE_DEPENDS man/*.${section})
    if(pages)
        install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endif()
endforeach()
