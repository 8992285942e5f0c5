# cmake -P cmake/run_tests.cmake
#
# Installs missing tools, builds the tests with all cores, runs them, and prints which were skipped and why. Also runs
# the GPU tests if there is a GPU.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/setup.cmake)

memsaver_setup(DOCTEST)
set(build ${MEMSAVER_SOURCE_DIR}/build/test)

set(gpu OFF) # whether to build programs that need a GPU
if(EXISTS /dev/nvidiactl)
  set(gpu ON)
endif()

memsaver_run("Configuring" ${CMAKE_COMMAND} --preset test -DCMAKE_CXX_COMPILER=${MEMSAVER_CXX}
  -DMEMSAVER_TEST_GPU_PROGRAMS=${gpu})
memsaver_run("Building" ${CMAKE_COMMAND} --build --preset test --parallel ${MEMSAVER_CORES})
math(EXPR at_once "${MEMSAVER_CORES} + 2") # most tests wait for their own threads about as long as they compute
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --preset test --parallel ${at_once}
  WORKING_DIRECTORY ${MEMSAVER_SOURCE_DIR} RESULT_VARIABLE failed)

set(log ${build}/Testing/Temporary/LastTest.log)
if(EXISTS ${log})
  file(STRINGS ${log} reasons REGEX "(^|MESSAGE: )skipped: ")
  list(REMOVE_DUPLICATES reasons)
  foreach(reason IN LISTS reasons)
    message(STATUS "${reason}")
  endforeach()
endif()
if(failed)
  message(FATAL_ERROR "Some tests failed; their output is above and in ${log}")
endif()
