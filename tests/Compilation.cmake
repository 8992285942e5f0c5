# Tests that only compile, and the header-only form.

find_package(Python3 QUIET COMPONENTS Interpreter)

# --- Each header compiles on its own, first in its translation unit
set(units)
set(headers ${MEMSAVER_HEADERS})
list(FILTER headers INCLUDE REGEX "[.]hpp$")
list(FILTER headers EXCLUDE REGEX "/interop/(cccl|onnxruntime|thrust)[.]hpp$") # compiled by tests/interop, if possible
list(FILTER headers EXCLUDE REGEX "/impl[.]hpp$") # compiled by memsaver::compiled and by header_only.one_file
list(FILTER headers EXCLUDE REGEX "/core/macros_(off|on)[.]hpp$") # a pair
foreach(header IN LISTS headers)
  string(REGEX REPLACE "^include/" "" header ${header})
  string(REGEX REPLACE "[/.]" "_" unit ${header})
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/headers/${unit}.cpp)
  file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"@header@\" // IWYU pragma: keep\n#include \"@header@\"\n" @ONLY)
  list(APPEND units ${unit})
endforeach()
add_library(headers_alone OBJECT ${units})
target_link_libraries(headers_alone PRIVATE memsaver_developer)
target_compile_options(headers_alone PRIVATE -O0 -g0)

