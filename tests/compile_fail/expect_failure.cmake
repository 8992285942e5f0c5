# Compiles `source` twice with `compile`: with what stands in RIGHT(...) it must compile; with what stands in WRONG(...) it
# must fail for the reason in the file's first line, "// error: <regular expression>". Further lines may contain
#   // flags: <more flags of the failing compilation>
#   // few: there is one error, and it is no longer than a screen
#
# The right form differs only in what offends, so that a file that fails for another reason is detected.
set(longest 40)

foreach(what error flags few)
  file(STRINGS ${source} ${what} REGEX "^// ${what}: ")
  string(REGEX REPLACE "^// ${what}: " "" ${what} "${${what}}")
endforeach()
if(NOT error)
  message(FATAL_ERROR "${source} has no line '// error: <regular expression>'")
endif()

execute_process(COMMAND ${compile} "-DRIGHT(...)=__VA_ARGS__" "-DWRONG(...)=" ${source}
  RESULT_VARIABLE result ERROR_VARIABLE errors)
if(result)
  message(FATAL_ERROR "In its right form it should compile:\n${errors}")
endif()

separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND ${compile} ${flags} "-DRIGHT(...)=" "-DWRONG(...)=__VA_ARGS__" ${source}
  RESULT_VARIABLE result ERROR_VARIABLE errors)
if(NOT result)
  message(FATAL_ERROR "${source} compiles, but must not")
endif()
if(NOT errors MATCHES "${error}")
  message(FATAL_ERROR "It fails to compile, but not with '${error}':\n${errors}")
endif()
if(few)
  string(REGEX MATCHALL " error: " count "${errors}")
  list(LENGTH count count)
  string(REGEX MATCHALL "\n" lines "${errors}")
  list(LENGTH lines lines)
  if(count GREATER 1 OR lines GREATER longest)
    message(FATAL_ERROR "Expected one error in at most ${longest} lines, got ${count} in ${lines}:\n${errors}")
  endif()
endif()
