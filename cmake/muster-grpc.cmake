# muster_find_grpc(): the target muster_grpc, all that a program with muster's etcd client links. Also installed, for
# find_package(muster COMPONENTS etcd).
#
# Debian's own CMake files of gRPC name its shared libraries only. A program that is copied alone to another machine wants
# the static ones, which pkg-config knows in their order. OpenSSL stays shared: it is the system's to keep secure.
function(muster_find_grpc)
  if(TARGET muster_grpc)
    return()
  endif()
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(MUSTER_GRPC REQUIRED QUIET grpc++ protobuf-lite)
  set(libraries "")
  set(shared ssl crypto dl rt atomic pthread)
  foreach(name ${MUSTER_GRPC_STATIC_LIBRARIES})
    if(name IN_LIST shared)
      set(found ${name})
    else()
      find_library(MUSTER_LIB_${name} NAMES lib${name}.a ${name} HINTS ${MUSTER_GRPC_STATIC_LIBRARY_DIRS})
      mark_as_advanced(MUSTER_LIB_${name})
      if(NOT MUSTER_LIB_${name})
        message(FATAL_ERROR "gRPC needs the library ${name}, which is not there")
      endif()
      set(found ${MUSTER_LIB_${name}})
    endif()
    # Once each: the group below makes their order irrelevant.
    if(NOT found IN_LIST libraries)
      list(APPEND libraries ${found})
    endif()
  endforeach()
  add_library(muster_grpc INTERFACE)
  target_include_directories(muster_grpc SYSTEM INTERFACE ${MUSTER_GRPC_INCLUDE_DIRS})
  target_link_libraries(muster_grpc INTERFACE -Wl,--start-group ${libraries} -Wl,--end-group Threads::Threads)
endfunction()
