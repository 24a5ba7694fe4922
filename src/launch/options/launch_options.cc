#include "launch/options/launch_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/assert.h"
#include "base/text.h"
#include "launch/core/agent_machine.h"

namespace muster {

namespace {

using Kind = ArgumentSpec::Kind;

// --- Settings ------------------------------------------------------------------------------------

struct Setting {
  std::string text{};    ///< "1" for a flag that is given.
  std::string source{};  ///< Where it comes from: "--nnodes" or "PET_NNODES".
  bool given = false;    ///< Not the default.
};

std::optional<Setting> FromVariable(const ArgumentSpec& spec, const Environment& environment) {
  for (const std::string& name : {VariableOf(spec), std::string(spec.older_variable)}) {
    const auto value = name.empty() ? std::nullopt : Variable(environment, name);
    if (value) return Setting{*value, name, true};
  }
  return std::nullopt;
}

/// Precedence: the command line, the variable, the default of the table.
class Settings {
 public:
  /// Values in variables must be of the option's kind, but need not be one of its choices.
  static Result<Settings> Read(std::span<const ArgumentSpec> specs, const CommandLine& line,
                               const Environment& environment) {
    Settings settings;
    for (const ArgumentSpec& spec : specs) {
      Setting setting{std::string(spec.initial), Concat("--", spec.name)};
      if (const auto on_line = line.given.find(spec.name); on_line != line.given.end()) {
        setting.text = spec.kind == Kind::kFlag ? "1" : on_line->second;
        setting.given = true;
      } else if (const auto variable = FromVariable(spec, environment)) {
        setting = *variable;
        if (setting.source != spec.older_variable)
          MUSTER_CHECK_OK(CheckKind(spec, setting.source, setting.text));
      }
      settings.settings_.emplace(spec.name, std::move(setting));
    }
    return settings;
  }

  const std::string& Text(std::string_view name) const { return Of(name).text; }
  /// Of an option that is a number.
  int64_t Whole(std::string_view name) const { return *ParseWholeNumber(Text(name)); }
  bool Flag(std::string_view name) const { return Given(name) && Whole(name) != 0; }
  bool Given(std::string_view name) const { return Of(name).given; }
  const std::string& Source(std::string_view name) const { return Of(name).source; }
  /// "--nnodes: " and the reason.
  template <typename... Pieces>
  Error Wrong(std::string_view name, const Pieces&... reason) const {
    return Error{Code::kInvalid, Concat(Source(name), ": ", reason...)};
  }
  template <typename T>
  Result<T> Parsed(std::string_view name, Result<T> (*parse)(std::string_view)) const {
    Result<T> value = parse(Text(name));
    return value ? std::move(value) : Result<T>(Wrong(name, value.error().message));
  }

 private:
  const Setting& Of(std::string_view name) const {
    const auto at = settings_.find(name);
    MUSTER_ASSERT(at != settings_.end());
    return at->second;
  }

