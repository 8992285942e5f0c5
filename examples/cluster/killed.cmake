# A killed rank ends the job with a message that names the rank, and leaves neither processes nor shared memory.
file(GLOB before /dev/shm/*)
set(ENV{CLUSTER_KILL} "2:3")
execute_process(COMMAND ${MPIEXEC} ${NUMPROC} 4 ${CLUSTER} RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said
  TIMEOUT 60)
if(result EQUAL 0 OR said MATCHES "rounds on 4 ranks" OR NOT said MATCHES "rank 2.*signal 9")
  message(FATAL_ERROR "after killing rank 2, the job ended with ${result}: ${said}")
endif()
foreach(try RANGE 10) # processes killed by mpirun take a moment to end
  execute_process(COMMAND pgrep -f "^${CLUSTER}" OUTPUT_VARIABLE left)
  file(GLOB after /dev/shm/*)
  list(REMOVE_ITEM after ${before} none)
  list(FILTER after EXCLUDE REGEX "/memsaver-") # simulated devices of tests that run at the same time
  if(NOT left AND NOT after)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -E sleep 1)
endforeach()
message(FATAL_ERROR "left after the job ended: processes ${left}, shared memory ${after}")
