#include "launch/core/stream_plan.h"

#include <algorithm>

#include "base/text.h"
#include "launch/core/environment.h"

namespace muster {

namespace {

Destination DestinationOf(bool teed, bool redirected, bool hidden) {
  if (teed) return hidden ? Destination::kFile : Destination::kFileAndConsole;
  if (redirected) return Destination::kFile;
  return hidden ? Destination::kNothing : Destination::kConsole;
}

}  // namespace

Streams StreamChoice::Of(size_t worker) const {
  const auto found = by_worker.find(worker);
  return found == by_worker.end() ? all : found->second;
}

StreamPlan PlanStreams(const StreamOptions& options, size_t worker) {
  const Streams teed = options.without_logs ? Streams{} : options.tee.Of(worker);
  const Streams redirected = options.without_logs ? Streams{} : options.redirects.Of(worker);
  const auto& shown = options.shown_workers;
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
