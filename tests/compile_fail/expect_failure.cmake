# Compiles `source` twice with `compile`: with MEMSAVER_CONTROL defined it must compile, without it must not, and for the
# reason that the file names in a line "// error: <regular expression>".
#
# The control leaves out the offending line only: a file that fails for a typing error fails there.

file(STRINGS ${source} expected REGEX "^// error: ")
if(NOT expected)
  message(FATAL_ERROR "${source} has no line '// error: <regular expression>'")
endif()
string(REGEX REPLACE "^// error: " "" expected "${expected}")

execute_process(COMMAND ${compile} -DMEMSAVER_CONTROL ${source} RESULT_VARIABLE result ERROR_VARIABLE errors)
if(result)
  message(FATAL_ERROR "Without the offending line it should compile:\n${errors}")
endif()

execute_process(COMMAND ${compile} ${source} RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result)
  message(FATAL_ERROR "${source} compiles, and must not")
endif()
if(NOT errors MATCHES "${expected}")
  message(FATAL_ERROR "It fails, but not with '${expected}':\n${errors}")
endif()