# --- The headers without the compiled form: one program, in two units ----------------------------------------------------
# A definition in an .ipp file that lacks its `inline` is defined twice and fails to link.
add_executable(header_only header_only/programs.cpp second_unit.cpp)
target_link_libraries(header_only PRIVATE memsaver_header_only)
target_include_directories(header_only PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
add_test(NAME header_only.programs COMMAND header_only)
memsaver_label(header_only.programs host)
if(CMAKE_NM AND Python3_FOUND)
  add_test(NAME header_only.core_once COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/header_only/core_once.py
    --nm ${CMAKE_NM} $<TARGET_FILE:header_only>)
  memsaver_label(header_only.core_once host)
else()
  memsaver_skip(header_only.core_once host "no nm, or no Python 3")
endif()

# --- One file of a program brings all definitions: without a library, and beside a header-only file ----------------------
set(one_file ${CMAKE_CURRENT_SOURCE_DIR}/header_only/one_file)
add_library(one_file_beside OBJECT ${one_file}/beside.cpp)
target_link_libraries(one_file_beside PRIVATE memsaver_header_only)
add_executable(one_file ${one_file}/main.cpp ${one_file}/impl.cpp $<TARGET_OBJECTS:one_file_beside>)
target_compile_definitions(one_file PRIVATE MEMSAVER_TEST_BESIDE)
target_link_libraries(one_file PRIVATE memsaver_flags memsaver::impl)
add_test(NAME header_only.one_file COMMAND one_file)
memsaver_label(header_only.one_file host)
if(Python3_FOUND)
  add_test(NAME header_only.no_definitions COMMAND Python3::Interpreter ${one_file}/no_definitions.py --
    ${CMAKE_CXX_COMPILER} -std=c++20 -I${PROJECT_SOURCE_DIR}/include)
  memsaver_label(header_only.no_definitions host)
else()
  memsaver_skip(header_only.no_definitions host "no Python 3")
endif()

# --- The headers after macros of other libraries --------------------------------------------------------------------------
add_library(foreign_macros OBJECT header_only/foreign_macros.cpp)
target_link_libraries(foreign_macros PRIVATE memsaver_header_only)
target_include_directories(foreign_macros PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_options(foreign_macros PRIVATE -O0 -g0)

# --- Static assertions, positive and negative --------------------------------------------------------------------------
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/static/*.cpp)
if(sources)
  add_library(static_tests OBJECT ${sources})
  target_link_libraries(static_tests PRIVATE memsaver_developer doctest::doctest)
  target_include_directories(static_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(static_tests PRIVATE -O0 -g0)
  set_target_properties(static_tests PROPERTIES UNITY_BUILD ON)
  if(MEMSAVER_TEST_PCH)
    target_precompile_headers(static_tests REUSE_FROM precompiled)
  endif()
endif()

# --- Code that must not compile, and the message it must fail with
set(compile_flags -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I${PROJECT_SOURCE_DIR}/include -DMEMSAVER_COMPILED)
set(toolkit_flags)
foreach(dir IN LISTS CUDAToolkit_INCLUDE_DIRS)
  list(APPEND toolkit_flags -isystem ${dir})
endforeach()
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/*.cpp)
foreach(source IN LISTS sources)
  cmake_path(GET source STEM name)
  add_test(NAME compile_fail.${name} COMMAND ${CMAKE_COMMAND}
    "-Dcompile=${CMAKE_CXX_COMPILER};${compile_flags};${toolkit_flags}" -Dsource=${source}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/expect_failure.cmake)
  memsaver_label(compile_fail.${name} host)
endforeach()

# --- The code in pages ------------------------------------------------------------------------------------------------
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/docs/*.md)
foreach(page IN LISTS pages)
  file(STRINGS ${page} blocks REGEX "^ *```cpp")
  cmake_path(GET page STEM name)
  if(blocks AND Python3_FOUND)
    add_test(NAME snippets.${name} COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/cmake/snippets.py ${page}
      --work ${CMAKE_CURRENT_BINARY_DIR}/snippets --library $<TARGET_FILE:memsaver_compiled>
      -- ${CMAKE_CXX_COMPILER} -std=c++20 -DMEMSAVER_COMPILED -I${PROJECT_SOURCE_DIR}/include
      -idirafter ${MEMSAVER_XXHASH_INCLUDE_DIR} ${toolkit_flags})
    memsaver_label(snippets.${name} host)
  elseif(blocks)
    memsaver_skip(snippets.${name} host "no Python 3")
  endif()
endforeach()

# --- Other compilers for code that includes memsaver: clang, nvcc
# The umbrella with all definitions, and the design's programs as users write them.
set(programs ${CMAKE_CURRENT_SOURCE_DIR}/static/programs_test.cpp)

find_program(CLANGXX NAMES clang++ clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CLANGXX)
  add_test(NAME compile.clang
    COMMAND ${CLANGXX} ${compile_flags} -UMEMSAVER_COMPILED ${toolkit_flags} ${CMAKE_CURRENT_SOURCE_DIR}/second_unit.cpp)
  memsaver_label(compile.clang host)
  add_test(NAME compile.clang.programs
    COMMAND ${CLANGXX} ${compile_flags} ${toolkit_flags} -I${CMAKE_CURRENT_SOURCE_DIR} ${programs})
  memsaver_label(compile.clang.programs host)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  memsaver_skip(compile.clang host "no clang++")
endif()

find_program(NVCC nvcc HINTS ${CUDAToolkit_BIN_DIR} /usr/local/cuda/bin)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/nvcc/*.cu)
foreach(source IN LISTS sources programs)
  cmake_path(GET source STEM name)
  string(REGEX REPLACE "_test$" "" name ${name})
  set(form)
  if(NOT name STREQUAL umbrella) # the umbrella includes all definitions
    set(form -DMEMSAVER_COMPILED)
  endif()
  if(NVCC)
    add_test(NAME compile.nvcc.${name} COMMAND ${NVCC} -std=c++20 -Werror all-warnings ${form} -I${PROJECT_SOURCE_DIR}/include
      -I${CMAKE_CURRENT_SOURCE_DIR} -x cu -c ${source} -o ${CMAKE_CURRENT_BINARY_DIR}/${name}.nvcc.o)
    memsaver_label(compile.nvcc.${name} host)
  else()
    memsaver_skip(compile.nvcc.${name} host "no nvcc")
  endif()
endforeach()
