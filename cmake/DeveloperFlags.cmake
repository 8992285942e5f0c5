# The compile flags of memsaver's own tests, benchmarks and examples. They belong to private targets, which are neither
# exported nor linked by memsaver::memsaver, so they do not affect users.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# memsaver_flags: the flags. memsaver_developer: the flags and the compiled form; most targets use it.
# memsaver_header_only: the flags and the headers alone.
option(MEMSAVER_DEVELOP_HEADER_ONLY "Build tests, benchmarks and examples header-only" OFF)
add_library(memsaver_flags INTERFACE)
add_library(memsaver_developer INTERFACE)
target_link_libraries(memsaver_developer INTERFACE memsaver_flags
  memsaver::$<IF:$<BOOL:${MEMSAVER_DEVELOP_HEADER_ONLY}>,memsaver,compiled>)
add_library(memsaver_header_only INTERFACE)
target_link_libraries(memsaver_header_only INTERFACE memsaver_flags memsaver::memsaver)

target_compile_options(memsaver_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wnon-virtual-dtor -Wundef
  $<$<BOOL:${MEMSAVER_WERROR}>:-Werror>
  # g++ collects garbage at each doubling of 128 MiB: a sixth of the time of a batch of tests, which has ten times as much.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=500000>)

# Adapters, benchmarks and tests use the toolkit's headers if they exist; the library does not need them.
find_package(CUDAToolkit QUIET)
target_include_directories(memsaver_flags SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})

if(MEMSAVER_SANITIZE)
  target_compile_options(memsaver_flags INTERFACE
    -fsanitize=${MEMSAVER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # g++ mistakes branches inserted by the sanitizers for paths that leave values uninitialized.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(memsaver_flags INTERFACE -fsanitize=${MEMSAVER_SANITIZE})
endif()

if(MEMSAVER_COVERAGE)
  target_compile_options(memsaver_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(memsaver_flags INTERFACE --coverage)
endif()

# The compiled form and the C interface use the flags too, but do not propagate them.
foreach(library memsaver_compiled memsaver_c memsaver_keeper memsaver_top)
  target_compile_options(${library} PRIVATE $<TARGET_PROPERTY:memsaver_flags,INTERFACE_COMPILE_OPTIONS>)
  target_link_options(${library} PRIVATE $<TARGET_PROPERTY:memsaver_flags,INTERFACE_LINK_OPTIONS>)
endforeach()
target_compile_options(memsaver_compiled PRIVATE "SHELL:${MEMSAVER_LIBRARY_FLAGS}")

# Fewer files, compiled together, take less time.
if(MEMSAVER_TEST_BATCH GREATER 1)
  set_target_properties(memsaver_compiled PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
endif()

# Flags for programs in C: the warnings of memsaver_flags are for C++.
add_library(memsaver_c_developer INTERFACE)
target_compile_options(memsaver_c_developer INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wundef $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<BOOL:${MEMSAVER_WERROR}>:-Werror>)
if(MEMSAVER_SANITIZE)
  target_compile_options(memsaver_c_developer INTERFACE -fsanitize=${MEMSAVER_SANITIZE} -fno-sanitize-recover=all)
  # They link a C++ library, which needs more of clang's sanitizer runtime than C programs link by default.
  target_link_options(memsaver_c_developer INTERFACE $<$<C_COMPILER_ID:Clang>:-fsanitize-link-c++-runtime>)
  target_link_libraries(memsaver_c_developer INTERFACE $<$<C_COMPILER_ID:Clang>:stdc++>)
endif()
target_link_options(memsaver_c_developer INTERFACE $<TARGET_PROPERTY:memsaver_flags,INTERFACE_LINK_OPTIONS>)
target_link_libraries(memsaver_c_developer INTERFACE memsaver::c)
