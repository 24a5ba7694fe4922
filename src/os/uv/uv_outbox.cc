#include "os/uv/uv_outbox.h"

#include <algorithm>

namespace muster {

void UvOutbox::Add(Sender& sender, std::string_view bytes) {
  // Large enough for the gain; small enough that no reply waits long when thousands are sent.
  constexpr size_t kLettersMax = 64;
  const auto continues = [&] { return !letters_.empty() && letters_.back().sender == &sender; };
  if (continues() && letters_.back().size + bytes.size() > kLetterBytesMax) Flush();
  if (!continues()) letters_.push_back({&sender, 0});
  bytes_ += bytes;
  letters_.back().size += bytes.size();
  if (letters_.size() >= kLettersMax) Flush();
}

bool UvOutbox::Holds(const Sender& sender) const {
  return std::ranges::find(letters_, &sender, &Letter::sender) != letters_.end();
}

void UvOutbox::Flush() {
  std::string_view rest = bytes_;
  for (const auto& [sender, size] : letters_) {
    sender->Send(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  letters_.clear();
  bytes_.clear();
}

}  // namespace muster
