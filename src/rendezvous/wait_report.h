// Creates reports for people from the snapshot of a driver, or from the report of a server.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "muster/rendezvous_handler.h"
#include "rendezvous/core/run_report.h"
#include "rendezvous/document/rendezvous_driver.h"

namespace muster {

WaitReport ReportOn(const WaitSnapshot& snapshot, const Node& self, const std::string& run_id,
                    const RunSettings& settings, Instant now);

/// What is left of a time, for a report: at least 0.
inline std::chrono::milliseconds TimeLeft(Duration left) {
  return std::chrono::milliseconds(std::max<int64_t>(Milliseconds(left), 0));
}

/// `self`: the node whose view it is, if it is one of the run.
WaitReport ReportOn(const RunReport& run, const std::optional<Node>& self = std::nullopt);

/// A text to append where two jobs may have met by mistake: empty, unless they have the default id.
std::string_view NoteOnSharedId(std::string_view run_id);

}  // namespace muster
