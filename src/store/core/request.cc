#include "store/core/request.h"

#include <array>

namespace muster {

std::string_view Name(Op op) {
  constexpr std::array<std::string_view, kOpCount> kNames = {
      "VALIDATE",   "SET",        "COMPARE_SET", "GET",       "ADD",       "CHECK",       "WAIT",
      "GETNUMKEYS", "DELETE_KEY", "APPEND",      "MULTI_GET", "MULTI_SET", "CANCEL_WAIT", "PING",
      "QUEUE_PUSH", "QUEUE_POP",  "QUEUE_LEN",   "LIST_KEYS", "BARRIER"};
  const auto number = static_cast<size_t>(op);
  return number < kNames.size() ? kNames[number] : "unknown";
}

std::string_view Describe(Reply::Why why) {
  constexpr std::array<std::string_view, 7> kTexts = {
      "nothing wrong",
      "the stored value is not a number",
      "the stored number does not fit in 64 bits",
      "a WAIT or BARRIER is still outstanding on this connection",
      "a limit of the store is exceeded",
      "the server's memory for all clients together is used up (store_bytes_max)",
      "VALIDATE belongs at the start of a connection"};
  const auto number = static_cast<size_t>(why);
  return number < kTexts.size() ? kTexts[number] : "unknown";
}

}  // namespace muster
