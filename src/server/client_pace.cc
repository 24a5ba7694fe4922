#include "server/client_pace.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/limits.h"
#include "base/text.h"

namespace muster {

namespace {

// While memory is scarce, a client that holds more than this must make the same progress in every
// span.
constexpr size_t kScarceHeldMax = 1024 * 1024;
constexpr uint64_t kScarceRateMin = 1024 * 1024;
constexpr Duration kScarceSpan = 10s;

}  // namespace

ClientPace::ClientPace(Instant now) : finishing_{now} { marks_.fill({now}); }

bool ClientPace::Mark::IsBehind(bool in_debt, uint64_t now_done, uint64_t least, Duration span,
                                Instant now, Instant watched_since) {
  if (since < watched_since) *this = {now, now_done};
  if (in_debt && now - since < span) return false;
  const bool is_behind = in_debt && now_done - done < least;
  if (!is_behind) *this = {now, now_done};
  return is_behind;
}

std::string ClientPace::FindSlowness(const Progress& progress, Duration span, bool is_memory_scarce,
                                     Instant now, Instant watched_since) {
  const bool is_large = progress.has_request && progress.held > kUnhurriedRequestBytes;
  const bool hogs_replies = is_memory_scarce && progress.reply_bytes > kScarceHeldMax;
  const bool hogs_request =
      is_memory_scarce && progress.has_request && progress.held > kScarceHeldMax;
  struct Rule {
    bool in_debt;
    bool in_haste;
    uint64_t done;
    std::string_view verb;
    std::string_view what;
  };
  const Rule rules[] = {
      {progress.has_replies, false, progress.taken, "takes", "replies queued for it"},
      {hogs_replies, true, progress.taken, "takes", "replies queued for it"},
      {is_large, false, progress.received, "sends", "request that it has begun"},
      {hogs_request, true, progress.received, "sends", "request that it has begun"}};
  Mark* mark = marks_.data();
  for (const Rule& rule : rules) {
    const uint64_t rate = rule.in_haste ? kScarceRateMin : kRateMin;
    const Duration its_span = rule.in_haste ? std::min(span, kScarceSpan) : span;
    const double seconds = std::chrono::duration<double>(its_span).count();
    const auto least = static_cast<uint64_t>(static_cast<double>(rate) * seconds);
    if ((mark++)->IsBehind(rule.in_debt, rule.done, std::max<uint64_t>(least, 1), its_span, now,
                           watched_since)) {
      return Concat(rule.verb, " less than ", HumanBytes(rate), " a second of the ", rule.what,
                    rule.in_haste ? ", while memory is scarce" : "");
    }
  }
  // A small request may arrive at any rate, but not without end.
  if (finishing_.IsBehind(progress.has_request && !is_large, progress.finished, 1, span, now,
                          watched_since)) {
    return "has not finished a request that it has begun";
  }
  return "";
}

}  // namespace muster
