#include "launch/core/stream_plan.h"

#include <algorithm>

#include "base/text.h"

namespace muster {

namespace {

Destination DestinationOf(bool teed, bool redirected, bool hidden) {
  if (teed) return hidden ? Destination::kFile : Destination::kFileAndConsole;
  if (redirected) return Destination::kFile;
  return hidden ? Destination::kNothing : Destination::kConsole;
}

Streams At(const std::vector<Streams>& by_worker, size_t worker) {
  return worker < by_worker.size() ? by_worker[worker] : Streams{};
}

}  // namespace

StreamPlan PlanStreams(const StreamWishes& wishes, size_t worker) {
  const Streams teed = wishes.without_logs ? Streams{} : At(wishes.tee, worker);
  const Streams redirected = wishes.without_logs ? Streams{} : At(wishes.redirects, worker);
  const auto& shown = wishes.shown_workers;
  const bool hidden = !shown.empty() && std::find(shown.begin(), shown.end(),
                                                  static_cast<int64_t>(worker)) == shown.end();
  return {.out = DestinationOf(teed.out, redirected.out, hidden),
          .err = DestinationOf(teed.err, redirected.err, hidden)};
}

std::string LinePrefix(const WorkerLabel& label, std::string_view pattern) {
  const std::string role = OneLine(label.role);
  if (pattern.empty()) return Concat('[', role, label.local_rank, "]:");
  return Substituted(pattern, {{"role_name", role},
                               {"rank", Concat(label.rank)},
                               {"local_rank", Concat(label.local_rank)},
                               {"host", OneLine(label.host)},
                               {"attempt", Concat(label.attempt)}});
}

}  // namespace muster
