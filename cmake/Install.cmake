# cmake --install: installs the headers, the compiled form and the C interface if they were built, a package for
# find_package(memsaver), and files for pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/memsaver)

# The libraries have exports of their own, which the package reads only if they exist, because programs that do not link
# them need not build them. The header of the C interface is installed with the others.
install(TARGETS memsaver memsaver_impl EXPORT memsaverTargets FILE_SET HEADERS)
foreach(library memsaver_compiled memsaver_c)
  install(TARGETS ${library} EXPORT ${library}Targets OPTIONAL INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
foreach(export memsaver memsaver_compiled memsaver_c)
  install(EXPORT ${export}Targets NAMESPACE memsaver:: DESTINATION ${package_dir})
endforeach()

install(TARGETS memsaver_keeper memsaver_top OPTIONAL)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/memsaverConfig.cmake.in
  ${PROJECT_BINARY_DIR}/memsaverConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR)
# Before 1.0, each minor version has its own namespace and thus its own ABI.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/memsaverConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(FILES
  ${PROJECT_BINARY_DIR}/memsaverConfig.cmake
  ${PROJECT_BINARY_DIR}/memsaverConfigVersion.cmake
  DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# For pkg-config. Paths are relative to the file, so that the folder can be moved.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  set(pc_prefix "\${pcfiledir}/${pc_prefix}")
endif()
cmake_path(APPEND pc_includedir "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/memsaver.pc.in ${PROJECT_BINARY_DIR}/memsaver.pc @ONLY)
cmake_path(APPEND pc_libdir "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/memsaver-c.pc.in ${PROJECT_BINARY_DIR}/memsaver-c.pc.configured @ONLY)
add_custom_command(TARGET memsaver_c POST_BUILD # exists only if the library was built
  COMMAND ${CMAKE_COMMAND} -E copy memsaver-c.pc.configured memsaver-c.pc
  WORKING_DIRECTORY ${PROJECT_BINARY_DIR} VERBATIM)
install(FILES ${PROJECT_BINARY_DIR}/memsaver.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/memsaver-c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig OPTIONAL)
