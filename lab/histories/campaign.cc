#include "histories/campaign.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "histories/checker.h"
#include "histories/client.h"
#include "histories/faulty_wire.h"
#include "histories/shrink.h"
#include "support/background.h"

namespace muster::test {

namespace {

/// Keeps a server busy with requests on other keys.
class Load {
 public:
  Load(uint16_t port, int number)
      : thread_([this, port, number] { Run(port, Concat("/load", number)); }) {}
  ~Load() {
    over_ = true;
    thread_.join();
  }

 private:
  void Run(uint16_t port, const std::string& key) {
    std::string batch;
    for (int i = 0; i < 30; ++i) batch += SetBytes(key, std::string(200, 'x')) + GetBytes(key);
    while (!over_) {
      try {
        RawClient wire = RawClient::Validated(port);
        while (!over_) {
          wire.Send(batch);
          wire.Receive(30 * 208);
        }
      } catch (const std::runtime_error&) {  // Its own result does not count.
      }
    }
  }

  std::atomic<bool> over_ = false;
  std::thread thread_;
};

struct Recorded {
  History history{};
  std::vector<std::string> complaints{};
};

void Collect(Recorded& all, const Client& client) {
  all.history.insert(all.history.end(), client.history().begin(), client.history().end());
  all.complaints.insert(all.complaints.end(), client.complaints().begin(),
                        client.complaints().end());
}

Recorded Record(const Plan& plan, const CampaignOptions& options) {
  Prng prng(plan.seed ^ 0x5eed);
  std::vector<std::unique_ptr<FaultyWire>> wires;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < plan.clients; ++i) {
    uint16_t port = options.port;
    if (plan.faults.any()) {
      wires.push_back(std::make_unique<FaultyWire>(port, prng.Next(), plan.faults));
      port = wires.back()->port();
    }
    if (prng.Below(100) < plan.pipelined_percent) {
      clients.push_back(std::make_unique<PipelinedClient>(plan, i, port));
    } else {
      clients.push_back(std::make_unique<StoreClientOfHistory>(plan, i, port));
    }
  }
  InParallel(plan.clients, [&clients](int i) { clients[static_cast<size_t>(i)]->Run(); });

  Plan calm = plan;
  calm.faults = {};
  StoreClientOfHistory observer(calm, plan.clients, options.port);
  observer.Observe(options.plan.queues);

  Recorded all;
  for (const auto& client : clients) Collect(all, *client);
  Collect(all, observer);
  return all;
}

std::string_view Name(Outcome outcome) {
  constexpr std::string_view kNames[] = {"done", "timed out", "empty", "refused", "unknown"};
  return kNames[static_cast<size_t>(outcome)];
}

}  // namespace

CampaignResult RunCampaign(const CampaignOptions& options,
                           const std::function<void(const Finding&)>& found) {
  CampaignResult result;
  std::mutex mutex;  // guards result, and calls of found
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> enough = false;
  std::vector<std::unique_ptr<Load>> load;
  for (int i = 0; i < options.load; ++i) load.push_back(std::make_unique<Load>(options.port, i));

  const auto one = [&](uint64_t index) {
    PlanOptions draw = options.plan;
    draw.key_prefix = Concat("h", getpid(), ".", index, ".");
    const Plan plan = DrawPlan(options.replay.value_or(Prng(options.seed + index).Next()), draw);
    const Recorded recorded = Record(plan, options);
    const Verdict verdict = Check(recorded.history);

    Finding finding{.plan = plan, .complaints = recorded.complaints};
    finding.undecided = verdict.kind == Verdict::Kind::kUndecided;
    if (finding.undecided) finding.violation = verdict.guilty;
    if (verdict.kind == Verdict::Kind::kViolation) finding.violation = Shrink(recorded.history);

    const std::lock_guard lock(mutex);
    ++result.histories;
    result.faulty_histories += plan.faults.any();
    result.operations += recorded.history.size();
    result.visited += verdict.visited;
    for (const Operation& operation : recorded.history) {
      result.unknown += operation.outcome == Outcome::kUnknown;
      ++result.outcomes[Concat(Name(operation.kind), " ", Name(operation.outcome))];
    }
    if (finding.violation.empty() && finding.complaints.empty()) return;
    found(finding);
    result.findings.push_back(std::move(finding));
    enough = options.findings_max > 0 && result.findings.size() >= options.findings_max;
  };
  InParallel(options.lanes, [&](int) {
    for (uint64_t index = next++; index < options.histories && !enough; index = next++) one(index);
  });
  return result;
}

std::string Describe(const Finding& finding) {
  std::string text = Concat("history ", Describe(finding.plan), "\n");
  for (const std::string& complaint : finding.complaints) {
    text += Concat("  failed without a reason: ", complaint, "\n");
  }
  if (finding.violation.empty()) return text;
  text += finding.undecided ? "  the checker gave up on:\n"
                            : "  no order of these calls explains what came back:\n";
  return text + Describe(finding.violation);
}

}  // namespace muster::test
