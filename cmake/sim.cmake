# Device sim: the .cu kernels compiled by the C++ compiler, with a call to the simulator for every access to memory. The
# calls are those of the thread sanitizer, so a build that uses a real sanitizer has no device sim.
if(SHARDGRAD_SANITIZE)
  message(STATUS "shardgrad: no device sim in a build with a sanitizer")
  return()
endif()
file(GLOB sim_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/sim/*.cpp)
target_sources(shardgrad PRIVATE ${sim_sources})
# Its variables threadIdx, blockIdx, … are for debuggers too.
set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/sim/machine.cpp PROPERTIES COMPILE_OPTIONS -g
                            SKIP_PRECOMPILE_HEADERS ON)
add_subdirectory(kernels/sim)
# After the library's own objects: of an inline function in both, the one without those calls is kept.
target_link_libraries(shardgrad PRIVATE $<TARGET_OBJECTS:shardgrad_sim>)
add_dependencies(shardgrad shardgrad_sim)
