// What a thread prints if the program dies on it: of an assertion, of an exception that nothing
// catches, of a bad access. A campaign puts there how the run that the thread is in can be
// repeated; without that, a bug found after hours would be lost with the seed that shows it.
#pragma once

#include <string_view>

namespace muster::sim {

/// From now on SIGABRT (assertions, std::terminate()), SIGSEGV, SIGBUS, SIGFPE and SIGILL make the
/// thread that they hit print its command on stderr; then they do what they did before: a
/// sanitizer's report, or the end. A sanitizer that ends the program prints it, too. Call once, in
/// main.
void InstallCrashReport();

/// The command that repeats what this thread is about to do; it replaces the previous one. Cut
/// after 400 bytes. Any thread, not within a fiber.
void SetCrashReport(std::string_view command);

}  // namespace muster::sim
