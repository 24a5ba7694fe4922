// Collects the small replies of one turn of a loop and sends them together at its end.
//
// Reading from 64 sockets and then writing to 64 is 5 to 8 % cheaper than reading and writing
// socket by socket: the kernel's code for each operation stays in the cache.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

class UvOutbox {
 public:
  class Sender {
   public:
    /// Passes bytes to the network and keeps what it does not take. Must not call back into the
    /// outbox.
    virtual void Send(std::string_view bytes) = 0;

   protected:
    ~Sender() = default;
  };

  /// Larger writes gain nothing from waiting. The largest size of a letter.
  static constexpr size_t kLetterBytesMax = 4096;

  /// Sends `bytes` after the earlier bytes of `sender`, at the end of the turn or sooner.
  void Add(Sender& sender, std::string_view bytes);
  /// Whether bytes of `sender` are queued here.
  bool Holds(const Sender& sender) const;
  void Flush();

 private:
  struct Letter {
    Sender* sender;
    size_t size;  // in bytes_; a letter begins where the previous one ends
  };

  std::vector<Letter> letters_;
  std::string bytes_;
};

}  // namespace muster
