// What a thread says if the program dies on it: of an assertion, of an exception that nobody
// catches, of a bad access. A campaign puts there how the run that the thread is in can be
// repeated; without that, a bug found after hours would be lost with the seed that shows it.
#pragma once

#include <string_view>

namespace muster::sim {

/// From now on SIGABRT (assertions, std::terminate()), SIGSEGV, SIGBUS, SIGFPE and SIGILL let the
/// thread that they hit say its last words on stderr, and then do what they did before: a
/// sanitizer's report, or the end. A sanitizer that ends the program lets it speak, too. Once, by
/// main.
void InstallLastWords();

/// The command that repeats what this thread is about to do; in place of what it had to say before.
/// Cut where it is longer than 400 bytes. Any thread, not within a fiber.
void SetLastWords(std::string_view command);

}  // namespace muster::sim
