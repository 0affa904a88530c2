# Kernels with planted faults, compiled as those of the library are.
if(NOT TARGET shardgrad_sim)
  return()
endif()
add_library(planted OBJECT sim/planted.cu)
set_source_files_properties(sim/planted.cu PROPERTIES LANGUAGE CXX)
target_compile_options(planted PRIVATE -fsanitize=thread -g -O1)
target_link_libraries(planted PRIVATE shardgrad_test_support)
target_sources(test_sim PRIVATE $<TARGET_OBJECTS:planted>)
