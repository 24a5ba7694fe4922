# muster_find_grpc(): the target muster_grpc, with all that a program with muster's etcd client links. Also installed,
# for find_package(muster COMPONENTS etcd).
#
# Debian's own CMake files of gRPC name only its shared libraries. A program that is copied alone to another machine
# needs the static ones, and pkg-config knows their order. OpenSSL stays shared, so that it gets the system's security
# updates.

# Sets a variable to pkg-config's output about gRPC, as a list of words. pkg_check_modules would run it twenty times,
# and each run reads all of Abseil: many seconds.
function(muster_ask_about_grpc variable)
  find_package(PkgConfig REQUIRED)
  set(path $ENV{PKG_CONFIG_PATH})
  foreach(prefix ${CMAKE_PREFIX_PATH})
    string(APPEND path ":${prefix}/lib/pkgconfig:${prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${prefix}/share/pkgconfig")
  endforeach()
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "PKG_CONFIG_PATH=${path}" ${PKG_CONFIG_EXECUTABLE} ${ARGN} grpc++ protobuf-lite
                  OUTPUT_VARIABLE said ERROR_VARIABLE complaint RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "muster's client of etcd needs gRPC, which pkg-config does not find: ${complaint}")
  endif()
  separate_arguments(words UNIX_COMMAND "${said}")
  set(${variable} ${words} PARENT_SCOPE)
endfunction()

function(muster_find_grpc)
  if(TARGET muster_grpc)
    return()
  endif()
  muster_ask_about_grpc(words --static --cflags --libs)
  set(names ${words})
  set(library_folders ${words})
  set(include_folders ${words})
  list(FILTER names INCLUDE REGEX "^-l")
  list(FILTER library_folders INCLUDE REGEX "^-L")
  list(FILTER include_folders INCLUDE REGEX "^-I")
  list(TRANSFORM names REPLACE "^-l" "")
  list(TRANSFORM library_folders REPLACE "^-L" "")
  list(TRANSFORM include_folders REPLACE "^-I" "")
  set(libraries "")
  set(shared ssl crypto dl rt atomic pthread)
  foreach(name ${names})
    if(name IN_LIST shared)
      set(found ${name})
    else()
      find_library(MUSTER_LIB_${name} NAMES lib${name}.a ${name} HINTS ${library_folders})
      mark_as_advanced(MUSTER_LIB_${name})
      if(NOT MUSTER_LIB_${name})
        message(FATAL_ERROR "gRPC needs the library ${name}, which is not there")
      endif()
      set(found ${MUSTER_LIB_${name}})
    endif()
    # Each once: the group below makes their order irrelevant.
    if(NOT found IN_LIST libraries)
      list(APPEND libraries ${found})
    endif()
  endforeach()
  add_library(muster_grpc INTERFACE)
  target_include_directories(muster_grpc SYSTEM INTERFACE ${include_folders})
  target_link_libraries(muster_grpc INTERFACE -Wl,--start-group ${libraries} -Wl,--end-group Threads::Threads)
endfunction()
