// What a thread prints if the program dies on it: by an assertion, an uncaught exception, or a bad
// access. A campaign stores there the command that repeats the thread's run. Otherwise a bug found
// after hours would be lost with its seed.
#pragma once

#include <string_view>

namespace muster::sim {

/// From now on SIGABRT (assertions, std::terminate()), SIGSEGV, SIGBUS, SIGFPE and SIGILL make the
/// thread that they hit print its command on stderr. Then the signals do what they did before: a
/// sanitizer's report, or the end. A sanitizer that ends the program prints it, too. Call once, in
/// main.
void InstallCrashReport();

/// Sets the command that repeats what this thread is about to do, and replaces the previous one.
/// Cut after 400 bytes. Any thread, not within a fiber.
void SetCrashReport(std::string_view command);

}  // namespace muster::sim
