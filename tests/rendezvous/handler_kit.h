// Shared by the tests of the dynamic handler: a visible cell, a backend on it that can be made to
// fail, and settings with short times.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <any>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/dynamic_rendezvous.h"
#include "muster/hash_store.h"
#include "muster/rendezvous_backend.h"
#include "rendezvous/core/state.h"
#include "rendezvous/wire/state_codec.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace muster::test {

/// The node that others know as `name`, "addr_pid_id".
inline Node NodeNamed(const std::string& name) {
  const size_t id = name.rfind('_');
  const size_t pid = name.rfind('_', id - 1);
  return {.addr = name.substr(0, pid),
          .pid = std::stoll(name.substr(pid + 1, id - pid - 1)),
          .local_id = std::stoll(name.substr(id + 1))};
}

/// The shared cell, in memory, fenced by integers. Any thread.
class Cell {
 public:
  /// Before each access, on its thread: may wait, read, or throw.
  using Hook = std::function<void(bool writes)>;

  std::optional<StoredState> Get() {
    ++gets;
    Call(false);
    const std::lock_guard lock(mutex_);
    if (!bytes_) return std::nullopt;
    return StoredState{*bytes_, version_};
  }

  std::optional<StoredState> Set(std::string_view bytes, const std::any& token) {
    ++sets;
    Call(true);
    const std::lock_guard lock(mutex_);
    if (forgets_next_write_) {
      forgets_next_write_ = false;
      bytes_.reset();
      return std::nullopt;
    }
    const auto* fence = std::any_cast<int64_t>(&token);
    const bool fits = bytes_ ? fence != nullptr && *fence == version_ : !token.has_value();
    if (fits) Store(std::string(bytes));
    if (!bytes_) return std::nullopt;
    return StoredState{*bytes_, version_, fits};
  }

  void SetHook(Hook hook) {
    const std::lock_guard lock(mutex_);
    hook_ = std::make_shared<const Hook>(std::move(hook));
  }

  void Put(std::string bytes) {
    const std::lock_guard lock(mutex_);
    Store(std::move(bytes));
  }
  void Put(const RendezvousState& state) { Put(wire::WriteState(state)); }

  /// What is stored; the initial state if nothing is.
  RendezvousState State() const {
    const std::lock_guard lock(mutex_);
    return bytes_ ? wire::ReadState(*bytes_).value() : RendezvousState();
  }

  void Edit(const std::function<void(RendezvousState&)>& edit) {
    const std::lock_guard lock(mutex_);
    RendezvousState state = bytes_ ? wire::ReadState(*bytes_).value() : RendezvousState();
    edit(state);
    Store(wire::WriteState(state));
  }

  /// The next write finds that nothing is stored any more.
  void ForgetAtNextWrite() {
    const std::lock_guard lock(mutex_);
    forgets_next_write_ = true;
  }

  std::optional<std::string> Bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

  std::atomic<int> gets = 0;
  std::atomic<int> sets = 0;

 private:
  void Call(bool writes) {
    std::shared_ptr<const Hook> hook;
    {
      const std::lock_guard lock(mutex_);
      hook = hook_;
    }
    if (hook && *hook) (*hook)(writes);
  }

  void Store(std::string bytes) {
    bytes_ = std::move(bytes);
    ++version_;
  }

  mutable std::mutex mutex_;
  std::optional<std::string> bytes_;
  int64_t version_ = 0;
  bool forgets_next_write_ = false;
  std::shared_ptr<const Hook> hook_;
};

/// A backend as a user may write it.
class CellBackend final : public RendezvousBackend {
 public:
  explicit CellBackend(std::shared_ptr<Cell> cell) : cell_(std::move(cell)) {}

  std::string Name() const override { return "cell"; }
  std::optional<StoredState> GetState() override { return cell_->Get(); }
  using RendezvousBackend::SetState;
  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override {
    return cell_->Set(bytes, token);
  }

 private:
  const std::shared_ptr<Cell> cell_;
};

/// No operation waits long, and no node is declared lost.
inline RendezvousSettings QuickSettings(int64_t min_nodes, int64_t max_nodes) {
  return {.run_id = "run",
          .min_nodes = min_nodes,
          .max_nodes = max_nodes,
          .join_timeout = kPatience,
          .last_call = milliseconds(1),
          .close_timeout = kPatience,
          .keep_alive_interval = milliseconds(5),
          .keep_alive_max_attempt = 100'000};
}

/// Shared by several handlers of one test.
struct Meeting {
  std::shared_ptr<Cell> cell = std::make_shared<Cell>();
  std::shared_ptr<Store> store = HashStore::Create();

  std::unique_ptr<DynamicRendezvousHandler> Join(RendezvousSettings settings,
                                                 std::string addr = "127.0.0.1",
                                                 RendezvousEventSink events = {}) const {
    return CreateDynamicHandler(std::move(settings), store, std::make_unique<CellBackend>(cell),
                                addr, std::move(events));
  }
};

/// Waits for that time, as a slow backend does.
inline void Take(milliseconds time) {
  const Stopwatch watch;
  EventuallyTrue([&] { return watch.Elapsed() >= time; });
}

/// The entries of a folder of /proc.
inline std::vector<std::string> EntriesOf(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const opened = opendir(folder.c_str());
  if (opened == nullptr) return names;
  while (const dirent* entry = readdir(opened)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(opened);
  return names;
}

/// The names of this process's heartbeat threads.
inline std::vector<std::string> HeartbeatThreads() {
  std::vector<std::string> found;
  for (const std::string& id : EntriesOf("/proc/self/task")) {
    std::string name = ReadFile("/proc/self/task/" + id + "/comm");
    if (!name.empty() && name.back() == '\n') name.pop_back();
    if (name.starts_with("RdzvKeepAlive")) found.push_back(name);
  }
  return found;
}

/// A sink that keeps what it gets. Any thread.
class KeptEvents {
 public:
  RendezvousEventSink Sink() {
    return [this](const RendezvousEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
  }
  std::vector<RendezvousEvent> All() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const RendezvousEvent& event : All()) names.push_back(ShortName(event));
    return names;
  }
  /// Those with this name, without the part before the dot.
  std::vector<RendezvousEvent> Named(std::string_view name) const {
    std::vector<RendezvousEvent> found = All();
    std::erase_if(found, [&](const RendezvousEvent& event) { return ShortName(event) != name; });
    return found;
  }
  std::vector<RendezvousEvent> Failures() const {
    std::vector<RendezvousEvent> found = All();
    std::erase_if(
        found, [](const RendezvousEvent& event) { return event.node_state != NodeState::kFailed; });
    return found;
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }

 private:
  /// "Handler.shutdown", "Executor.run", "create_handler"
  static std::string ShortName(const RendezvousEvent& event) {
    std::string name = event.name.substr(event.name.find(':') + 1);
    for (const auto& [part, word] : {std::pair{"DynamicRendezvousHandler", "Handler"},
                                     std::pair{"_DistributedRendezvousOpExecutor", "Executor"}}) {
      if (name.starts_with(part)) name.replace(0, std::string_view(part).size(), word);
    }
    return name;
  }

  mutable std::mutex mutex_;
  std::vector<RendezvousEvent> events_;
};

/// A variable of the environment, for the life of this object. Not while other threads read it.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const char* value) : name_(std::move(name)) {
    const char* before = std::getenv(name_.c_str());
    if (before != nullptr) before_ = before;
    if (value != nullptr) {
      setenv(name_.c_str(), value, 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  ~ScopedVariable() {
    if (before_) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const std::string name_;
  std::optional<std::string> before_;
};

}  // namespace muster::test
