# cmake --install: the headers, and a package that find_package(memsaver) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/memsaver)

install(TARGETS memsaver EXPORT memsaverTargets FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT memsaverTargets NAMESPACE memsaver:: DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/memsaverConfig.cmake.in
  ${PROJECT_BINARY_DIR}/memsaverConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0, each minor version is a namespace and so an interface of its own.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/memsaverConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)

install(FILES
  ${PROJECT_BINARY_DIR}/memsaverConfig.cmake
  ${PROJECT_BINARY_DIR}/memsaverConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/memsaverToolkit.cmake
  DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
