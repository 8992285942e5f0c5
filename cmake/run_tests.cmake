# cmake -P cmake/run_tests.cmake               some minutes: everything but what takes long, and a sample of the sweeps
# cmake -P cmake/run_tests.cmake -- --all      everything
#
# Installs missing tools, builds the tests with all cores, runs them, and prints which were skipped and why. Also runs
# the GPU tests if there is a GPU.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/setup.cmake)

math(EXPR last "${CMAKE_ARGC} - 1")
string(COMPARE EQUAL "${CMAKE_ARGV${last}}" "--all" all)

memsaver_setup(DOCTEST)

set(gpu OFF) # whether to add the tests that need a GPU
if(EXISTS /dev/nvidiactl)
  set(gpu ON)
endif()

# The sample of the sweeps' failures (tests/support/sampling.hpp) and whether the engine is built depend on the commit, so
# that in time everything is tried.
if(NOT DEFINED ENV{MEMSAVER_SWEEP_OFFSET})
  execute_process(COMMAND git rev-parse --short=6 HEAD WORKING_DIRECTORY ${MEMSAVER_SOURCE_DIR}
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  math(EXPR offset "0x0${commit}") # 0 without a repository
  set(ENV{MEMSAVER_SWEEP_OFFSET} ${offset})
endif()
set(sample $ENV{MEMSAVER_SWEEP_OFFSET})
if(all)
  set(ENV{MEMSAVER_SWEEP_STEP} 1)
else()
  message(STATUS "A sample is tried; the same again with MEMSAVER_SWEEP_OFFSET=${sample}, everything with -- --all")
endif()

math(EXPR quarter "${sample} % 4")
set(engine OFF) # it runs on GPUs only
if(all OR gpu OR quarter EQUAL 0)
  set(engine ON)
endif()

find_program(ninja NAMES ninja ninja-build NO_CACHE)
if(ninja AND NOT DEFINED ENV{CMAKE_GENERATOR})
  set(ENV{CMAKE_GENERATOR} Ninja) # ignored in a folder that is configured already
endif()
memsaver_run("Configuring" ${CMAKE_COMMAND} --preset test -DCMAKE_CXX_COMPILER=${MEMSAVER_CXX}
  -DMEMSAVER_TEST_GPU_PROGRAMS=${gpu} -DMEMSAVER_TEST_ALL=${all}
  -DMEMSAVER_TEST_SAMPLE=${sample} -DMEMSAVER_BUILD_ENGINE=${engine})
memsaver_run("Building" ${CMAKE_COMMAND} --build --preset test --parallel ${MEMSAVER_CORES})
math(EXPR at_once "${MEMSAVER_CORES} + 2") # most tests wait for their own threads about as long as they compute
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --preset test --parallel ${at_once}
  WORKING_DIRECTORY ${MEMSAVER_SOURCE_DIR} RESULT_VARIABLE failed)

set(log ${MEMSAVER_SOURCE_DIR}/build/test/Testing/Temporary/LastTest.log)
if(EXISTS ${log})
  file(STRINGS ${log} reasons REGEX "(^|MESSAGE: )skipped: ")
  list(REMOVE_DUPLICATES reasons)
  foreach(reason IN LISTS reasons)
    message(STATUS "${reason}")
  endforeach()
endif()
if(NOT all)
  message(STATUS "Tests listed as disabled run with: cmake -P cmake/run_tests.cmake -- --all")
endif()
if(failed)
  message(FATAL_ERROR "Some tests failed; their output is above and in ${log}")
endif()
