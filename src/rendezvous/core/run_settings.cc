#include "rendezvous/core/run_settings.h"

#include <chrono>

#include "base/text.h"

namespace muster {

std::string RunSettings::Impossible() const {
  if (min_nodes < 1 || max_nodes < min_nodes)
    return Concat("a round of ", min_nodes, " to ", max_nodes, " nodes cannot be");
  if (last_call < 0s) return Concat("a last call of ", Milliseconds(last_call), " ms cannot be");
  if (keep_alive_interval <= 0s || keep_alive_interval > kKeepAliveMax) {
    return Concat("keep-alives every ", Milliseconds(keep_alive_interval),
                  " ms cannot be: above 0, at most a day");
  }
  if (keep_alive_max_attempt < 1 || keep_alive_max_attempt > kAttemptsMax) {
    return Concat("keep_alive_max_attempt ", keep_alive_max_attempt, " cannot be: 1 to ",
                  kAttemptsMax);
  }
  if (grace < 0s || grace > kGraceMax)
    return Concat("a grace of ", Milliseconds(grace), " ms cannot be: at most an hour");
  if (!forming) return "";
  if (forming->reform_timeout < 0s || forming->rejoin_window < 0s)
    return "a reform_timeout or a rejoin_window below 0 cannot be";
  if (forming->expected != 0 && (forming->expected < min_nodes || forming->expected > max_nodes)) {
    return Concat(forming->expected, " expected nodes cannot be: ", min_nodes, " to ", max_nodes,
                  ", or 0 if their number is unknown");
  }
  return "";
}

void RunSettings::Complete(const RunSettings& other) {
  if (!forming) forming = other.forming;
}

std::string RunSettings::Against(const RunSettings& other) const {
  std::string out;
  const auto compare = [&out](std::string_view name, auto mine, auto theirs) {
    if (mine != theirs)
      out += Concat(out.empty() ? "" : ", ", name, " ", mine, " against ", theirs);
  };
  const auto compare_times = [&](std::string_view name, Duration its, Duration theirs) {
    compare(name, Milliseconds(its), Milliseconds(theirs));
  };
  compare("min_nodes", min_nodes, other.min_nodes);
  compare("max_nodes", max_nodes, other.max_nodes);
  compare_times("last_call in ms", last_call, other.last_call);
  compare_times("keep_alive_interval in ms", keep_alive_interval, other.keep_alive_interval);
  compare("keep_alive_max_attempt", keep_alive_max_attempt, other.keep_alive_max_attempt);
  compare_times("grace in ms", grace, other.grace);
  compare("rank policy", Name(policy), Name(other.policy));
  const Forming mine = forming.value_or(Forming{});
  const Forming theirs = other.forming.value_or(Forming{});
  compare_times("reform_timeout in ms", mine.reform_timeout, theirs.reform_timeout);
  compare_times("rejoin_window in ms", mine.rejoin_window, theirs.rejoin_window);
  compare("expected", mine.expected, theirs.expected);
  return out;
}

}  // namespace muster
