# Device sim: the .cu kernels compiled by the C++ compiler, with a call to the simulator for every access to memory. The
# calls are those of the thread sanitizer, so a build that uses a real sanitizer has no device sim.
if(SHARDGRAD_SANITIZE)
  message(STATUS "shardgrad: no device sim in a build with a sanitizer")
  return()
endif()
# The simulator itself, which programs and libraries with .cu files link, and the built-in kernels, which nobody links:
# core/backend.cpp loads them when device sim is asked for. Their __shared__ variables are thread-local memory of 640 KB,
# more than a process has left for libraries that must have it at a fixed place; so nothing in them may need one.
file(GLOB sim_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/sim/*.cpp)
add_library(shardgrad_sim SHARED ${sim_sources})
add_library(shardgrad::shardgrad_sim ALIAS shardgrad_sim)
set_target_properties(shardgrad_sim PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
# What it makes sentences with is its own: a program's copy of a template may be one that the simulator watches.
target_link_options(shardgrad_sim PRIVATE LINKER:-Bsymbolic-functions)
target_link_libraries(shardgrad_sim PUBLIC shardgrad PRIVATE $<BUILD_INTERFACE:shardgrad_flags>)
# Its variables threadIdx, blockIdx, … are for debuggers too.
set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/sim/machine.cpp PROPERTIES COMPILE_OPTIONS -g)
add_subdirectory(kernels/sim)
