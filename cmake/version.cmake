# What `shardgrad --version` tells. The commit is looked up at every build, the rest when CMake configures.
set(version_file ${PROJECT_BINARY_DIR}/version.cpp)
set(onednn_text "none")
if(SHARDGRAD_HAS_ONEDNN)
  file(STRINGS ${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." onednn_text)
endif()
set(openmp_text "none")
if(SHARDGRAD_HAS_OPENMP)
  set(openmp_text ${OpenMP_CXX_VERSION})
endif()
set(cuda_text "none")
if(SHARDGRAD_HAS_CUDA)
  list(JOIN cuda_architectures " " cuda_text)
  set(cuda_text "${CUDAToolkit_VERSION} for ${cuda_text}")
  if(NOT TARGET CUDA::cublasLt)
    string(APPEND cuda_text ", without cuBLASLt")
  endif()
endif()
add_custom_target(shardgrad_version
  COMMAND ${CMAKE_COMMAND} -D source=${PROJECT_SOURCE_DIR} -D out=${version_file} -D version=${PROJECT_VERSION}
          -D "compiler=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -D "onednn=${onednn_text}" -D "openmp=${openmp_text}"
          -D "cuda=${cuda_text}" -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake
  BYPRODUCTS ${version_file} VERBATIM)
target_sources(shardgrad PRIVATE ${version_file})
set_source_files_properties(${version_file} PROPERTIES GENERATED TRUE)
add_dependencies(shardgrad shardgrad_version)
