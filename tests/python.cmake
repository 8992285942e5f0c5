# The Python package, over the C interface: pytest, and mypy if available.

# Finds the first interpreter that has these modules: on Debian, the system's Python has the packages that Debian
# installs.
function(memsaver_python_with result)
  set(${result} "" PARENT_SCOPE)
  list(JOIN ARGN "," modules)
  foreach(candidate ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import sys,${modules}; sys.exit(sys.version_info < (3, 10))"
      RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed STREQUAL "0")
      set(${result} ${candidate} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

find_package(Python3 QUIET COMPONENTS Interpreter)
memsaver_python_with(python_pytest pytest numpy)
memsaver_python_with(python_mypy mypy pytest numpy)
set(python_folder ${PROJECT_SOURCE_DIR}/python)

# Python is built without sanitizers; a library with sanitizers needs their runtime libraries loaded first. Leak
# detection is off, because Python keeps memory until its end.
set(python_runs ${python_pytest} -B)
if(MEMSAVER_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  foreach(name asan ubsan)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${name}.so
      OUTPUT_VARIABLE ${name} OUTPUT_STRIP_TRAILING_WHITESPACE)
  endforeach()
  list(PREPEND python_runs ${CMAKE_COMMAND} -E env "LD_PRELOAD=${asan} ${ubsan}"
    ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0)
elseif(MEMSAVER_SANITIZE)
  set(python_runs "")
endif()

if(NOT memsaver_c_is_tested)
  memsaver_skip(python.tests host "the C interface is in another part of the files")
elseif(NOT python_runs)
  memsaver_skip(python.tests host "Python does not load a library with these sanitizers")
elseif(NOT python_pytest)
  memsaver_skip(python.tests host "no Python 3.10 with pytest and NumPy (apt-get install python3-pytest python3-numpy)")
else()
  add_test(NAME python.tests COMMAND ${python_runs} -m pytest -q ${python_folder}/tests)
  memsaver_label(python.tests host)
  set_property(TEST python.tests APPEND PROPERTY ENVIRONMENT
    "MEMSAVER_LIBRARY=$<TARGET_FILE:memsaver_c>" "MEMSAVER_STUB_LIBCUDA=$<TARGET_FILE:stub_libcuda>")
  if(TARGET host_libcuda) # from tests/torch_memory_saver: the GPU's code path, on host memory
    add_test(NAME python.host_gpu
      COMMAND ${python_runs} -m pytest -q ${python_folder}/tests/test_gpu.py ${python_folder}/tests/test_torch.py)
    memsaver_label(python.host_gpu host)
    set_property(TEST python.host_gpu APPEND PROPERTY ENVIRONMENT
      "MEMSAVER_LIBRARY=$<TARGET_FILE:memsaver_c>" "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:host_libcuda>")
  else()
    memsaver_skip(python.host_gpu host "built without the host replacement of libcuda")
  endif()
endif()

if(MEMSAVER_TEST_COMPILATION AND python_mypy)
  set(typed memsaver)
  if(MEMSAVER_TEST_ALL) # with the tests, and so with NumPy: twice as long
    set(typed)
  endif()
  add_test(NAME python.types COMMAND ${python_mypy} -B -m mypy --cache-dir=${PROJECT_BINARY_DIR}/mypy ${typed}
    WORKING_DIRECTORY ${python_folder})
  memsaver_label(python.types host)
  memsaver_part(part 2 python.types)
  if(part AND NOT MEMSAVER_TEST_ALL)
    set_tests_properties(python.types PROPERTIES DISABLED ON)
  endif()
elseif(MEMSAVER_TEST_COMPILATION)
  memsaver_skip(python.types host "no Python 3.10 with mypy, pytest and NumPy (pip install mypy)")
endif()
