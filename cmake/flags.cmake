# Compile and link options shared by every target of this project.
add_library(shardgrad_flags INTERFACE)
# For C++; nvcc has other options, given by those who compile with it (cmake/cuda.cmake).
set(cxx $<COMPILE_LANGUAGE:CXX>)
set(warnings -Wall -Wextra -Wnon-virtual-dtor -Wpedantic -Wno-missing-field-initializers)
# Lets ccache see what a precompiled header was made of.
target_compile_options(shardgrad_flags INTERFACE "$<$<AND:${cxx},$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>")
if(SHARDGRAD_WERROR)
  list(APPEND warnings -Werror)
endif()
target_compile_options(shardgrad_flags INTERFACE "$<${cxx}:${warnings}>")
if(SHARDGRAD_SANITIZE STREQUAL "address")
  # Left out of "undefined": what ASan sees by itself, and checks of every pointer that double the time to compile.
  set(sanitize -fsanitize=address,undefined -fno-sanitize=null,vptr,pointer-overflow,object-size,alignment
               -fno-sanitize-recover=undefined)
elseif(SHARDGRAD_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
elseif(SHARDGRAD_SANITIZE)
  message(FATAL_ERROR "SHARDGRAD_SANITIZE is '${SHARDGRAD_SANITIZE}'; choose address or thread")
endif()
if(sanitize)
  # gcc 12 sees uninitialised memory in instrumented code where there is none.
  target_compile_options(shardgrad_flags INTERFACE ${sanitize} -fno-omit-frame-pointer -g1
                                                   $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(shardgrad_flags INTERFACE ${sanitize})
endif()
