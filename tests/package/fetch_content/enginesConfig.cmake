include(CMakeFindDependencyMacro)
find_dependency(memsaver COMPONENTS compiled)
include("${CMAKE_CURRENT_LIST_DIR}/enginesTargets.cmake")
