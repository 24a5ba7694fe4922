// The store machine against its naive twin (support/machine_twin.h). An input is a story, six bytes
// for each event; after each event both must have given the same answers.
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/input.h"
#include "support/machine_twin.h"

namespace muster::fuzz {
namespace {

using namespace testing_words;  // NOLINT: it is the vocabulary of this file

// Values that are numbers, that are not, that do not fit, and that together exceed the small
// limits.
constexpr std::string_view kValues[] = {"",
                                        "0",
                                        "1",
                                        "-1",
                                        "abc",
                                        " -2x",
                                        "+7",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "12345",
                                        "x",
                                        "9",
                                        "-",
                                        " ",
                                        "-9223372036854775808"};
constexpr int64_t kNumbers[] = {1, 2, 3, 4, 5, 0, -1, INT64_MAX, INT64_MIN};
constexpr Duration kTimes[] = {0ms, 1ms, 400ms, 999ms, 1000ms, 24h};
constexpr Duration kReservations[] = {1s, 0s, 400ms, Duration::max()};

StoreMachineOptions OptionsFrom(Input& input) {
  StoreMachineOptions options{.reservation_max = input.OneOf(kReservations),
                              .empty_counts_as_zero = input.Flag()};
  if (input.Flag()) options.reply_bytes_max = 5;  // the size of some of the values
  if (input.Flag()) options.waited_keys_max = 5;
  if (input.Flag()) options.stray_scope_kept = 1s;
  return options;
}

Event EventFrom(Input& input) {
  Event event;
  const uint8_t who = input.Byte();
  event.client = kClients[who % std::size(kClients)];
  if (who >= 228) event.kind = Event::Kind::kOpenScope;
  if (who >= 234) event.kind = Event::Kind::kDropScope;
  if (who >= 240) event.kind = Event::Kind::kDrop;
  if (who >= 248) event.kind = Event::Kind::kPass;
  event.op = static_cast<Op>(input.Byte() % kOpCount);
  const uint8_t key = input.Byte();
  event.key = kKeys[key % std::size(kKeys)];
  if (event.kind >= Event::Kind::kOpenScope) event.key = kScopes[key % std::size(kScopes)];
  const uint8_t value = input.Byte();
  event.value = kValues[(value & 15) % std::size(kValues)];
  event.expected = kValues[(value >> 4) % std::size(kValues)];
  const uint8_t number = input.Byte();
  event.number = kNumbers[number % std::size(kNumbers)];
  event.time = kTimes[number % std::size(kTimes)];
  // Up to four keys of two bits each, and as many values.
  uint8_t list = input.Byte();
  for (int count = (key >> 4) % 5; count > 0; --count, list >>= 2) {
    event.keys.emplace_back(kKeys[((list & 3) + (key >> 7)) % std::size(kKeys)]);
    event.values.emplace_back(kValues[(value + list) % std::size(kValues)]);
  }
  return event;
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::Input input(data, size);
  const auto options = muster::fuzz::OptionsFrom(input);
  std::vector<muster::testing_words::Event> story;
  while (!input.empty()) story.push_back(muster::fuzz::EventFrom(input));
  const std::string difference = muster::testing_words::Difference(options, story);
  FUZZ_CHECK(difference.empty(), difference);
  return 0;
}
