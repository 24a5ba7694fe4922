// What a pickle says, before anybody asks what it means: values that name each other by number.
// They may do so in circles. Nothing is owned by anything but the tree, so that no shape of it, ten
// million levels deep or otherwise, makes building or dropping it recurse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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
  bool fits = true;     ///< Int: `number` is it. Time: it has a zone.
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

class PickleTree {
 public:
  /// `bytes` outlive the tree, which shows parts of them.
  explicit PickleTree(std::string_view bytes) : bytes_(bytes) {}

  PickleId Add(const PickleValue& value) {
    values_.push_back(value);
    return static_cast<PickleId>(values_.size() - 1);
  }

  void Append(PickleId container, PickleId key, PickleId value) {
    const auto place = static_cast<uint32_t>(items_.size());
    items_.push_back({.key = key, .value = value});
    PickleValue& owner = values_[container];
    (owner.size == 0 ? owner.first : items_[owner.last].next) = place;
    owner.last = place;
    ++owner.size;
  }

  const PickleValue& operator[](PickleId id) const { return values_[id]; }
  PickleValue& operator[](PickleId id) { return values_[id]; }
  size_t value_count() const { return values_.size(); }
  size_t item_count() const { return items_.size(); }
  std::string_view bytes() const { return bytes_; }

  /// The bytes of a value that stands for itself: opcode and operand.
  std::string_view Encoded(PickleId id) const {
    return bytes_.substr(values_[id].at, values_[id].size);
  }
  /// The content of a text or bytes.
  std::string_view Content(PickleId id) const { return Encoded(id).substr(values_[id].header); }

  /// For `for`: the items of a container, in order.
  class Items {
   public:
    class Iterator {
     public:
      Iterator(const std::vector<PickleItem>& items, uint32_t place)
          : items_(&items), place_(place) {}
      const PickleItem& operator*() const { return (*items_)[place_]; }
      Iterator& operator++() { return place_ = (*items_)[place_].next, *this; }
      bool operator==(const Iterator& other) const { return place_ == other.place_; }

     private:
      const std::vector<PickleItem>* items_;
      uint32_t place_;
    };

    Items(const std::vector<PickleItem>& items, uint32_t first) : items_(items), first_(first) {}
    Iterator begin() const { return {items_, first_}; }
    Iterator end() const { return {items_, kNoPickleId}; }

   private:
    const std::vector<PickleItem>& items_;
    uint32_t first_;
  };
  Items ItemsOf(PickleId container) const { return {items_, values_[container].first}; }

  PickleId root = kNoPickleId;

 private:
  std::string_view bytes_;
  std::vector<PickleValue> values_;
  // Each container's items are a list through this vector: appending is cheap however the pickle
  // jumps between containers.
  std::vector<PickleItem> items_;
};

}  // namespace muster::wire
