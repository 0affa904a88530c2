# Compile and link options shared by every target of this project.
add_library(shardgrad_flags INTERFACE)
# For C++; nvcc has other options, given by those who compile with it (cmake/cuda.cmake).
set(cxx $<COMPILE_LANGUAGE:CXX>)
set(warnings -Wall -Wextra -Wnon-virtual-dtor -Wpedantic -Wno-missing-field-initializers)
# A frame that reaches past the end of a small thread stack stops the program instead of writing elsewhere.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-fstack-clash-protection SHARDGRAD_HAS_STACK_CLASH_PROTECTION)
if(SHARDGRAD_HAS_STACK_CLASH_PROTECTION)
  target_compile_options(shardgrad_flags INTERFACE $<${cxx}:-fstack-clash-protection>)
endif()
# Calls within a file may be inlined, as clang does without being told: nobody replaces one of a library's functions there.
target_compile_options(shardgrad_flags INTERFACE "$<$<AND:${cxx},$<CXX_COMPILER_ID:GNU>>:-fno-semantic-interposition>")
# Lets ccache see what a precompiled header was made of.
target_compile_options(shardgrad_flags INTERFACE "$<$<AND:${cxx},$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>")
# A file of several sources fills more memory than gcc would collect at: to let it be takes a seventh off its time.
if(SHARDGRAD_UNITY)
  target_compile_options(shardgrad_flags INTERFACE "$<$<AND:${cxx},$<CXX_COMPILER_ID:GNU>>:--param=ggc-min-heapsize=1048576>")
endif()
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
  # gcc 12 sees uninitialised memory in instrumented code where there is none. That TSan does not see fences (-Wtsan) is
  # known: where one stands (optim/gathered_updates.h), an operation that TSan sees stands beside it.
  target_compile_options(shardgrad_flags INTERFACE ${sanitize} -fno-omit-frame-pointer -g1
                                                   $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-tsan>)
  target_link_options(shardgrad_flags INTERFACE ${sanitize})
endif()
