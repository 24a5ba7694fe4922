// `muster rendezvous`: takes part in a rendezvous as one node.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "muster/etcd_store.h"
#include "muster/prefix_store.h"
#include "muster/rendezvous.h"

namespace muster::cli {
namespace {

struct RendezvousFlags {
  std::string backend = "muster";
  std::string endpoint = "localhost:29400";
  std::string run_id;
  std::string nodes = "1:1";
  std::string local_addr;
  std::string config;
  std::string events;
  std::optional<int64_t> rank;
  int64_t timeout_seconds = 600;
  int64_t last_call_seconds = 30;
  // Within this time PyTorch's nodes have read the state, too: they count the members that they
  // see.
  double hold_seconds = 2;
  bool follow = false;
  bool close = false;
  bool json = false;
  bool journal = false;
};

// "2:4", or "3" for exactly three.
std::pair<int64_t, int64_t> ParseNodes(const std::string& text) {
  const std::vector<std::string_view> parts = Split(text, ':');
  const auto min = ParseWholeNumber(parts.front());
  const auto max = ParseWholeNumber(parts.back());
  if (min && max && parts.size() <= 2) return {*min, *max};
  throw std::invalid_argument(
      Concat("--nodes '", text, "': expected MIN:MAX or one number, as in 2:4 or 3"));
}

RendezvousParameters Parameters(const RendezvousFlags& flags) {
  const auto [min_nodes, max_nodes] = ParseNodes(flags.nodes);
  RendezvousConfig config = ParseRendezvousConfig(flags.config);
  for (const auto& [key, value] : config) {
    if (const auto warning = WarningOfKey(flags.backend, key))
      PrintNotice(Concat("--conf: ", *warning));
  }
  if (flags.backend.starts_with("etcd")) {
    if (config.contains("password"))
      throw std::invalid_argument(Concat("--conf password: ", kVisiblePassword));
    if (ShowsPassword(flags.endpoint))
      throw std::invalid_argument(Concat("--endpoint: ", kVisiblePassword));
  }
  config.try_emplace("join_timeout", flags.timeout_seconds);
  config.try_emplace("timeout", flags.timeout_seconds);  // of the static rendezvous
  config.try_emplace("last_call_timeout", flags.last_call_seconds);
  if (flags.rank) config.insert_or_assign("rank", *flags.rank);
  return {flags.backend, flags.endpoint,   flags.run_id,     min_nodes,
          max_nodes,     flags.local_addr, std::move(config)};
}

using Json = nlohmann::ordered_json;

/// A line of the journal.
void Note(const RendezvousFlags& flags, std::string_view event, const Json& more = Json::object()) {
  if (!flags.journal) return;
  Json line = {{"event", event}};
  line.update(more);
  PrintJson(line);
}

void Note(const RendezvousFlags& flags, const MembershipEvent& event) {
  using Kind = MembershipEvent::Kind;
  switch (event.kind) {
    case Kind::kMemberLost:
      return Note(flags, "member_lost",
                  {{"round", event.round}, {"who", event.who}, {"why", event.why}});
    case Kind::kNodesWaiting:
      return Note(flags, "nodes_waiting", {{"waiting", event.waiting}});
    case Kind::kPlaceLost:
      return Note(flags, "place_lost", {{"round", event.round}, {"why", event.why}});
    case Kind::kClosed:
      return Note(flags, "closed", {{"who", event.who}});
  }
}

/// The prefix of the keys of the round.
std::string PrefixOf(const Store& store) {
  if (const auto* prefixed = dynamic_cast<const PrefixStore*>(&store)) return prefixed->prefix();
  if (const auto prefix = EtcdStorePrefix(store)) return *prefix;
  return "";
}

void Print(const RendezvousInfo& info, const RendezvousFlags& flags) {
  const RendezvousStoreInfo& master = info.bootstrap_store_info;
  const std::string prefix = PrefixOf(*info.store);
  const Json line = {{"rank", info.rank},
                     {"world_size", info.world_size},
                     {"round", info.round},
                     {"master_addr", master.master_addr},
                     {"master_port", master.master_port},
                     {"store_prefix", prefix}};
  if (flags.journal) return Note(flags, "round", line);
  PrintResult(flags.json, line,
              Concat("rank ", info.rank, " of ", info.world_size, " in round ", info.round,
                     "; workers meet at ", OneLine(master.master_addr), ":", master.master_port,
                     "; keys under '", OneLine(prefix), "'"));
}

/// Waits for the next round and prints it. What the handler throws is thrown here; a signal ends
/// the process.
void Join(RendezvousHandler& handler, const RendezvousFlags& flags, const StopSignals& signals) {
  Note(flags, "joining", {{"node", handler.node()}});
  auto joined = std::async(std::launch::async, [&] { return handler.NextRendezvous(); });
  {
    Progress progress;
    while (joined.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
      if (const auto signal = signals.AwaitFor(std::chrono::milliseconds(100))) {
        // The wait cannot be interrupted; the others detect this node's silence.
        progress.Clear();
        PrintNotice(Concat("interrupted while ", handler.DescribeWait().ToString()));
        FlushStderr();
        std::fflush(nullptr);
        _exit(128 + *signal);
      }
      progress.Show(handler.DescribeWait());
    }
  }
  Print(joined.get(), flags);
}

void Hold(RendezvousHandler& handler, const RendezvousFlags& flags, const StopSignals& signals) {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  constexpr milliseconds kLook(100);  // for signals
  const auto until = Clock::now() + ToMilliseconds(flags.hold_seconds);
  while (Clock::now() < until) {
    if (signals.AwaitFor(milliseconds(0))) return;
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const auto event = handler.AwaitEvent(std::min(left, kLook));
    if (!event) continue;
    PrintNotice(event->ToString());
    Note(flags, *event);
    if (flags.follow && event->kind != MembershipEvent::Kind::kClosed)
      Join(handler, flags, signals);
  }
}

int Rendezvous(RendezvousFlags& flags) {
  const RendezvousParameters parameters = Parameters(flags);
  if (!flags.events.empty()) {
    SetRendezvousEventSink(flags.events == "-" ? EventsToStderr() : EventsToFile(flags.events));
  }
  const StopSignals signals;
  RaiseDescriptorLimit();
  const RendezvousHandlerPtr handler = GetRendezvousHandler(parameters);
  try {
    Join(*handler, flags, signals);
    Hold(*handler, flags, signals);
  } catch (const RendezvousGracefulExitError& error) {
    PrintNotice(error.what());
    Note(flags, "closed", {{"who", ""}, {"why", error.what()}});
    return kOk;
  }
  if (flags.close) {
    handler->SetClosed("muster rendezvous --close");
  } else {
    handler->Leave();
  }
  Note(flags, flags.close ? "closing" : "left");
  return kOk;
}

}  // namespace

void AddRendezvous(CLI::App& app, Run* run) {
  constexpr const char* kAbout = R"(Take part in a rendezvous as one node.

Joins the next round, prints this node's rank, the size of the world and where the workers meet,
holds its place for --hold seconds, and leaves. While it waits it shows which nodes are missing. The
node whose machine the endpoint names serves for all, as long as it runs, unless a server is there
already (`muster serve`). With --backend c10d it also meets PyTorch's rendezvous handlers.

  muster rendezvous --endpoint localhost:29400 --id try --nodes 2 --hold 10    run it twice
  muster rendezvous --endpoint HOST:29400 --id RUN --nodes 2:8 --hold 3600 --follow)";
  auto [node, flags] = AddCommand(app, run, "rendezvous", kAbout, Rendezvous);
  AddText(node, "--backend", flags.backend, "muster, c10d, static, etcd, etcd-v2");
  AddText(node, "--endpoint", flags.endpoint,
          "HOST:PORT of the server; or (c10d) a file's path, or (etcd, etcd-v2) etcd's\n"
          "HOST:PORT,HOST:PORT");
  node.add_option("--id", flags.run_id, "Name of the run, the same on all nodes")->required();
  AddText(node, "--nodes", flags.nodes, "MIN:MAX nodes of a round, or one number");
  node.add_option("--local-addr", flags.local_addr,
                  "Address of this node for the others; default: the address that the server sees\n"
                  "(c10d, and etcd on this machine: its name)");
  node.add_option("--rank", flags.rank, "This node's rank (static only)")
      ->transform(WholeNumber(0, INT32_MAX));
  AddWhole(node, "--timeout", flags.timeout_seconds, 1, kWholeSecondsMax,
           "Whole seconds to wait for a round");
  AddWhole(node, "--last-call", flags.last_call_seconds, 1, kWholeSecondsMax,
           "Whole seconds to wait for more nodes once there are MIN");
  AddSeconds(node, "--hold", flags.hold_seconds, 0, kSecondsMax,
             "Seconds to stay; a signal ends it early");
  node.add_flag("--follow", flags.follow, "Join the next round whenever one is due");
  node.add_flag("--close", flags.close, "Finally, close the rendezvous for all");
  node.add_option(
      "--conf", flags.config,
      "Further options, KEY=VALUE,...: is_host, keep_alive_interval, keep_alive_max_attempt,\n"
      "close_timeout; muster, etcd: reform_timeout, rejoin_window, expected, label, rank_policy\n"
      "(natural, text, stable, label); muster: grace; c10d: store_type, read_timeout,\n"
      "heartbeat_timeout, cas_backoff_max_seconds; etcd, etcd-v2: read_timeout, protocol, cacert,\n"
      "cert, key, user, password_file, etcd_prefix");
  node.add_option("--events", flags.events, "Append events to this file as JSON; -: stderr");
  node.add_flag("--json", flags.json, "Print the result as JSON");
  node.add_flag(
      "--journal", flags.journal,
      "Print all events of this node as JSON, one object in each line, with its \"event\":\n"
      "joining, round (the result), member_lost, nodes_waiting, place_lost, closed; left or "
      "closing");
}

}  // namespace muster::cli
