# Shared by the scripts of the README. On Debian or Ubuntu they install missing tools; elsewhere they report what is
# missing. Tools that exist are not installed again.

# In a script, CMAKE_SOURCE_DIR is the current folder.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH MEMSAVER_SOURCE_DIR)

# Sets MEMSAVER_CXX to a compiler that compiles C++20, including its standard library, or to nothing.
function(memsaver_find_compiler)
  set(probe "#include <concepts>\n#include <span>\nstatic_assert(std::same_as<int, int>);\nint main() {}")
  foreach(name "$ENV{CXX}" c++ g++ clang++ g++-14 g++-13 g++-12)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${probe}" COMMAND "${name}" -std=c++20 -x c++ - -o /dev/null
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed STREQUAL "0")
      set(MEMSAVER_CXX ${name} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(MEMSAVER_CXX "" PARENT_SCOPE)
endfunction()

# Sets `result` to why `memsaver_install` cannot work, or to nothing, and `as_root` to what a command of root begins with.
function(memsaver_cannot_install result as_root)
  set(why)
  set(sudo)
  execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT user STREQUAL "0")
    set(sudo sudo -n)
  endif()
  execute_process(COMMAND ${sudo} true RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
  find_program(apt_get apt-get NO_CACHE)
  if(NOT apt_get)
    set(why "apt-get not found")
  elseif(refused)
    set(why "installing requires root")
  endif()
  set(${result} ${why} PARENT_SCOPE)
  set(${as_root} ${sudo} PARENT_SCOPE)
endfunction()

# Installs Debian packages, as root or through a sudo without a password; otherwise fails and lists the packages.
function(memsaver_install)
  list(JOIN ARGN " " names)
  set(advice "Please install ${names}, for example with: sudo apt-get install ${names}")
  memsaver_cannot_install(why as_root)
  if(why)
    message(FATAL_ERROR "${names} not found, and ${why}. ${advice} (or the corresponding packages of your system)")
  endif()
  message(STATUS "Installing ${names}")
  set(apt ${as_root} env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  execute_process(COMMAND ${apt} update OUTPUT_QUIET)
  execute_process(COMMAND ${apt} install -y --no-install-recommends ${ARGN} RESULT_VARIABLE failed
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${output}\nInstalling failed. ${advice}")
  endif()
endfunction()

# Adds a package to the caller's `missing` if its header is.
function(memsaver_need_header package header)
  find_path(found ${header} PATHS /usr/include /usr/local/include NO_CACHE)
  if(NOT found)
    set(missing ${missing} ${package} PARENT_SCOPE)
  endif()
endfunction()

# Sets `result` to the packages that are missing: of a compiler and make and, with the argument DOCTEST, of what the tests
# need. Optional ones only if they can be installed: their tests are skipped otherwise. README.md lists all of them.
function(memsaver_missing_packages result)
  set(missing)
  memsaver_find_compiler()
  if(NOT MEMSAVER_CXX)
    list(APPEND missing g++)
  endif()
  find_program(make NAMES gmake make NO_CACHE)
  if(NOT make AND NOT DEFINED ENV{CMAKE_GENERATOR})
    list(APPEND missing make)
  endif()
  if("${ARGN}" STREQUAL "DOCTEST")
    memsaver_need_header(doctest-dev doctest/doctest.h)
    memsaver_need_header(libxxhash-dev xxhash.h)
    memsaver_cannot_install(why as_root)
    if(NOT why)
      memsaver_need_header(nlohmann-json3-dev nlohmann/json.hpp)
      set(import "-c 'import numpy, pytest'")
      execute_process(COMMAND sh -c "python3 ${import} || /usr/bin/python3 ${import}" RESULT_VARIABLE failed
        OUTPUT_QUIET ERROR_QUIET)
      if(failed)
        list(APPEND missing python3-numpy python3-pytest)
      endif()
    endif()
  endif()
  set(${result} ${missing} PARENT_SCOPE)
endfunction()

# Sets up a compiler, make and, with the argument DOCTEST, what the tests need. Sets MEMSAVER_CXX and MEMSAVER_CORES.
macro(memsaver_setup)
  memsaver_missing_packages(missing ${ARGN})
  if(missing)
    memsaver_install(${missing})
  endif()
  memsaver_find_compiler()
  if(NOT MEMSAVER_CXX)
    message(FATAL_ERROR "No C++20 compiler found: g++ 12, clang 14 or newer is required.")
  endif()
  cmake_host_system_information(RESULT MEMSAVER_CORES QUERY NUMBER_OF_LOGICAL_CORES)
endmacro()

# memsaver_run(<what> <command>...): runs a command; fails with <what> if it fails.
function(memsaver_run what)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${MEMSAVER_SOURCE_DIR} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${what} failed")
  endif()
endfunction()
