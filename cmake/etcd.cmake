# The optional component muster::etcd: a client of etcd v3 on gRPC. src/CMakeLists.txt includes this when MUSTER_ETCD is
# on. Other folders add their sources with target_sources(muster_etcd PRIVATE ...).
include(${CMAKE_CURRENT_LIST_DIR}/muster-grpc.cmake)
muster_find_grpc()
find_program(MUSTER_PROTOC protoc REQUIRED)

# The code that protoc generates from etcd's messages. It gets none of our warnings, and only the sanitizer for memory.
set(wire_dir ${CMAKE_CURRENT_BINARY_DIR}/etcd_wire)
set(wire_proto ${CMAKE_CURRENT_SOURCE_DIR}/etcd/grpc/etcd.proto)
file(MAKE_DIRECTORY ${wire_dir})
add_custom_command(
  OUTPUT ${wire_dir}/etcd.pb.cc ${wire_dir}/etcd.pb.h
  COMMAND ${MUSTER_PROTOC} -I ${CMAKE_CURRENT_SOURCE_DIR}/etcd/grpc --cpp_out=${wire_dir} ${wire_proto}
  DEPENDS ${wire_proto} VERBATIM)
add_library(muster_etcd_wire OBJECT ${wire_dir}/etcd.pb.cc)
target_compile_options(muster_etcd_wire PRIVATE -w)
target_include_directories(muster_etcd_wire SYSTEM PUBLIC ${wire_dir})
target_link_libraries(muster_etcd_wire PUBLIC muster_grpc)

add_library(muster_etcd STATIC etcd/grpc/client.cc etcd/grpc/failure.cc etcd/grpc/grpc_etcd.cc etcd/on_etcd.cc
            etcd/status.cc
            $<TARGET_OBJECTS:muster_etcd_wire>)
add_library(muster::etcd ALIAS muster_etcd)
set_target_properties(muster_etcd PROPERTIES EXPORT_NAME etcd)
target_include_directories(muster_etcd PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(muster_etcd SYSTEM PRIVATE ${wire_dir})
target_link_libraries(muster_etcd PUBLIC muster
                      PRIVATE $<BUILD_INTERFACE:muster_grpc> $<INSTALL_INTERFACE:muster::grpc>)
