# Device cuda: its backend and kernels, as part of the library. The kernels are compiled by nvcc here, and by the C++
# compiler for the simulator (sim.cmake).
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/cuda/*.cpp
     ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cpp)
list(FILTER cuda_sources EXCLUDE REGEX "/without_cuda\\.cpp$")
set(cuda_libraries CUDA::cudart_static)
if(TARGET CUDA::cublasLt)
  list(FILTER cuda_sources EXCLUDE REGEX "/without_cublaslt\\.cpp$")
  list(APPEND cuda_libraries CUDA::cublasLt)
else()
  message(WARNING "shardgrad: the CUDA toolkit has no cuBLASLt; matrix products use the own kernels, which are slower. "
                  "Install it (Debian and Ubuntu: libcublas-dev of the toolkit's version) and configure again")
  list(FILTER cuda_sources EXCLUDE REGEX "/cublaslt[^/]*\\.cpp$")
endif()
if(found_nccl)
  file(GLOB nccl_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/dist/transports/nccl/*.cpp)
  list(FILTER nccl_sources EXCLUDE REGEX "/without_nccl\\.cpp$")
  list(APPEND cuda_sources ${nccl_sources})
  list(APPEND cuda_libraries ${NCCL_LIBRARY})
endif()
add_library(shardgrad_cuda OBJECT ${cuda_kernels} ${cuda_sources})
set_target_properties(shardgrad_cuda PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                                                POSITION_INDEPENDENT_CODE ON)
set(launcher ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
set_target_properties(shardgrad_cuda PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
target_include_directories(shardgrad_cuda PRIVATE ${PROJECT_BINARY_DIR}/include)
target_include_directories(shardgrad_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
if(found_nccl)
  target_include_directories(shardgrad_cuda SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
endif()
# False warnings are off: 177 (constants that only templates use), gcc 12's on std::optional. Registers that spill to
# memory are worth one. What ptxas says of each kernel is kept beside the objects.
set(nvcc_options --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wno-maybe-uninitialized
                 -diag-suppress=177 -Xptxas=-warn-spills,-v)
if(SHARDGRAD_WERROR)
  list(APPEND nvcc_options -Werror=all-warnings)
endif()
target_compile_options(shardgrad_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:${nvcc_options}>"
  "$<$<COMPILE_LANGUAGE:CXX>:$<TARGET_PROPERTY:shardgrad_flags,INTERFACE_COMPILE_OPTIONS>>")
foreach(kernel IN LISTS cuda_kernels)
  shardgrad_keep_products_apart(shardgrad_cuda ${kernel})
endforeach()
target_compile_definitions(shardgrad_cuda PRIVATE "SHARDGRAD_CUDA_ARCHITECTURES=\"${cuda_architectures}\"")
if(SHARDGRAD_HAS_CUDA)
  set(library_with_cuda shardgrad)
  target_sources(shardgrad PRIVATE $<TARGET_OBJECTS:shardgrad_cuda>)
  target_link_libraries(shardgrad PRIVATE ${cuda_libraries})
  return()
endif()

# CHECK: the library's objects once more, with device cuda in the place of its absence.
set(library_with_cuda shardgrad_with_cuda)
add_library(shardgrad_with_cuda SHARED $<TARGET_OBJECTS:shardgrad_cuda> $<TARGET_OBJECTS:shardgrad>)
foreach(isa IN LISTS isas)
  target_sources(shardgrad_with_cuda PRIVATE $<TARGET_OBJECTS:shardgrad_${isa}>)
endforeach()
get_target_property(libraries shardgrad LINK_LIBRARIES)
target_link_libraries(shardgrad_with_cuda PRIVATE ${libraries} ${cuda_libraries} -Wl,--no-undefined)
