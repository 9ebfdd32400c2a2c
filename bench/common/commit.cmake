# Writes the commit that is being built into a header, only when it has changed:
# cmake -DROOT=.. -DOUT=.. -P commit.cmake
cmake_minimum_required(VERSION 3.22)
execute_process(COMMAND git -C ${ROOT} describe --always --dirty --abbrev=12 OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define GAP_BENCH_COMMIT \"@commit@\"\n" @ONLY)
