# `cmake --install build --prefix DIR`, then find_package(shardgrad) or pkg-config in another project.
include(CMakePackageConfigHelpers)
install(TARGETS shardgrad EXPORT shardgrad-targets)
if(TARGET shardgrad_program)
  install(TARGETS shardgrad_program)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/shardgrad.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardgrad)
set(installed core kernels dist autograd nn optim parallel fsdp certify picture)
if(SHARDGRAD_TRAIN)
  list(APPEND installed train)
endif()
foreach(folder IN LISTS installed)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shardgrad
          FILES_MATCHING PATTERN "*.h")
endforeach()
# The simulator is installed where it has been built.
if(TARGET shardgrad_sim)
  install(TARGETS shardgrad_sim EXPORT shardgrad-sim-targets OPTIONAL)
  install(TARGETS shardgrad_sim_kernels LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
  install(EXPORT shardgrad-sim-targets NAMESPACE shardgrad:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
endif()
install(EXPORT shardgrad-targets NAMESPACE shardgrad:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
file(RELATIVE_PATH to_sim_headers /${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad
     /${CMAKE_INSTALL_INCLUDEDIR}/shardgrad/kernels/sim/include)
# nvcc is looked for here, since a language can only be enabled outside functions.
file(WRITE ${PROJECT_BINARY_DIR}/shardgrad-config.cmake
     "include(\${CMAKE_CURRENT_LIST_DIR}/shardgrad-targets.cmake)
set(SHARDGRAD_HAS_SIM FALSE)
if(EXISTS \${CMAKE_CURRENT_LIST_DIR}/../../libshardgrad_sim.so)
  include(\${CMAKE_CURRENT_LIST_DIR}/shardgrad-sim-targets.cmake)
  set(SHARDGRAD_HAS_SIM TRUE)
endif()
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
set(shardgrad_sim_headers \${CMAKE_CURRENT_LIST_DIR}/${to_sim_headers})
include(\${CMAKE_CURRENT_LIST_DIR}/shardgrad-kernels.cmake)
")
install(FILES ${PROJECT_SOURCE_DIR}/cmake/shardgrad-kernels.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardgrad-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shardgrad-config.cmake ${PROJECT_BINARY_DIR}/shardgrad-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/shardgrad)
# For who builds without CMake: c++ mine.cpp $(pkg-config --cflags --libs shardgrad). The folder may move as a whole.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" up "${up}")
file(WRITE ${PROJECT_BINARY_DIR}/shardgrad.pc "prefix=\${pcfiledir}/${up}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}

Name: shardgrad
Description: ${PROJECT_DESCRIPTION}
Version: ${PROJECT_VERSION}
Cflags: -std=c++20 -I\${includedir}
Libs: -L\${libdir} -Wl,-rpath,\${libdir} -lshardgrad
")
install(FILES ${PROJECT_BINARY_DIR}/shardgrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
