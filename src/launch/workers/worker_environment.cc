#include "launch/workers/worker_environment.h"

#include "base/text.h"
#include "launch/core/visible_devices.h"

namespace muster {

namespace {

constexpr const char* kThreads = "OMP_NUM_THREADS";
constexpr const char* kDevices = "CUDA_VISIBLE_DEVICES";
constexpr const char* kHipDevices = "HIP_VISIBLE_DEVICES";

/// Passwords of etcd are for the launcher only: libraries of workers may print their environment.
void ErasePasswords(Environment& all) {
  all.erase("MUSTER_ETCD_PASSWORD");
  if (ShowsPassword(VariableOrEmpty(all, "PET_RDZV_ENDPOINT"))) all.erase("PET_RDZV_ENDPOINT");
  if (VariableOrEmpty(all, "PET_RDZV_CONF").find("password") != std::string::npos)
    all.erase("PET_RDZV_CONF");
}

}  // namespace

bool LimitsThreads(const Environment& inherited, size_t workers) {
  return workers > 1 && !inherited.contains(kThreads);
}

Result<Environment> WorkerEnvironment(const Environment& inherited, const LaunchOptions& options,
                                      const WorkerSituation& situation) {
  const Placement& place = situation.place;
  const auto local_rank = static_cast<int64_t>(situation.worker);
  Environment all = inherited;
  ErasePasswords(all);
  all["LOCAL_RANK"] = options.virtual_local_rank ? "0" : Concat(local_rank);
  all["RANK"] = Concat(place.ranks.first_rank + local_rank);
  all["WORLD_SIZE"] = Concat(place.ranks.world_size);
  all["LOCAL_WORLD_SIZE"] = Concat(situation.workers);
  all["GROUP_RANK"] = Concat(place.group_rank);
  all["GROUP_WORLD_SIZE"] = Concat(place.group_world_size);
  all["ROLE_NAME"] = options.role;
  all["ROLE_RANK"] = Concat(place.ranks.first_role_rank + local_rank);
  all["ROLE_WORLD_SIZE"] = Concat(place.ranks.role_world_size);
  all["MASTER_ADDR"] = place.master.master_addr;
  all["MASTER_PORT"] = Concat(place.master.master_port);
  all["TORCHELASTIC_RESTART_COUNT"] = Concat(situation.restarts);
  all["TORCHELASTIC_MAX_RESTARTS"] = Concat(options.max_restarts);
  all["TORCHELASTIC_RUN_ID"] = options.run_id;
  all["TORCHELASTIC_USE_AGENT_STORE"] = situation.uses_agent_store ? "True" : "False";
  all["TORCHELASTIC_ERROR_FILE"] = situation.error_file;
  all["TORCHELASTIC_SIGNALS_TO_HANDLE"] = options.signals;
  if (!situation.timer_file.empty()) all["TORCHELASTIC_TIMER_FILE"] = situation.timer_file;
  all.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (LimitsThreads(inherited, situation.workers)) all[kThreads] = "1";
  if (options.virtual_local_rank) {
    const auto cuda = Variable(inherited, kDevices);
    const auto hip = Variable(inherited, kHipDevices);
    MUSTER_TRY(all[kDevices], OnlyDeviceOf(situation.worker, cuda));
    // ROCm reads its own variable first, and CUDA's where that is not set.
    MUSTER_TRY(all[kHipDevices], OnlyDeviceOf(situation.worker, hip ? hip : cuda, kHipDevices));
  }
  return all;
}

std::vector<std::string> ToLines(const Environment& environment) {
  std::vector<std::string> lines;
  lines.reserve(environment.size());
  for (const auto& [name, value] : environment) lines.push_back(Concat(name, "=", value));
  return lines;
}

}  // namespace muster