  std::map<std::string_view, Setting> settings_;
};

/// Checks the variables of flags first, whether they are used or not.
Status CheckFlagVariables(std::span<const ArgumentSpec> specs, const Environment& environment) {
  for (const ArgumentSpec& spec : specs) {
    const std::optional<Setting> value = FromVariable(spec, environment);
    if (spec.kind != Kind::kFlag || !value || ParseWholeNumber(value->text)) continue;
    return Error{Code::kInvalid, Concat(value->source, "='", Printable(value->text),
                                        "': write 1 for --", spec.name, ", or 0")};
  }
  return Ok();
}

// --- Their meaning -------------------------------------------------------------------------------

constexpr std::string_view kStaticOnly[] = {"node-rank", "master-addr", "master-port"};
constexpr int64_t kWorkersMax = 65536;          // More is a mistake, and would take all memory.
constexpr int64_t kSecondsMax = 1'000'000'000;  // 31 years, and sums of them still fit.

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

/// "k1=v1,k2=v2".
Result<std::map<std::string, std::string>> ParsePairs(std::string_view text) {
  std::map<std::string, std::string> pairs;
  if (Trim(text).empty()) return pairs;
  for (const std::string_view item : Split(Trim(text), ',')) {
    const size_t equals = item.find('=');  // Only the first one divides.
    const std::string_view key = Trim(item.substr(0, equals));
    const std::string_view value = equals == item.npos ? "" : Trim(item.substr(equals + 1));
    if (key.empty() || value.empty()) {
      return Error{Code::kInvalid, Concat("'", Printable(item), "' in '", Printable(text),
                                          "' is not KEY=VALUE: write k1=v1,k2=v2")};
    }
    if (IsOneOf(key, {"backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr"})) {
      return Error{Code::kInvalid, Concat("'", key,
                                          "' has an option of its own: --rdzv-backend, "
                                          "--rdzv-endpoint, --rdzv-id, --nnodes or --local-addr")};
    }
    pairs.insert_or_assign(std::string(key), std::string(value));
  }
  return pairs;
}

/// Checks the port, if there is one. The host is checked by the connection.
Status CheckEndpoint(std::string_view endpoint, bool needs_port) {
  const std::string_view text = Trim(endpoint);
  const bool all_host = text.starts_with('[') && text.ends_with(']');
  const size_t colon = all_host ? text.npos : text.rfind(':');
  if (colon == text.npos && !needs_port) return Ok();
  const std::string_view digits = colon == text.npos ? "" : text.substr(colon + 1);
  if (digits.size() <= 5 && ParseAll<uint16_t>(digits) && colon > 0) return Ok();
  return Error{Code::kInvalid, Concat("'", Printable(endpoint),
                                      "' is not HOST:PORT with a port from 0 to 65535; "
                                      "write an IPv6 address as [ADDRESS]:PORT")};
}

Result<Duration> ParseSeconds(std::string_view text) {
  const auto seconds = ParseWholeNumber(text);
  if (seconds && *seconds >= 0 && *seconds <= kSecondsMax)
    return Duration(std::chrono::seconds(*seconds));
  return Error{Code::kInvalid,
               Concat("'", Printable(text), "' is not a time: whole seconds from 0 to ",
                      kSecondsMax, " are allowed")};
}

Status ReadNodes(const Settings& given, LaunchOptions& options) {
  MUSTER_TRY(options.nodes, given.Parsed("nnodes", ParseNodeCount));
  const std::string& workers = given.Text("nproc-per-node");
  const auto number = ParseWholeNumber(workers);
  if (number ? *number < 1 || *number > kWorkersMax
             : !IsOneOf(workers, {"cpu", "gpu", "xpu", "auto"})) {
    return given.Wrong("nproc-per-node", "'", Printable(workers),
                       "' is not a number of workers: write 1 to ", kWorkersMax,
                       ", or gpu, xpu, cpu or auto");
  }
  options.workers = number ? Concat(*number) : workers;
  options.role = given.Text("role");
  options.local_addr = given.Text("local-addr");
  if (const std::string& mode = given.Text("numa-binding"); !mode.empty()) {
    MUSTER_TRY(options.numa_binding, ParseNumaMode(mode));
  }
  options.virtual_local_rank = given.Flag("virtual-local-rank");
  return Ok();
}

Status ReadBackend(const Settings& given, LaunchOptions& options) {
  const bool fixed =
      std::ranges::any_of(kStaticOnly, [&](std::string_view name) { return given.Given(name); });
  options.standalone = given.Flag("standalone");
  options.backend = options.standalone            ? "muster"
                    : given.Given("rdzv-backend") ? given.Text("rdzv-backend")
                    : fixed                       ? "static"
                                                  : "muster";
  if (!IsOneOf(options.backend, {"muster", "c10d", "static", "etcd", "etcd-v2"})) {
    return given.Wrong("rdzv-backend", "there is no '", Printable(options.backend),
                       "': write muster, c10d, static, etcd or etcd-v2. Backends that are "
                       "Python plug-ins cannot be loaded here; use torchrun for those");
  }
  for (const std::string_view name : kStaticOnly) {
    if (options.backend == "static" || !given.Given(name)) continue;
    options.warnings.push_back(Concat(
        given.Source(name), " has no effect ",
        options.standalone ? std::string("with --standalone")
                           : Concat("with the backend '", options.backend, "', only with static")));
  }
  return Ok();
}

Status ReadStatic(const Settings& given, LaunchOptions& options) {
  const bool by_endpoint = !options.endpoint.empty();
  if (!by_endpoint) {
    const std::string& host = options.master_addr;
    const bool bare6 = host.find(':') != host.npos && !host.starts_with('[');
    const int64_t port = given.Whole("master-port");
    options.endpoint = bare6 ? Concat('[', host, "]:", port) : Concat(host, ':', port);
  }
  if (const Status right = CheckEndpoint(options.endpoint, true); !right) {
    return by_endpoint ? given.Wrong("rdzv-endpoint", right.error().message)
                       : given.Wrong("master-addr", right.error().message);
  }
  const int64_t rank = given.Whole("node-rank");
  if (rank < 0 || rank >= options.nodes.max) {
    return given.Wrong("node-rank", rank, " among ", options.nodes.max, " nodes; 0 to ",
                       options.nodes.max - 1, " are allowed");
  }
  options.rendezvous.insert_or_assign("rank", Concat(rank));
  return Ok();
}

Status ReadStandalone(const Settings& given, LaunchOptions& options) {
  options.endpoint.clear();
  options.run_id.clear();
  if (options.nodes.min > 1) {
    return given.Wrong("nnodes", "at least ", options.nodes.min,
                       " nodes, but --standalone is for a single node");
  }
  options.nodes.max = 1;  // No other node can join.
  return Ok();
}

/// The command line can be read by all users of the machine; variables cannot.
Status CheckPasswords(const Settings& given, const LaunchOptions& options) {
  const auto on_command_line = [&](std::string_view name) {
    return given.Source(name).starts_with("--");
  };
  if (options.rendezvous.contains("password") && on_command_line("rdzv-conf"))
    return given.Wrong("rdzv-conf", "password: ", kVisiblePassword);
  if (ShowsPassword(options.endpoint) && on_command_line("rdzv-endpoint"))
    return given.Wrong("rdzv-endpoint", kVisiblePassword);
  return Ok();
}

Result<Duration> ReadContactTimeout(const Settings& given, const LaunchOptions& options) {
  const auto found = options.rendezvous.find("contact_timeout");
  if (found == options.rendezvous.end()) {
    // A server that is restarted is back in seconds; etcd may need to elect a leader.
    return options.backend == "muster" ? options.contact_timeout : 30s;
  }
  const auto seconds = ParseWholeNumber(found->second);
  if (!seconds || *seconds < 1) {
    return given.Wrong("rdzv-conf", "contact_timeout='", Printable(found->second),
                       "': write a number of seconds above 0");
  }
  return Duration(std::chrono::seconds(std::min(*seconds, kSecondsMax)));
}

Status ReadRendezvous(const Settings& given, LaunchOptions& options) {
  MUSTER_CHECK_OK(ReadBackend(given, options));
  MUSTER_TRY(options.rendezvous, given.Parsed("rdzv-conf", ParsePairs));
  for (const auto& [key, value] : options.rendezvous) {
    if (const auto warning = WarningOfKey(options.backend, key))
      options.warnings.push_back(*warning);
  }
  MUSTER_TRY(options.contact_timeout, ReadContactTimeout(given, options));
  options.endpoint = Trim(given.Text("rdzv-endpoint"));
  if (options.backend.starts_with("etcd")) MUSTER_CHECK_OK(CheckPasswords(given, options));
  options.run_id = given.Text("rdzv-id");
  options.master_addr = Trim(given.Text("master-addr"));
  if (options.standalone) return ReadStandalone(given, options);
  if (options.run_id.empty()) {
    options.warnings.push_back(
        Concat(given.Source("rdzv-id"), " is empty: a random id is used, which no other node has"));
  }
  // torchrun's default, where that of the backend is shorter.
  if (options.backend == "static" || options.backend == "etcd")
    options.rendezvous.try_emplace("timeout", "900");
  if (options.backend == "static") return ReadStatic(given, options);
  if (options.backend != "muster" && options.backend != "c10d") return Ok();
  const auto type = options.rendezvous.find("store_type");
  const bool file = type != options.rendezvous.end() && LowerCase(type->second) == "file";
  const Status right = file ? Ok() : CheckEndpoint(options.endpoint, false);
  if (!right) return given.Wrong("rdzv-endpoint", right.error().message);
  if (options.endpoint.empty() && options.nodes.max > 1) {
    options.warnings.push_back(
        "several nodes and no --rdzv-endpoint: only nodes on this machine can join; give the "
        "same --rdzv-endpoint=HOST:PORT to all, or --node-rank and --master-addr to each");
  }
  return Ok();
}

Status ReadProgram(const Settings& given, LaunchPersonality personality, LaunchOptions& options) {
  CommandOptions& command = options.command;
  command.module = given.Flag("module");
  command.no_python = given.Flag("no-python");
  command.run_path = given.Flag("run-path");
  command.python = given.Text("python");
  if (personality == LaunchPersonality::kLegacy) {
    command.pass_local_rank = !given.Flag("use-env");
    options.warnings.push_back(
        "this way to launch is deprecated: use 'muster run', and read LOCAL_RANK in the script");
  }
  MUSTER_CHECK_OK(command.Validate());
  // --run-path overrides these two, as in torchrun.
  if (command.run_path) command.module = command.no_python = false;
  if (given.Given("start-method")) {
    options.warnings.push_back(
        Concat(given.Source("start-method"), " has no effect: workers are always new processes"));
  }
  return Ok();
}

Status ReadSupervision(const Settings& given, LaunchOptions& options) {
  options.max_restarts = given.Whole("max-restarts");
  if (options.max_restarts < 0) {
    return given.Wrong("max-restarts", options.max_restarts, ", allowed: 0 or more");
  }
  const double interval = *ParseFraction(given.Text("monitor-interval"));
  if (!(interval > 0) || interval > static_cast<double>(kSecondsMax)) {
    return given.Wrong("monitor-interval", "'", Printable(given.Text("monitor-interval")),
                       "', allowed: above 0 and up to ", kSecondsMax, " seconds");
  }
  options.monitor_interval = std::max<Duration>(Duration(std::llround(interval * 1e9)), 1ns);
  MUSTER_TRY(options.shutdown_timeout, given.Parsed("shutdown-timeout", ParseSeconds));
  MUSTER_TRY(options.exit_barrier_timeout, given.Parsed("exit-barrier-timeout", ParseSeconds));
  options.wait_for_children = given.Flag("wait-for-children");
  options.signals = given.Text("signals-to-handle");
  MUSTER_TRY(const SignalList signals, given.Parsed("signals-to-handle", ParseSignals));
  options.signal_numbers = signals.numbers;
  for (const std::string& name : signals.unknown) {
    options.warnings.push_back(Concat(given.Source("signals-to-handle"), ": there is no signal '",
                                      Printable(name), "'; it is left out"));
  }
  return Ok();
}

Status ReadLogs(const Settings& given, LaunchOptions& options) {
  if (given.Given("logs-specs") && given.Text("logs-specs") != "default") {
    return given.Wrong("logs-specs",
                       "Python plug-ins cannot be loaded here; use torchrun for that");
  }
  MUSTER_TRY(options.streams.shown_workers, given.Parsed("local-ranks-filter", ParseWorkerList));
  MUSTER_TRY(options.streams.redirects, given.Parsed("redirects", ParseStreams));
  MUSTER_TRY(options.streams.tee, given.Parsed("tee", ParseStreams));
  options.log_dir = given.Text("log-dir");
  options.prefix_template = given.Text("log-line-prefix-template");
  options.streams.without_logs = options.log_dir == "/dev/null";
  options.output_filters = ParseFilters(given.Text("duplicate-stdout-filters"));
  options.error_filters = ParseFilters(given.Text("duplicate-stderr-filters"));
  options.event_sink = given.Text("event-log-handler");
  if (!options.event_sink.starts_with("file:") &&
      !IsOneOf(options.event_sink, {"null", "console", "dynamic_rendezvous"})) {
    return given.Wrong("event-log-handler", "there is no '", Printable(options.event_sink),
                       "': write null, console or file:PATH");
  }
  options.failure_report = given.Text("failure-report");
  options.quiet = given.Flag("quiet");
  options.verbose = given.Flag("verbose");
  if (options.quiet && options.verbose)
    return Error{Code::kInvalid, "--quiet and --verbose: leave out one of the two"};
  return Ok();
}

Result<LaunchOptions> ReadAll(const Settings& given, LaunchPersonality personality) {
  LaunchOptions options;
  MUSTER_CHECK_OK(ReadNodes(given, options));
  MUSTER_CHECK_OK(ReadRendezvous(given, options));
  MUSTER_CHECK_OK(ReadLogs(given, options));
  MUSTER_CHECK_OK(ReadProgram(given, personality, options));
  MUSTER_CHECK_OK(ReadSupervision(given, options));
  return options;
}

// As in torchrun, what is not a number above 0 sets no limit; but a mistake causes a warning.
void ReadUninterruptibleMax(const Environment& environment, LaunchOptions& options) {
  const std::string text = VariableOrEmpty(environment, kUninterruptibleVariable);
  const auto seconds = ParseFraction(text);
  if (seconds && *seconds > 0)
    options.uninterruptible_max =
        Duration(std::llround(std::min<double>(*seconds, kSecondsMax) * 1e9));
  if (!seconds && !text.empty())
    options.warnings.push_back(Concat(kUninterruptibleVariable, "='", Printable(text),
                                      "' has no effect: write a number of seconds"));
}

LaunchRefusal UsageError(std::string_view reason) {
  return {.status = 2, .text = Concat(kLaunchUsage, "\nmuster run: error: ", reason)};
}

}  // namespace

std::variant<LaunchOptions, LaunchRefusal> ReadLaunchOptions(std::span<const std::string> arguments,
                                                             const Environment& environment,
                                                             LaunchPersonality personality) {
  const std::vector<ArgumentSpec> specs = LaunchTable(personality);
  const Status flags = CheckFlagVariables(specs, environment);
  if (!flags) return LaunchRefusal{.status = 1, .text = flags.error().message};

  const Result<CommandLine> line = ReadCommandLine(specs, arguments);
  if (!line) return UsageError(line.error().message);
  if (line->help) return LaunchRefusal{.status = 0, .text = LaunchHelp(personality)};
  if (const auto shell = line->given.find("print-completion"); shell != line->given.end())
    return LaunchRefusal{.status = 0, .text = LaunchCompletion(shell->second)};
  const Result<Settings> given = Settings::Read(specs, *line, environment);
  if (!given) return UsageError(given.error().message);
  if (!line->script) return UsageError("the script is missing; see --help");

  Result<LaunchOptions> options = ReadAll(*given, personality);
  if (!options) return LaunchRefusal{.status = 1, .text = options.error().message};
  ReadUninterruptibleMax(environment, *options);
  options->command.script = *line->script;
  options->command.arguments = line->rest;
  return *std::move(options);
}

}  // namespace muster
