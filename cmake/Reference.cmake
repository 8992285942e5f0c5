# The target `reference`: the API reference generated from include/, in build/reference/html. Not part of `all`.
set(REFERENCE_DIR ${PROJECT_BINARY_DIR}/reference)
find_package(Doxygen QUIET)
if(NOT DOXYGEN_FOUND)
  message(STATUS "memsaver: Doxygen not found; the reference is not built (on Debian and Ubuntu: apt-get install doxygen)")
  return()
endif()
configure_file(docs/Doxyfile.in ${REFERENCE_DIR}/Doxyfile @ONLY)
add_custom_target(reference
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${REFERENCE_DIR}/html ${REFERENCE_DIR}/xml # otherwise removed names would stay
  COMMAND ${DOXYGEN_EXECUTABLE} ${REFERENCE_DIR}/Doxyfile
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMENT "Writing the reference: ${REFERENCE_DIR}/html/index.html" VERBATIM)
