// muster's reader and writer of serialized rendezvous states, driven by lines on standard input:
// the other half of tests/compat/test_state.py.
//
//   decode HEX      the pickle as JSON, on one line
//   encode JSON     the pickle as HEX
//   unbase64 HEX    what the characters stand for, as HEX
//
// In JSON a node is [addr, pid, local_id], a map from nodes is a list of [node, value], a time is
// microseconds since 1970, and unknown values are HEX. The answer to an error is "! " and its text.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/encoding.h"
#include "rendezvous/wire/state_codec.h"

namespace {

using Json = nlohmann::json;
using muster::Node;
using muster::RendezvousState;
using muster::WallTime;
using Unknown = std::map<std::string, std::string>;

constexpr std::string_view kDigits = "0123456789abcdef";

std::string ToHex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    const size_t high = kDigits.find(hex[i]);
    const size_t low = i + 1 < hex.size() ? kDigits.find(hex[i + 1]) : std::string_view::npos;
    if (high == std::string_view::npos || low == std::string_view::npos) {
      throw std::invalid_argument("not hexadecimal");
    }
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

template <typename T>
T OrThrow(muster::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

int64_t Microseconds(WallTime time) { return static_cast<int64_t>(time); }

// --- To JSON

Json NodeJson(const Node& node) { return Json::array({node.addr, node.pid, node.local_id}); }

Json NodesJson(const std::set<Node>& nodes) {
  Json list = Json::array();
  for (const Node& node : nodes) list.push_back(NodeJson(node));
  return list;
}

Json UnknownJson(const Unknown& attributes) {
  Json object = Json::object();
  for (const auto& [name, value] : attributes) object[name] = ToHex(value);
  return object;
}

Json StateJson(const RendezvousState& state) {
  Json json = {{"round", state.round},
               {"complete", state.complete},
               {"deadline", nullptr},
               {"closed", state.closed},
               {"participants", Json::array()},
               {"wait_list", NodesJson(state.wait_list)},
               {"redundancy_list", NodesJson(state.redundancy_list)},
               {"last_heartbeats", Json::array()},
               {"closed_by", state.closed_by},
               {"completion", nullptr},
               {"unknown", UnknownJson(state.unknown)},
               {"unknown_of_nodes", Json::array()},
               {"naive_times", state.naive_times}};
  if (state.deadline) json["deadline"] = Microseconds(*state.deadline);
  if (state.completion) {
    json["completion"] = Json::array({state.completion->round, state.completion->world_size});
  }
  for (const auto& [node, rank] : state.participants) {
    json["participants"].push_back(Json::array({NodeJson(node), rank}));
  }
  for (const auto& [node, time] : state.last_heartbeats) {
    json["last_heartbeats"].push_back(Json::array({NodeJson(node), Microseconds(time)}));
  }
  for (const auto& [node, unknown] : state.unknown_of_nodes) {
    json["unknown_of_nodes"].push_back(Json::array({NodeJson(node), UnknownJson(unknown)}));
  }
  return json;
}

// --- From JSON

Node NodeFrom(const Json& json) {
  return {.addr = json.at(0).get<std::string>(),
          .pid = json.at(1).get<int64_t>(),
          .local_id = json.at(2).get<int64_t>()};
}

std::set<Node> NodesFrom(const Json& json) {
  std::set<Node> nodes;
  for (const Json& node : json) nodes.insert(NodeFrom(node));
  return nodes;
}

Unknown UnknownFrom(const Json& json) {
  Unknown attributes;
  for (const auto& [name, value] : json.items()) {
    attributes[name] = FromHex(value.get<std::string>());
  }
  return attributes;
}

RendezvousState StateFrom(const Json& json) {
  RendezvousState state;
  state.round = json.at("round").get<int64_t>();
  state.complete = json.at("complete").get<bool>();
  if (const Json& deadline = json.at("deadline"); !deadline.is_null()) {
    state.deadline = WallTime{deadline.get<int64_t>()};
  }
  state.closed = json.at("closed").get<bool>();
  for (const Json& item : json.at("participants")) {
    state.participants[NodeFrom(item.at(0))] = item.at(1).get<int64_t>();
  }
  state.wait_list = NodesFrom(json.at("wait_list"));
  state.redundancy_list = NodesFrom(json.at("redundancy_list"));
  for (const Json& item : json.at("last_heartbeats")) {
    state.last_heartbeats[NodeFrom(item.at(0))] = WallTime{item.at(1).get<int64_t>()};
  }
  state.closed_by = json.at("closed_by").get<std::string>();
  if (const Json& completion = json.at("completion"); !completion.is_null()) {
    state.completion = {completion.at(0).get<int64_t>(), completion.at(1).get<int64_t>()};
  }
  state.unknown = UnknownFrom(json.at("unknown"));
  for (const Json& item : json.at("unknown_of_nodes")) {
    state.unknown_of_nodes[NodeFrom(item.at(0))] = UnknownFrom(item.at(1));
  }
  state.naive_times = json.at("naive_times").get<bool>();
  return state;
}

std::string Answer(std::string_view command, std::string_view argument) {
  if (command == "decode") {
    return StateJson(OrThrow(muster::wire::ReadState(FromHex(argument)))).dump();
  }
  if (command == "encode") {
    return ToHex(muster::wire::WriteState(StateFrom(Json::parse(argument))));
  }
  if (command == "unbase64") return ToHex(OrThrow(muster::Base64Decode(FromHex(argument))));
  throw std::invalid_argument("no command '" + std::string(command) + "'");
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view text = line;
    try {
      const std::string_view rest = text.substr(std::min(space + 1, line.size()));
      std::cout << Answer(text.substr(0, space), rest) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "! " << error.what() << std::endl;
    }
  }
  return 0;
}
