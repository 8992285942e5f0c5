# cmake -DROOT=<source folder> -P missing.cmake
#
# Where everything is there, the README's scripts install nothing; what they may install, the README lists.
cmake_minimum_required(VERSION 3.25)
include(${ROOT}/cmake/setup.cmake)

# This is run by the tests, so that the compiler, make, doctest and xxHash are there. The rest may be.
function(memsaver_cannot_install result as_root)
  set(${result} "" PARENT_SCOPE)
endfunction()
memsaver_missing_packages(missing DOCTEST)
foreach(package g++ doctest-dev libxxhash-dev)
  if(package IN_LIST missing)
    message(SEND_ERROR "${package} would be installed, although it is there")
  endif()
endforeach()

# Where nothing is there: the README lists every package.
set(ENV{PATH} "")
unset(ENV{CMAKE_GENERATOR})
function(find_path)
endfunction()
memsaver_missing_packages(packages DOCTEST)
list(LENGTH packages count)
if(NOT count EQUAL 7)
  message(SEND_ERROR "only ${packages} would be installed")
endif()
file(READ ${ROOT}/README.md readme)
string(REGEX MATCH "install missing packages[^\n]*\n[^\n]*\n?[^\n]*" listed "${readme}")
foreach(package IN LISTS packages)
  string(FIND "${listed}" "${package}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "README.md does not say that ${package} may be installed: ${listed}")
  endif()
endforeach()
