# `cmake --install build --prefix DIR`, then find_package(shardgrad) in another project.
include(CMakePackageConfigHelpers)
install(TARGETS shardgrad EXPORT shardgrad-targets)
if(TARGET shardgrad_program)
  install(TARGETS shardgrad_program)
endif()
foreach(folder core kernels dist autograd nn optim fsdp train)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardgrad
          FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT shardgrad-targets NAMESPACE shardgrad:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
# nvcc is looked for here, since a language can only be enabled outside functions.
file(WRITE ${PROJECT_BINARY_DIR}/shardgrad-config.cmake
     "include(\${CMAKE_CURRENT_LIST_DIR}/shardgrad-targets.cmake)
set(SHARDGRAD_HAS_SIM ${SHARDGRAD_HAS_SIM})
set(SHARDGRAD_HAS_CUDA ${SHARDGRAD_HAS_CUDA})
if(SHARDGRAD_HAS_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES \"${cuda_architectures}\")
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS \"${CMAKE_CUDA_COMPILER}\")
    set(CMAKE_CUDA_COMPILER \"${CMAKE_CUDA_COMPILER}\")
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 on toolkit 13
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
endif()
include(\${CMAKE_CURRENT_LIST_DIR}/shardgrad-kernels.cmake)
")
install(FILES ${PROJECT_SOURCE_DIR}/cmake/shardgrad-kernels.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardgrad-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardgrad-config.cmake ${PROJECT_BINARY_DIR}/shardgrad-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
