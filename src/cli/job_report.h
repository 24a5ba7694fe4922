// The report of a job's end: for the user on stderr, for programs in files.
#pragma once

#include <string>

#include "launch/job_host.h"
#include "os/ports/clock.h"

namespace muster::cli {

struct JobEnd {
  int status = 0;
  std::string why{};
  int signal = 0;  ///< That ended it; 0: none.
  std::string entry_point{};
  std::string run_id{};
  std::string failure_report{};     ///< A file for the report as JSON; empty: none.
  std::string parent_error_file{};  ///< Where the parent reads our error; empty: none.
};

/// `failure_elsewhere`: what another node has reported as the first failure; may be empty.
void ReportEnd(const JobEnd& end, JobHost& host, const std::string& failure_elsewhere,
               Clock& clock);

}  // namespace muster::cli
