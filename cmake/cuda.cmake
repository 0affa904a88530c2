# Device cuda: its backend and kernels, as part of the library. The kernels are compiled by nvcc here, and by the C++
# compiler for the simulator (sim.cmake).
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cpp)
add_library(shardgrad_cuda OBJECT ${cuda_kernels} ${cuda_sources})
set_target_properties(shardgrad_cuda PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
                                                POSITION_INDEPENDENT_CODE ON)
target_include_directories(shardgrad_cuda PRIVATE ${PROJECT_BINARY_DIR}/include)
target_include_directories(shardgrad_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
# Pedantic warnings are about what nvcc generates. No fused contraction is turned off: a GPU's products are fused.
target_compile_options(shardgrad_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra --expt-relaxed-constexpr
                                              --expt-extended-lambda $<$<BOOL:${SHARDGRAD_WERROR}>:-Werror=all-warnings>>)
target_link_libraries(shardgrad_cuda PRIVATE $<$<COMPILE_LANGUAGE:CXX>:shardgrad_flags>)
target_sources(shardgrad PRIVATE $<TARGET_OBJECTS:shardgrad_cuda>)

target_include_directories(shardgrad SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(shardgrad PRIVATE "SHARDGRAD_CUDA_ARCHITECTURES=\"${cuda_architectures}\"")
target_link_libraries(shardgrad PRIVATE CUDA::cudart_static CUDA::cublasLt)
