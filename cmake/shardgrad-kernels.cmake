# For projects outside the tree, after find_package(shardgrad):
#     shardgrad_add_kernels(mine mine.cu mine.cpp)      # libmine.so, for `shardgrad … --library` and load_kernels()
#     shardgrad_target_kernels(program mine.cu)         # or as part of a program
# A .cu file is compiled for every device of its kind that this shardgrad has: by the C++ compiler for the simulator, which
# takes no CUDA toolkit, and by nvcc for GPUs. Where it has neither, a library is made of its other files, for the CPU.
set(shardgrad_cu_remedy "configure it with -DSHARDGRAD_SIM=ON (the simulator, whose target shardgrad_sim_kernels must be \
built) or -DSHARDGRAD_CUDA=ON, and install it again")
# How a C++ compiler makes a .cu file one for the simulator (docs/simulator.md). For a debugger as well as for speed:
# statement frontiers keep gcc from marking lines that begin with a call to a hook.
set(shardgrad_gnu $<CXX_COMPILER_ID:GNU>)
set(shardgrad_sim_options
    -fsanitize=thread -g -O1 -Wno-unknown-pragmas $<${shardgrad_gnu}:-gno-statement-frontiers>
    $<${shardgrad_gnu}:-fsanitize=bounds,alignment> $<$<CXX_COMPILER_ID:Clang>:-fsanitize=array-bounds>
    $<$<NOT:$<AND:${shardgrad_gnu},$<VERSION_LESS:$<CXX_COMPILER_VERSION>,12>>>:-ftrivial-auto-var-init=pattern>)
unset(shardgrad_gnu)
# CUDA's own headers as the simulator has them; shardgrad-config.cmake says where an installed library has them.
if(NOT shardgrad_sim_headers)
  set(shardgrad_sim_headers ${CMAKE_CURRENT_LIST_DIR}/../kernels/sim/include)
endif()

# For a .cu file of the target that itself includes map.h or rows.h, whose kernels give an element the path in packs or another
# one, depending on where a range is cut: products and sums that nvcc joins in one of them only would give it other bits.
# The option follows from what the file says, so CMake looks again when that changes. A file that the build is still to make
# is not asked, also when an earlier build has made it: it gets the option from whoever adds it.
function(shardgrad_keep_products_apart target file)
  get_property(made SOURCE ${file} TARGET_DIRECTORY ${target} PROPERTY GENERATED)
  if(made OR NOT EXISTS ${file})
    return()
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} two_paths REGEX "^ *#include .*kernels/cuda/(map|rows)\\.h")
  get_property(options SOURCE ${file} TARGET_DIRECTORY ${target} PROPERTY COMPILE_OPTIONS)
  if(two_paths AND NOT "-fmad=false" IN_LIST options)
    set_property(SOURCE ${file} TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS -fmad=false)
  endif()
endfunction()

function(shardgrad_target_kernels target)
  if(NOT SHARDGRAD_HAS_SIM AND NOT SHARDGRAD_HAS_CUDA)
    message(FATAL_ERROR "this shardgrad runs no kernels of .cu files: ${shardgrad_cu_remedy}")
  endif()
  foreach(file IN LISTS ARGN)
    get_filename_component(path ${file} ABSOLUTE)
    if(SHARDGRAD_HAS_SIM)
      # In a file of its own: the language of a source holds for all targets of a folder.
      get_filename_component(stem ${file} NAME)
      set(simulated ${CMAKE_CURRENT_BINARY_DIR}/${target}_sim/${stem}.cpp)
      file(CONFIGURE OUTPUT ${simulated} CONTENT "#include \"${path}\"\n")
      set_source_files_properties(${simulated} PROPERTIES COMPILE_OPTIONS "${shardgrad_sim_options}"
                                                          INCLUDE_DIRECTORIES "${shardgrad_sim_headers}")
      target_sources(${target} PRIVATE ${simulated})
      target_link_libraries(${target} PRIVATE shardgrad::shardgrad_sim)
    endif()
    if(SHARDGRAD_HAS_CUDA)
      target_sources(${target} PRIVATE ${path})
      shardgrad_keep_products_apart(${target} ${path})
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
      set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
                                                   CUDA_EXTENSIONS OFF)
    endif()
  endforeach()
endfunction()

function(shardgrad_add_kernels name)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set(others ${ARGN})
  list(FILTER others EXCLUDE REGEX "\\.cu$")
  add_library(${name} MODULE ${others})
  target_link_libraries(${name} PRIVATE shardgrad::shardgrad)
  if(kernels AND others AND NOT SHARDGRAD_HAS_SIM AND NOT SHARDGRAD_HAS_CUDA)
    message(NOTICE "${name}: left out, as this shardgrad runs no kernels of .cu files: ${kernels}; for devices sim and cuda "
                   "${shardgrad_cu_remedy}")
  elseif(kernels)
    shardgrad_target_kernels(${name} ${kernels})
  endif()
endfunction()
