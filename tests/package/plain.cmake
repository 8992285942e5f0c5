# cmake -DSOURCE=... -DBUILD=... -DCXX=... -DGENERATOR=... -P plain.cmake
# Configures memsaver as on a machine without doctest, xxHash, Google Benchmark, Doxygen, Python and a toolkit, and
# installs it without building anything.
set(missing)
foreach(package doctest benchmark Doxygen Python3 CUDAToolkit)
  list(APPEND missing -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
file(REMOVE_RECURSE ${BUILD})

function(configure folder wanted) # further arguments are options; `wanted`: 0, or 1 if it must fail
  execute_process(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -B ${BUILD}/${folder} ${ARGN}
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT failed STREQUAL wanted)
    message(FATAL_ERROR "CMake exited with ${failed}, not ${wanted}:\n${output}")
  endif()
  string(REPLACE ";" "," output "${output}") # a semicolon would separate the items of a list
  set(output "${output}" PARENT_SCOPE)
endfunction()

configure(all 0 -S ${SOURCE} ${missing} -DMEMSAVER_XXHASH_INCLUDE_DIR=OFF -DMEMSAVER_BUILD_BENCHMARKS=ON)
foreach(said "doctest not found" "Google Benchmark not found" "Doxygen not found")
  string(REGEX MATCHALL "memsaver: ${said}[^\n]*apt-get install" lines "${output}")
  list(LENGTH lines count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "'${said}' must be printed once, with the package to install:\n${output}")
  endif()
endforeach()
if(output MATCHES "Warning|Error")
  message(FATAL_ERROR "CMake printed a warning or an error:\n${output}")
endif()
configure(no_xxhash 0 -S ${SOURCE} -DCMAKE_DISABLE_FIND_PACKAGE_doctest=OFF -DMEMSAVER_XXHASH_INCLUDE_DIR=OFF
  -DMEMSAVER_BUILD_EXAMPLES=OFF)
if(NOT output MATCHES "memsaver: (xxHash|doctest) not found[^\n]*apt-get install")
  message(FATAL_ERROR "The missing xxHash is not reported:\n${output}")
endif()
configure(all 1 -S ${SOURCE} ${missing} -DMEMSAVER_REQUIRE_TESTS=ON) # as in CI: missing tests are an error

execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD}/all --prefix ${BUILD}/prefix OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
set(user "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\nfind_package(memsaver REQUIRED ")
file(WRITE ${BUILD}/headers_only/CMakeLists.txt "${user})\nadd_executable(user user.cpp)\n
  target_link_libraries(user PRIVATE memsaver::memsaver)\n")
file(WRITE ${BUILD}/headers_only/user.cpp
  "#include <memsaver/core/core.hpp>\nint main() { return memsaver::version == memsaver::Version{} ? 1 : 0; }\n")
configure(headers_only/build 0 -S ${BUILD}/headers_only -Dmemsaver_ROOT=${BUILD}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD}/headers_only/build OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(component compiled c)
  file(WRITE ${BUILD}/${component}/CMakeLists.txt "${user} COMPONENTS ${component})\n")
  configure(${component}/build 1 -S ${BUILD}/${component} -Dmemsaver_ROOT=${BUILD}/prefix)
  if(NOT output MATCHES "without memsaver::${component}")
    message(FATAL_ERROR "The missing component is not reported:\n${output}")
  endif()
endforeach()
