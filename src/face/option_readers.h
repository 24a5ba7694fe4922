// Options of a rendezvous as handlers read them: std::invalid_argument says what is wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "muster/rendezvous_parameters.h"

namespace muster {

/// Seconds, also fractions.
void TakeSeconds(const RendezvousParameters& parameters, std::string_view key,
                 std::chrono::milliseconds& setting);
void TakeText(const RendezvousParameters& parameters, std::string_view key, std::string& setting);

void MustBe(bool right, std::string_view what, int64_t found, std::string_view allowed);
/// A run id, or a label.
void MustBePrintable(const std::string& text, std::string_view what);
/// A run id that there is.
void MustBeRunId(const std::string& run_id);
void MustBeRankPolicy(const std::string& word);

}  // namespace muster
