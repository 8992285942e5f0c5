# The CUDA toolkit's headers as system headers of a target, where there are some. Never its libraries: memsaver loads the
# driver at run time. Used by the build and, installed, by the package: a package holds no path of the machine that made it.

function(memsaver_add_toolkit_headers target)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    target_include_directories(${target} SYSTEM INTERFACE "$<BUILD_INTERFACE:${CUDAToolkit_INCLUDE_DIRS}>")
  endif()
endfunction()
