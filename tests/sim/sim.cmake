# Kernels with planted faults, compiled as those of the library are.
if(NOT TARGET shardgrad_sim)
  return()
endif()
target_link_libraries(test_sim PRIVATE shardgrad_sim)
target_link_libraries(test_kernels PRIVATE shardgrad_sim)
file(GLOB planted CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/sim/*.cu)
add_library(planted OBJECT ${planted})
set_source_files_properties(${planted} PROPERTIES LANGUAGE CXX)
target_compile_options(planted PRIVATE ${shardgrad_sim_options})
target_include_directories(planted PRIVATE ${shardgrad_sim_headers})
target_link_libraries(planted PRIVATE shardgrad_test_support)
target_sources(test_sim PRIVATE $<TARGET_OBJECTS:planted>)
target_sources(test_kernels PRIVATE sim/launched.cpp)

# A debugger stops in a kernel, in the thread asked for, and sees its variables and its caller.
find_program(GDB gdb)
if(GDB)
  set(variable t)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(variable threadIdx.x)  # it keeps no local variables
  endif()
  add_test(NAME sim.a_breakpoint_stops_in_a_kernel
           COMMAND ${GDB} -batch -ex start -ex "break planted.cu:15 if threadIdx.x == 77" -ex continue
                   -ex "print ${variable}" -ex bt --args $<TARGET_FILE:test_sim> --gtest_filter=*AMissingBarrier*)
  set_tests_properties(sim.a_breakpoint_stops_in_a_kernel PROPERTIES LABELS "project;sim" TIMEOUT 120
                       PASS_REGULAR_EXPRESSION "= 77.*reverse_kernel<false>.*fibre_main"
                       SKIP_REGULAR_EXPRESSION "ptrace[^\n]*not permitted")
endif()

add_executable(portable_fibres sim/portable_fibres.cpp ${PROJECT_SOURCE_DIR}/kernels/sim/fibre.cpp
               ${PROJECT_SOURCE_DIR}/core/error.cpp)
target_compile_definitions(portable_fibres PRIVATE SG_PORTABLE_FIBRES)
target_include_directories(portable_fibres PRIVATE ${PROJECT_BINARY_DIR}/include)
target_link_libraries(portable_fibres PRIVATE shardgrad_flags)
add_test(NAME sim.portable_fibres COMMAND portable_fibres)
set_tests_properties(sim.portable_fibres PROPERTIES LABELS "project;sim")
