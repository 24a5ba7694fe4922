// muster's FileStore, driven by lines on standard input: the other half of
// tests/compat/test_file_store.py.
//
//   file_store_peer PATH [WORLD_SIZE]
//
//   set K V | get K | add K N | cas K EXPECTED DESIRED | del K | check K... | append K V | num |
//   keys | timeout MS | quit
//
// Keys and values are percent-encoded, so that every byte can be sent; "%" alone is the empty one.
// One line answers each command: "ok", "true", "false", a number, an encoded value, encoded keys,
// or "! " and the error. "quit" or the end of the input destroys the store.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "muster/file_store.h"

namespace {

constexpr std::string_view kDigits = "0123456789ABCDEF";

std::string Encode(std::string_view bytes) {
  if (bytes.empty()) return "%";
  std::string word;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7f && c != '%') {
      word += c;
    } else {
      word += '%';
      word += kDigits[byte >> 4];
      word += kDigits[byte & 15];
    }
  }
  return word;
}

std::string Decode(std::string_view word) {
  if (word == "%") return "";
  std::string bytes;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '%') {
      bytes += word[i];
      continue;
    }
    const size_t high = i + 2 < word.size() ? kDigits.find(word[i + 1]) : std::string_view::npos;
    const size_t low = i + 2 < word.size() ? kDigits.find(word[i + 2]) : std::string_view::npos;
    if (high == std::string_view::npos || low == std::string_view::npos) {
      throw std::invalid_argument("not percent-encoded: " + std::string(word));
    }
    bytes += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return bytes;
}

std::string Truth(bool truth) { return truth ? "true" : "false"; }

std::string Keys(muster::FileStore& store) {
  std::vector<std::string> keys = store.ListKeys();
  std::sort(keys.begin(), keys.end());
  std::string line;
  for (const std::string& key : keys) line += (line.empty() ? "" : " ") + Encode(key);
  return line;
}

/// `words` are decoded; the first one is the command.
std::string Answer(muster::FileStore& store, const std::vector<std::string>& words) {
  const std::string& command = words.at(0);
  if (command == "set") return store.Set(words.at(1), words.at(2)), "ok";
  if (command == "get") return Encode(store.Get(words.at(1)));
  if (command == "add") return std::to_string(store.Add(words.at(1), std::stoll(words.at(2))));
  if (command == "cas") return Encode(store.CompareSet(words.at(1), words.at(2), words.at(3)));
  if (command == "del") return Truth(store.DeleteKey(words.at(1)));
  if (command == "check") return Truth(store.Check({words.begin() + 1, words.end()}));
  if (command == "append") return store.Append(words.at(1), words.at(2)), "ok";
  if (command == "num") return std::to_string(store.GetNumKeys());
  if (command == "keys") return Keys(store);
  if (command == "timeout") {
    return store.SetTimeout(std::chrono::milliseconds(std::stoll(words.at(1)))), "ok";
  }
  throw std::invalid_argument("no command '" + command + "'");
}

void Serve(muster::FileStore& store) {
  std::string line;
  while (std::getline(std::cin, line) && line != "quit") {
    try {
      std::vector<std::string> words;
      std::istringstream rest(line);
      for (std::string word; rest >> word;) words.push_back(Decode(word));
      std::cout << Answer(store, words) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "! " << error.what() << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: file_store_peer PATH [WORLD_SIZE]\n";
    return 2;
  }
  try {
    muster::FileStore store(argv[1], argc == 3 ? std::stoi(argv[2]) : -1);
    Serve(store);
  } catch (const std::exception& error) {
    std::cerr << "file_store_peer: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
