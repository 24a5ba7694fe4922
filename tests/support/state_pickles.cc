#include "support/state_pickles.h"

#include "support/bytes.h"

namespace muster::test {

std::string Vector1() {
  return Hex(
      "800495cb000000000000008c37746f7263682e64697374726962757465642e656c61737469632e72"
      "656e64657a766f75"
      "732e64796e616d69635f72656e64657a766f7573948c105f52656e64657a766f7573537461746594"
      "93942981947d9428"
      "8c05726f756e64944b008c08636f6d706c65746594898c08646561646c696e65944e8c06636c6f73"
      "656494898c0c7061"
      "727469636970616e7473947d948c09776169745f6c697374948f948c0f726564756e64616e63795f"
      "6c697374948f948c"
      "0f6c6173745f68656172746265617473947d9475622e");
}
std::string Vector2() {
  return Hex(
      "8004957b010000000000008c37746f7263682e64697374726962757465642e656c61737469632e72"
      "656e64657a766f75"
      "732e64796e616d69635f72656e64657a766f7573948c105f52656e64657a766f7573537461746594"
      "93942981947d9428"
      "8c05726f756e64944b008c08636f6d706c65746594898c08646561646c696e65948c086461746574"
      "696d65948c086461"
      "746574696d65949394430a07ea01020304230000069468088c0874696d657a6f6e6594939468088c"
      "0974696d6564656c"
      "74619493944b004b004b008794529485945294869452948c06636c6f73656494898c0c7061727469"
      "636970616e747394"
      "7d9468008c095f4e6f6465446573639493942981947d94288c0461646472948c0831302e302e302e"
      "37948c0370696494"
      "4d41018c086c6f63616c5f6964944b0075624b00738c09776169745f6c697374948f948c0f726564"
      "756e64616e63795f"
      "6c697374948f948c0f6c6173745f68656172746265617473947d94681b680a430a07ea0102030405"
      "0000069468138694"
      "52947375622e");
}
std::string Vector3() {
  return Hex(
      "800495e7010000000000008c37746f7263682e64697374726962757465642e656c61737469632e72"
      "656e64657a766f75"
      "732e64796e616d69635f72656e64657a766f7573948c105f52656e64657a766f7573537461746594"
      "93942981947d9428"
      "8c05726f756e64944b038c08636f6d706c65746594888c08646561646c696e65944e8c06636c6f73"
      "656494898c0c7061"
      "727469636970616e7473947d942868008c095f4e6f6465446573639493942981947d94288c046164"
      "6472948c126e6f64"
      "652d612e6578616d706c652e636f6d948c03706964944d67128c086c6f63616c5f6964944b007562"
      "4b00680c2981947d"
      "9428680f8c126e6f64652d622e6578616d706c652e636f6d9468114a7111010068124b0175624b01"
      "758c09776169745f"
      "6c697374948f9428680c2981947d9428680f8c126e6f64652d632e6578616d706c652e636f6d9468"
      "114b0c68124b0075"
      "62908c0f726564756e64616e63795f6c697374948f948c0f6c6173745f6865617274626561747394"
      "7d9428680d8c0864"
      "61746574696d65948c086461746574696d65949394430a07ea03010c22380c0a1494681f8c087469"
      "6d657a6f6e659493"
      "94681f8c0974696d6564656c74619493944b004b004b008794529485945294869452946813682143"
      "0a07ea03010c2239"
      "0c0a1494682a869452946818682c7575622e");
}
std::string Vector4() {
  return Hex(
      "80048c37746f7263682e64697374726962757465642e656c61737469632e72656e64657a766f7573"
      "2e64796e616d6963"
      "5f72656e64657a766f75738c105f52656e64657a766f757353746174659329817d288c05726f756e"
      "644b008c08636f6d"
      "706c657465898c08646561646c696e654e8c06636c6f736564898c0c7061727469636970616e7473"
      "7d28758c09776169"
      "745f6c6973748f28908c0f726564756e64616e63795f6c6973748f28908c0f6c6173745f68656172"
      "7462656174737d28"
      "7575622e");
}
std::string Vector5() {
  return Hex(
      "80048c37746f7263682e64697374726962757465642e656c61737469632e72656e64657a766f7573"
      "2e64796e616d6963"
      "5f72656e64657a766f75738c105f52656e64657a766f757353746174659329817d288c05726f756e"
      "644b008c08636f6d"
      "706c657465898c08646561646c696e658c086461746574696d658c086461746574696d6593430a07"
      "ea01020304230000"
      "068c086461746574696d658c0874696d657a6f6e65938c086461746574696d658c0974696d656465"
      "6c7461934b004b00"
      "4b008752855286528c06636c6f736564898c0c7061727469636970616e74737d288c37746f726368"
      "2e64697374726962"
      "757465642e656c61737469632e72656e64657a766f75732e64796e616d69635f72656e64657a766f"
      "75738c095f4e6f64"
      "65446573639329817d288c04616464728c0831302e302e302e378c037069644d41018c086c6f6361"
      "6c5f69644b007562"
      "4b00758c09776169745f6c6973748f28908c0f726564756e64616e63795f6c6973748f28908c0f6c"
      "6173745f68656172"
      "7462656174737d288c37746f7263682e64697374726962757465642e656c61737469632e72656e64"
      "657a766f75732e64"
      "796e616d69635f72656e64657a766f75738c095f4e6f6465446573639329817d288c04616464728c"
      "0831302e302e302e"
      "378c037069644d41018c086c6f63616c5f69644b0075628c086461746574696d658c086461746574"
      "696d6593430a07ea"
      "01020304050000068c086461746574696d658c0874696d657a6f6e65938c086461746574696d658c"
      "0974696d6564656c"
      "7461934b004b004b008752855286527575622e");
}

RendezvousState State1() { return {}; }

RendezvousState State2() {
  const muster::Node node{.addr = "10.0.0.7", .pid = 321, .local_id = 0};
  RendezvousState state;
  state.deadline = kMorning + 30s;
  state.participants = {{node, 0}};
  state.last_heartbeats = {{node, kMorning}};
  return state;
}

RendezvousState State3() {
  const muster::Node a{.addr = "node-a.example.com", .pid = 4711, .local_id = 0};
  const muster::Node b{.addr = "node-b.example.com", .pid = 70'001, .local_id = 1};
  const muster::Node c{.addr = "node-c.example.com", .pid = 12, .local_id = 0};
  constexpr WallTime kNoon{1'772'368'496'789'012};  // 2026-03-01 12:34:56.789012
  RendezvousState state;
  state.round = 3;
  state.complete = true;
  state.participants = {{a, 0}, {b, 1}};
  state.wait_list = {c};
  state.last_heartbeats = {{a, kNoon}, {b, kNoon + 1s}, {c, kNoon}};
  return state;
}

namespace pickle {

namespace {

constexpr std::string_view kModule = "torch.distributed.elastic.rendezvous.dynamic_rendezvous";

std::string Join(const Pieces& items) {
  std::string out;
  for (const std::string& item : items) out += item;
  return out;
}

}  // namespace

std::string Text(std::string_view text) {
  if (text.size() > 255) return "X" + U32(static_cast<uint32_t>(text.size())) + std::string(text);
  return "\x8c" + std::string(1, static_cast<char>(text.size())) + std::string(text);
}

std::string Long(std::string_view digits) {
  return "\x8a" + std::string(1, static_cast<char>(digits.size())) + std::string(digits);
}

std::string Int(uint8_t number) { return {'K', static_cast<char>(number)}; }

std::string Class(std::string_view module, std::string_view name) {
  return Text(module) + Text(name) + "\x93";
}

std::string Tuple(const Pieces& items) {
  const std::string opcodes = ")\x85\x86\x87";
  return Join(items) + opcodes.at(items.size());
}

std::string Set(const Pieces& items) { return "\x8f(" + Join(items) + "\x90"; }

std::string List(const Pieces& items) { return "](" + Join(items) + "e"; }

std::string Dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += key + value;
  return out + "u";
}

std::string Attributes(const Named& items) {
  std::string out = "}(";
  for (const auto& [name, value] : items) out += Text(name) + value;
  return out + "u";
}

std::string Reduce(const std::string& callee, const std::string& arguments) {
  return callee + arguments + "R";
}

std::string TimeDelta(const Pieces& arguments) {
  return Reduce(Class("datetime", "timedelta"), Tuple(arguments));
}

std::string TimeZone(const Pieces& arguments) {
  return Reduce(Class("datetime", "timezone"), Tuple(arguments));
}

std::string DateTime(const Pieces& arguments) {
  return Reduce(Class("datetime", "datetime"), Tuple(arguments));
}

std::string Utc() { return TimeZone({TimeDelta({Int(0), Int(0), Int(0)})}); }

std::string StateClass() { return Class(kModule, "_RendezvousState"); }

std::string NodeClass() { return Class(kModule, "_NodeDesc"); }

std::string NewObject(const std::string& of, const Named& attributes) {
  return of + ")\x81" + Attributes(attributes) + "b";
}

std::string Node(std::string_view addr, uint8_t pid, uint8_t local_id) {
  return NewObject(NodeClass(),
                   {{"addr", Text(addr)}, {"pid", Int(pid)}, {"local_id", Int(local_id)}});
}

std::string Whole(const std::string& value) { return "\x80\x04" + value + "."; }

std::string StateWith(const Named& changes) {
  Named attributes = {{"round", Int(0)},
                      {"complete", kFalse},
                      {"deadline", kNone},
                      {"closed", kFalse},
                      {"participants", kEmptyDict},
                      {"wait_list", kEmptySet},
                      {"redundancy_list", kEmptySet},
                      {"last_heartbeats", kEmptyDict}};
  for (const auto& [name, value] : changes) {
    std::erase_if(attributes, [&name = name](const auto& one) { return one.first == name; });
    if (!value.empty()) attributes.emplace_back(name, value);
  }
  return Whole(NewObject(StateClass(), attributes));
}

}  // namespace pickle

}  // namespace muster::test
