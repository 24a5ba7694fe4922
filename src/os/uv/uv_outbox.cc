#include "os/uv/uv_outbox.h"

namespace muster {

namespace {
// Large enough for the gain; small enough that no reply waits long when thousands are sent.
constexpr size_t kLettersMax = 64;
}  // namespace

void UvOutbox::Add(Sender& sender, std::string_view bytes) {
  const bool continues = !letters_.empty() && letters_.back().sender == &sender;
  if (continues && SizeOfLast() + bytes.size() > kLetterBytesMax) Flush();
  bytes_ += bytes;
  if (!letters_.empty() && letters_.back().sender == &sender) {
    letters_.back().end = bytes_.size();
  } else {
    letters_.push_back({&sender, bytes_.size()});
  }
  if (letters_.size() >= kLettersMax) Flush();
}

size_t UvOutbox::SizeOfLast() const {
  const size_t begin = letters_.size() < 2 ? 0 : letters_[letters_.size() - 2].end;
  return letters_.back().end - begin;
}

bool UvOutbox::Holds(const Sender& sender) const {
  for (const Letter& letter : letters_) {
    if (letter.sender == &sender) return true;
  }
  return false;
}

void UvOutbox::Flush() {
  size_t begin = 0;
  for (const auto& [sender, end] : letters_) {
    sender->Send(std::string_view(bytes_).substr(begin, end - begin));
    begin = end;
  }
  letters_.clear();
  bytes_.clear();
}

}  // namespace muster
