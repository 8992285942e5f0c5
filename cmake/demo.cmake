# cmake -P cmake/demo.cmake
#
# Builds and runs the demo. Needs only CMake and a C++20 compiler, which it installs if it is missing.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/setup.cmake)

memsaver_setup()
set(build ${MEMSAVER_SOURCE_DIR}/build/demo)

message(STATUS "Building the demo")
memsaver_run("Configuring" ${CMAKE_COMMAND} -S . -B ${build} -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1
  -DCMAKE_CXX_COMPILER=${MEMSAVER_CXX} -DMEMSAVER_BUILD_TESTS=OFF -DMEMSAVER_BUILD_EXAMPLES=ON
  -DMEMSAVER_TEST_BATCH=5 OUTPUT_QUIET)
memsaver_run("Building" ${CMAKE_COMMAND} --build ${build} --target demo --parallel ${MEMSAVER_CORES})
memsaver_run("The demo" ${build}/examples/demo)
