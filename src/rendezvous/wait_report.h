// Creates reports for people from the snapshot of a driver, or from the report of a server.
#pragma once

#include <optional>
#include <string_view>

#include "muster/rendezvous_handler.h"
#include "rendezvous/core/run_report.h"
#include "rendezvous/document/rendezvous_driver.h"

namespace muster {

WaitReport ReportOn(const WaitSnapshot& snapshot, const Node& self, const std::string& run_id,
                    const RunSettings& settings, Instant now);

/// `self`: the node whose view it is, if it is one of the run.
WaitReport ReportOn(const RunReport& run, const std::optional<Node>& self = std::nullopt);

/// A text to append where two jobs may have met by mistake: empty, unless they have the default id.
std::string_view NoteOnSharedId(std::string_view run_id);

}  // namespace muster
