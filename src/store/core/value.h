// Values: small ones are strings; large ones consist of immutable, shared pieces, so that megabytes
// are not copied under the store's lock.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_account.h"

namespace muster {

/// Values up to this are copied; larger ones are shared.
inline constexpr size_t kSmallValueBytes = 4 * 1024;

/// Immutable bytes, charged to the account until the last reference is destroyed.
class PieceBytes {
 public:
  PieceBytes(std::string bytes, MemoryAccount& account)
      : bytes_(std::move(bytes)),
        charge_(account, AllocatedBytes(sizeof(PieceBytes)) + HeapBytes(bytes_)) {}
  std::string_view bytes() const { return bytes_; }

 private:
  const std::string bytes_;
  const Charge charge_;
};
using Piece = std::shared_ptr<const PieceBytes>;

inline Piece MakePiece(std::string_view bytes, MemoryAccount& account) {
  return std::make_shared<const PieceBytes>(std::string(bytes), account);
}

/// A view of a value: its pieces, followed by the tail.
struct ValueView {
  ValueView() = default;
  ValueView(std::string_view text) : tail(text), bytes(text.size()) {}  // NOLINT: a text is a value
  ValueView(const char* text) : ValueView(std::string_view(text)) {}    // NOLINT
  ValueView(const std::string& text) : ValueView(std::string_view(text)) {}  // NOLINT
  ValueView(std::span<const Piece> begin, std::string_view end, size_t total)
      : pieces(begin), tail(end), bytes(total) {}

  /// Stored, because there may be thousands of pieces.
  size_t size() const { return bytes; }
  explicit operator std::string() const;
  bool operator==(std::string_view text) const;

  std::span<const Piece> pieces{};
  std::string_view tail{};
  size_t bytes = 0;  // of all
};

/// One owner.
class Value {
 public:
  Value() = default;
  /// A small value.
  explicit Value(std::string_view small) : tail_(small) {}
  explicit Value(Piece piece) { AddPiece(std::move(piece)); }
  Value(Value&&) = default;
  Value& operator=(Value&&) = default;

  size_t size() const { return tail_.size() + (large_ == nullptr ? 0 : large_->bytes); }
  bool is_large() const { return large_ != nullptr; }
  ValueView view() const {
    return large_ == nullptr ? ValueView(tail_) : ValueView(large_->pieces, tail_, size());
  }
  /// The text of a small value.
  const std::string& small() const { return tail_; }

  /// Memory that it has allocated besides itself and its pieces.
  size_t heap_bytes() const;

  /// Assigns if the present buffer fits the new value; false: it does not.
  bool AssignInPlace(std::string_view value) {
    const size_t capacity = tail_.capacity();
    if (large_ != nullptr || value.size() > capacity || capacity > kKeptBytes) return false;
    tail_ = value;
    return true;
  }
  /// Replaces a small value by another one.
  void Assign(std::string_view small);
  /// Small texts are collected in the tail, which becomes a piece when it is large. So are small
  /// pieces, except the first one: a value of many bytes has few pieces, however it has grown.
  void Append(std::string_view small, MemoryAccount& account);
  void Append(Piece piece, MemoryAccount& account);

  /// Destroys the last piece, or the tail: large values are destroyed in portions. Returns how many
  /// bytes it had; the value is empty when size() is 0.
  size_t DestroyLast();

 private:
  void AddPiece(Piece piece);
  void CloseTail(MemoryAccount& account);

  static constexpr size_t kKeptBytes = 256;            // capacity that a smaller value keeps
  static constexpr size_t kGatheredBytes = 64 * 1024;  // in the tail of a large value
  struct Large {
    std::vector<Piece> pieces;
    size_t bytes = 0;
  };

  std::unique_ptr<Large> large_;
  std::string tail_;
};

}  // namespace muster
