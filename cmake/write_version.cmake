# Writes the version source; leaves the file alone when nothing has changed.
set(git "unknown")
execute_process(COMMAND git -C ${source} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE found
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE code)
if(code EQUAL 0)
  set(git ${found})
endif()
set(text "#include <shardgrad/train/build_info.h>

namespace shardgrad::train {
BuildInfo build_info() {
  return {\"${version}\", \"${git}\", \"${compiler}\", \"${onednn}\", \"${openmp}\", \"${pcre2}\", \"${cuda}\"};
}
}  // namespace shardgrad::train
")
set(old "")
if(EXISTS ${out})
  file(READ ${out} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${out} "${text}")
endif()
