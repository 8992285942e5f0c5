# The same program with both forms of memsaver.
enable_testing()
foreach(form memsaver compiled)
  add_executable(consumer_${form} ${CMAKE_CURRENT_LIST_DIR}/consumer.cpp)
  target_link_libraries(consumer_${form} PRIVATE memsaver::${form})
  add_test(NAME consumer_${form} COMMAND consumer_${form})
endforeach()
