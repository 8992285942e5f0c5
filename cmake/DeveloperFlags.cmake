# The flags that memsaver's own tests, benchmarks and examples are built with. They hang on private targets, which are
# neither exported nor linked by memsaver::memsaver: a user never feels them.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(memsaver_developer INTERFACE)
target_link_libraries(memsaver_developer INTERFACE memsaver::memsaver)

target_compile_options(memsaver_developer INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wnon-virtual-dtor -Wundef
  $<$<BOOL:${MEMSAVER_WERROR}>:-Werror>)

if(MEMSAVER_SANITIZE)
  target_compile_options(memsaver_developer INTERFACE
    -fsanitize=${MEMSAVER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # g++ takes the sanitizers' own branches for paths that leave values unset.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(memsaver_developer INTERFACE -fsanitize=${MEMSAVER_SANITIZE})
endif()

if(MEMSAVER_COVERAGE)
  target_compile_options(memsaver_developer INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(memsaver_developer INTERFACE --coverage)
endif()
