// The store machine against its naive twin: for any requests of several clients, both give the same
// replies and release the same clients in the same order.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "support/machine_twin.h"

namespace muster {
namespace {

using namespace testing_words;  // NOLINT: it is the vocabulary of this file

// --- Random stories

rc::Gen<Op> AnyOp() {
  // Weighted towards what makes clients park and others release them.
  return rc::gen::weightedElement<Op>({{8, Op::kWait},
                                       {6, Op::kQueuePush},
                                       {6, Op::kQueuePop},
                                       {4, Op::kBarrier},
                                       {4, Op::kSet},
                                       {4, Op::kDeleteKey},
                                       {3, Op::kCancelWait},
                                       {3, Op::kAdd},
                                       {3, Op::kCompareSet},
                                       {2, Op::kAppend},
                                       {2, Op::kMultiSet},
                                       {2, Op::kMultiGet},
                                       {2, Op::kCheck},
                                       {1, Op::kQueueLen},
                                       {1, Op::kListKeys},
                                       {1, Op::kGetNumKeys},
                                       {1, Op::kGet},
                                       {1, Op::kPing},
                                       {1, Op::kValidate}});
}

rc::Gen<Event> AnyEvent() {
  using rc::gen::element;
  // Few keys, so that clients meet; values that are counters, that are not, and that do not fit.
  const auto key = rc::gen::elementOf(std::vector<std::string>(std::begin(kKeys), std::end(kKeys)));
  const auto value =
      element<std::string>("", "1", "abc", " -2x", "9223372036854775807", "9223372036854775808");
  const auto keys = rc::gen::resize(4, rc::gen::container<Strings>(key));
  return rc::gen::exec([=] {
    Event event;
    event.kind = *rc::gen::weightedElement<Event::Kind>({{30, Event::Kind::kAsk},
                                                         {2, Event::Kind::kDrop},
                                                         {2, Event::Kind::kPass},
                                                         {1, Event::Kind::kOpenScope},
                                                         {1, Event::Kind::kDropScope}});
    event.client = *rc::gen::elementOf(std::vector(std::begin(kClients), std::end(kClients)));
    event.op = *AnyOp();
    event.key = *key;
    event.expected = *value;
    event.value = *value;
    event.number = *element<int64_t>(1, 2, 3, 4, -1, 0, INT64_MAX, INT64_MIN);
    event.keys = *keys;
    event.values = *rc::gen::container<Strings>(event.keys.size(), value);
    if (event.kind >= Event::Kind::kOpenScope) {
      event.key = *rc::gen::elementOf(Strings(std::begin(kScopes), std::end(kScopes)));
    }
    event.time = *element<Duration>(0ms, 400ms, 1000ms);
    return event;
  });
}

void PlayBoth(const StoreMachineOptions& options) {
  const auto story = *rc::gen::scale(8.0, rc::gen::container<std::vector<Event>>(AnyEvent()));
  RC_ASSERT(Difference(options, story) == "");
}

RC_GTEST_PROP(StoreMachineModelTest, AnswersAsTheNaiveTwinDoes, ()) {
  PlayBoth({.reservation_max = 1s, .stray_scope_kept = 2s});
}

RC_GTEST_PROP(StoreMachineModelTest, AnswersAsTheNaiveTwinDoesAtItsLimits, ()) {
  PlayBoth({.reply_bytes_max = 8,
            .waited_keys_max = 5,
            .reservation_max = *rc::gen::element<Duration>(0s, 1s, Duration::max()),
            .empty_counts_as_zero = true,
            .stray_scope_kept = *rc::gen::element<Duration>(0s, 1s, Duration::max())});
}

}  // namespace
}  // namespace muster
