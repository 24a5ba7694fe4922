#include "launch/core/signals.h"

#include <csignal>

namespace muster {

namespace {

struct NamedSignal {
  int number;
  std::string_view name;
};
// If a number has several names, the first one is shown.
constexpr NamedSignal kSignals[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"},     {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},       {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"},     {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"},     {SIGCHLD, "SIGCHLD"},
    {SIGCONT, "SIGCONT"}, {SIGSTOP, "SIGSTOP"},     {SIGTSTP, "SIGTSTP"},     {SIGTTIN, "SIGTTIN"},
    {SIGTTOU, "SIGTTOU"}, {SIGURG, "SIGURG"},       {SIGXCPU, "SIGXCPU"},     {SIGXFSZ, "SIGXFSZ"},
    {SIGPROF, "SIGPROF"}, {SIGVTALRM, "SIGVTALRM"}, {SIGWINCH, "SIGWINCH"},   {SIGIO, "SIGIO"},
    {SIGPWR, "SIGPWR"},   {SIGSYS, "SIGSYS"},       {SIGSTKFLT, "SIGSTKFLT"}, {SIGABRT, "SIGIOT"},
    {SIGCHLD, "SIGCLD"},  {SIGIO, "SIGPOLL"},
};

}  // namespace

std::string SignalName(int64_t signal) {
  for (const NamedSignal& known : kSignals) {
    if (known.number == signal) return std::string(known.name);
  }
  // The C library reserves some of these, and returns at run time which are left.
  if (signal == SIGRTMIN) return "SIGRTMIN";
  if (signal == SIGRTMAX) return "SIGRTMAX";
  return "<N/A>";
}

std::optional<int> SignalNumber(std::string_view name) {
  for (const NamedSignal& known : kSignals) {
    if (known.name == name) return known.number;
  }
  return std::nullopt;
}

}  // namespace muster
