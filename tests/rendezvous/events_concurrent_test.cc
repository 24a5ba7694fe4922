// Events from many threads at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "muster/rendezvous_events.h"
#include "rendezvous/event_recorder.h"
#include "support/temp_dir.h"

namespace muster::test {

namespace {

constexpr int kThreads = 4;
constexpr int kEvents = 200;

/// Runs `body(number of the thread)` in several threads and waits for all of them.
template <typename Body>
void InThreads(const Body& body) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] { body(thread); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST(EventsToFileConcurrentTest, LinesOfSeveralThreadsAndSinksDoNotMix) {
  const TempDir dir;
  const std::string path = dir.File("events");
  const RendezvousEventSink shared = EventsToFile(path);
  InThreads([&](int thread) {
    const bool own = thread % 2 == 0;  // as another process would have
    const EventRecorder recorder(own ? EventsToFile(path) : shared, "run");
    const Node node{"host", thread, 0};
    for (int i = 0; i < kEvents; ++i) {
      recorder.Record("f", NodeState::kRunning, node,
                      std::string(static_cast<size_t>(i) * 30, 'x'));
    }
  });
  std::map<int64_t, int> seen;
  std::istringstream lines(ReadFile(path));
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    const std::string message = event.at("message");
    EXPECT_EQ(std::ranges::count(message, 'x'), seen[event.at("pid").get<int64_t>()]++ * 30);
  }
  for (int thread = 0; thread < kThreads; ++thread) EXPECT_EQ(seen[thread], kEvents);
}

TEST(ProcessSinkConcurrentTest, MayBeReplacedWhileEventsAreReported) {
  std::atomic<int> delivered = 0;
  InThreads([&](int thread) {
    const EventRecorder recorder(nullptr, "run");
    for (int i = 0; i < kEvents; ++i) {
      if (thread == 0) {
        SetRendezvousEventSink(i % 2 == 0 ? [&delivered](const RendezvousEvent&) { ++delivered; }
                                          : RendezvousEventSink());
      }
      recorder.Record("f", NodeState::kRunning, Node{"host", thread, i}, "event ", i);
    }
  });
  SetRendezvousEventSink(nullptr);
  EXPECT_GE(delivered, kEvents / 2);  // the replacing thread itself receives half of its own
}

}  // namespace muster::test
