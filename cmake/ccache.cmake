# Compiles through ccache if it is installed. Each project that is built here includes this before the first target.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the source folder: another clone of the same commit can use the same cache entries.
  cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH muster_sources)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${muster_sources} CCACHE_NOHASHDIR=1
                                  CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
