// The report of a job's end: for the user on stderr, for programs in files.
#pragma once

#include <string>

#include "launch/job_host.h"
#include "os/ports/clock.h"

namespace muster::cli {

struct JobEnd {
  int status = 0;
  std::string why{};
  int signal = 0;                   ///< The signal that ended the job; 0: none.
  bool rendezvous_is_lost = false;  ///< Workers that failed then are no cause.
  std::string entry_point{};
  std::string run_id{};
  bool caller_reports = false;   ///< A Python program that raises the error: nothing is printed.
  std::string failure_report{};  ///< A file for the report as JSON; empty: none.
  /// Where the parent process reads this launcher's error; empty: none.
  std::string parent_error_file{};
};

/// `failure_elsewhere`: what another node has reported as the first failure; may be empty.
void ReportEnd(const JobEnd& end, JobHost& host, const std::string& failure_elsewhere,
               Clock& clock);

}  // namespace muster::cli
