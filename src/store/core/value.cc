#include "store/core/value.h"

namespace muster {

ValueView::operator std::string() const {
  std::string out;
  if (!pieces.empty()) out.reserve(size());
  for (const Piece& piece : pieces) out += piece->bytes();
  out += tail;
  return out;
}

bool ValueView::operator==(std::string_view text) const {
  if (pieces.empty()) return tail == text;
  if (size() != text.size()) return false;
  for (const Piece& piece : pieces) {
    if (!text.starts_with(piece->bytes())) return false;
    text.remove_prefix(piece->bytes().size());
  }
  return text == tail;
}

size_t Value::heap_bytes() const {
  if (large_ == nullptr) return HeapBytes(tail_);
  return HeapBytes(tail_) + AllocatedBytes(sizeof(Large)) +
         AllocatedBytes(large_->pieces.capacity() * sizeof(Piece));
}

void Value::Assign(std::string_view small) {
  // A much larger buffer is freed.
  if (tail_.capacity() > kKeptBytes && small.size() < tail_.capacity() / 4) {
    std::string(small).swap(tail_);
  } else {
    tail_ = small;
  }
}

void Value::Append(std::string_view small, MemoryAccount& account) {
  tail_ += small;
  if (tail_.size() > (large_ == nullptr ? kSmallValueBytes : kGatheredBytes)) CloseTail(account);
}

void Value::Append(Piece piece, MemoryAccount& account) {
  const bool is_first = large_ == nullptr && tail_.empty();
  if (!is_first && piece->bytes().size() <= kGatheredBytes) return Append(piece->bytes(), account);
  if (!tail_.empty()) CloseTail(account);
  AddPiece(std::move(piece));
}

size_t Value::DestroyLast() {
  if (large_ == nullptr || large_->pieces.empty()) {
    return std::exchange(tail_, {}).size();
  }
  const size_t bytes = large_->pieces.back()->bytes().size();
  large_->pieces.pop_back();
  large_->bytes -= bytes;
  return bytes;
}

void Value::CloseTail(MemoryAccount& account) {
  AddPiece(MakePiece(tail_, account));
  std::string().swap(tail_);
}

void Value::AddPiece(Piece piece) {
  if (large_ == nullptr) large_ = std::make_unique<Large>();
  large_->bytes += piece->bytes().size();
  large_->pieces.push_back(std::move(piece));
}

}  // namespace muster
