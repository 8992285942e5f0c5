# Included by an edited checkout's ggml/src/CMakeLists.txt: links memsaver to ggml-base, and builds the test program.
# MEMSAVER_LIBRARY: an existing libmemsaver.so; otherwise it is built here, from this file's source tree.

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH memsaver_root)
cmake_path(GET memsaver_root PARENT_PATH memsaver_root)

if(MEMSAVER_LIBRARY)
  add_library(memsaver_glued SHARED IMPORTED GLOBAL)
  set_target_properties(memsaver_glued PROPERTIES
    IMPORTED_LOCATION "${MEMSAVER_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${memsaver_root}/include")
else()
  set(MEMSAVER_INSTALL OFF)
  add_subdirectory("${memsaver_root}" "${CMAKE_BINARY_DIR}/memsaver" EXCLUDE_FROM_ALL)
  foreach(target memsaver_compiled memsaver_c) # the checkout's warning options do not apply to them
    target_compile_options(${target} PRIVATE -w)
  endforeach()
  add_library(memsaver_glued ALIAS memsaver_c)
endif()

target_sources(ggml-base PRIVATE "${CMAKE_CURRENT_LIST_DIR}/ggml_memsaver.cpp")
target_include_directories(ggml-base PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_LIST_DIR}>)
target_link_libraries(ggml-base PUBLIC memsaver_glued)

# `llama` is defined later in the checkout.
add_executable(memsaver_cycles EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/cycles.cpp")
target_compile_features(memsaver_cycles PRIVATE cxx_std_20)
target_link_libraries(memsaver_cycles PRIVATE llama ggml)

# What keeps the weights that workers publish; serve.py starts it.
if(NOT TARGET memsaver_keeper)
  add_executable(memsaver_keeper EXCLUDE_FROM_ALL "${memsaver_root}/programs/memsaver_keeper.cpp")
  set_target_properties(memsaver_keeper PROPERTIES OUTPUT_NAME memsaver-keeper)
  target_compile_features(memsaver_keeper PRIVATE cxx_std_20)
  target_include_directories(memsaver_keeper PRIVATE "${memsaver_root}/include")
endif()
set_target_properties(memsaver_keeper PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
