// What a pickle contains, before its meaning is known: values that refer to each other by number,
// possibly in circles. The tree owns all of them, so building or destroying it never recurses,
// however deep it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "rendezvous/wire/pickle_opcodes.h"

namespace muster::wire {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kBytes,
  kTuple,
  kList,
  kDict,
  kSet,
  kClass,
  kInstance,   ///< of a state or node
  kDateTime,   ///< These three: a class and the arguments of its constructor.
  kTimeZone,   ///<
  kTimeDelta,  ///<
};

/// "an integer", for messages.
constexpr std::string_view Describe(PickleKind kind) {
  constexpr std::string_view kWords[] = {"none",   "a boolean",   "an integer",       "a float",
                                         "a text", "bytes",       "a tuple",          "a list",
                                         "a dict", "a set",       "a class",          "an object",
                                         "a time", "a time zone", "a time difference"};
  return kWords[static_cast<size_t>(kind)];
}

using PickleId = uint32_t;
inline constexpr uint32_t kNoPickleId = std::numeric_limits<uint32_t>::max();

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  PickleClass of{};     ///< Class, instance, time: which.
  uint8_t header = 0;   ///< Text, bytes: size of opcode and length.
  bool fits = true;     ///< Int: `number` is its value. Time: it has a zone.
  bool sealed = false;  ///< Dict: the attributes of an object, which no longer change.
  uint32_t at = 0;      ///< Where its opcode is.
  uint32_t size = 0;    ///< Number, text, bytes: size of all that. Containers: number of items.
  uint32_t first = kNoPickleId;  ///< Containers: items. Instance: attributes. Time: arguments.
  uint32_t last = kNoPickleId;
  int64_t number = 0;  ///< Bool, int. Time: microseconds since 1970 in UTC, or of the difference.
};

struct PickleItem {
  PickleId key = kNoPickleId;  ///< Of dicts only.
  PickleId value = kNoPickleId;
  uint32_t next = kNoPickleId;
};

struct PickleTree {
  std::string_view bytes;  ///< Outlive the tree, which shows parts of them.
  std::vector<PickleValue> values{};
  /// Each container's items are a list through this vector: appending is cheap even if the pickle
  /// switches between containers.
  std::vector<PickleItem> items{};
  PickleId root = kNoPickleId;

  void Append(PickleId container, PickleId key, PickleId value) {
    const auto place = static_cast<uint32_t>(items.size());
    items.push_back({.key = key, .value = value});
    PickleValue& owner = values[container];
    (owner.size == 0 ? owner.first : items[owner.last].next) = place;
    owner.last = place;
    ++owner.size;
  }

  const PickleValue& operator[](PickleId id) const { return values[id]; }
  PickleValue& operator[](PickleId id) { return values[id]; }

  /// The bytes of a value that stands for itself: opcode and operand.
  std::string_view Encoded(PickleId id) const {
    return bytes.substr(values[id].at, values[id].size);
  }
  /// The content of a text or bytes.
  std::string_view Content(PickleId id) const { return Encoded(id).substr(values[id].header); }
  /// For `for`: the items of a container, in order.
  struct Items {
    struct Iterator {
      const std::vector<PickleItem>& items;
      uint32_t place;
      const PickleItem& operator*() const { return items[place]; }
      Iterator& operator++() { return place = items[place].next, *this; }
      bool operator==(const Iterator& other) const { return place == other.place; }
    };
    Iterator begin() const { return {items, first}; }
    Iterator end() const { return {items, kNoPickleId}; }

    const std::vector<PickleItem>& items;
    uint32_t first;
  };
  Items ItemsOf(PickleId container) const { return {items, values[container].first}; }
  /// The items of a tuple: they were appended together.
  std::span<const PickleItem> TupleOf(PickleId tuple) const {
    const PickleValue& value = values[tuple];
    return std::span(items).subspan(value.size == 0 ? 0 : value.first, value.size);
  }
};

}  // namespace muster::wire
