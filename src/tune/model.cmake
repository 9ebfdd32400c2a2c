# Names the model by its sources: cmake -DROOT=.. -DOUT=.. -P model.cmake
cmake_minimum_required(VERSION 3.22)
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/src/base/*.[ch] ${ROOT}/src/record/*.[ch]
  ${ROOT}/src/conf/*.[ch] ${ROOT}/src/conf/*.def
  ${ROOT}/src/core/*.[ch] ${ROOT}/src/core/*.def ${ROOT}/src/dev/dev.* ${ROOT}/src/dev/sim/*.[ch]
  ${ROOT}/src/dev/soft/*.[ch] ${ROOT}/src/trace/*.[ch] ${ROOT}/src/replay/*.[ch] ${ROOT}/src/tune/settings.c)
list(SORT sources)
set(all "")
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} sum)
  string(APPEND all "${source} ${sum}\n")
endforeach()
string(SHA256 model "${all}")
file(WRITE ${OUT} "/* Made by model.cmake. */\n#include \"tune/model.h\"\n\nconst char gap__tune_model[] = \"${model}\";\n")
