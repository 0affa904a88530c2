# Replaces the sources in the list with this name by files that include eight of them each, so that what they share is
# compiled once. The files hold no path of this machine: a compiler cache serves several clones.
# Kernels are left alone, whose files all use the same few names.
function(join_sources list name)
  set(joined)
  set(count 0)
  foreach(source IN LISTS ${list})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    if(path MATCHES "^kernels/cpu/")
      list(APPEND joined ${source})
      continue()
    endif()
    math(EXPR part "${count} / 8")
    string(APPEND text_${part} "#include <shardgrad/${path}>\n")
    math(EXPR count "${count} + 1")
  endforeach()
  foreach(number RANGE ${part})
    set(file ${PROJECT_BINARY_DIR}/unity/${name}_${number}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text_${number}}")
    list(APPEND joined ${file})
  endforeach()
  set_source_files_properties(${joined} PROPERTIES COMPILE_OPTIONS
                              "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")  # as if they included headers
  set(${list} ${joined} PARENT_SCOPE)
endfunction()
