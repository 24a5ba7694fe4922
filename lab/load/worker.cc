#include "load/worker.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace muster::load {

namespace {
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kScratchBytes = 256 * 1024;
// How often a worker that receives nothing checks whether it must stop.
constexpr int kLookMs = 50;
}  // namespace

Worker::Worker(const Stage& stage, std::span<const Descriptor> sockets, size_t first_number)
    : stage_(stage),
      batch_bytes_(stage.script.request_bytes() * stage.pipeline + stage.script.closing().size()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      keys_(sockets.size() * stage.pipeline),
      scratch_(kScratchBytes),
      live_(sockets.size()) {
  for (size_t i = 0; i < sockets.size(); ++i) {
    // Seeds far apart in the generator's sequence: close ones would request the same keys, shifted.
    const uint64_t seed = Prng(stage.seed + (first_number + i) * 0x9e3779b9).Next();
    clients_.push_back(
        {.fd = sockets[i].get(), .prng = Prng(seed), .keys = &keys_[i * stage.pipeline]});
  }
}

void Worker::Run() {
  for (Client& client : clients_) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &client}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client.fd, &event) != 0) {
      GiveUp(client, SystemError("epoll_ctl").message);
      continue;
    }
    PrepareBatch(client);
  }
  StartBatches();
  std::array<epoll_event, 128> events;
  auto drained_by = SteadyClock::time_point::max();
  while (live_ > 0 && (busy_ > 0 || stage_.phase.load(std::memory_order_relaxed) != Phase::kStop)) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), kLookMs);
    for (int i = 0; i < count; ++i) {
      auto& client = *static_cast<Client*>(events[static_cast<size_t>(i)].data.ptr);
      const uint32_t what = events[static_cast<size_t>(i)].events;
      if ((what & EPOLLOUT) != 0 && client.busy) Send(client);
      if ((what & ~static_cast<uint32_t>(EPOLLOUT)) != 0) Receive(client);
    }
    StartBatches();
    if (stage_.phase.load(std::memory_order_relaxed) != Phase::kStop) continue;
    const auto now = SteadyClock::now();
    if (drained_by == SteadyClock::time_point::max()) drained_by = now + stage_.drain_max;
    if (now < drained_by) continue;
    for (Client& client : clients_) {
      if (client.busy) GiveUp(client, "no reply within the time to drain");
    }
  }
}

void Worker::PrepareBatch(Client& client) {
  for (size_t i = 0; i < stage_.pipeline; ++i) {
    client.keys[i] = static_cast<uint32_t>(client.prng.Below(stage_.keys));
  }
  client.sent = 0;
  client.replies = 0;
  client.busy = true;
  ++busy_;
  prepared_.push_back(&client);
}

void Worker::StartBatches() {
  for (Client* client : prepared_) {
    client->sent_at = SteadyClock::now();
    Send(*client);
  }
  prepared_.clear();
}

void Worker::Send(Client& client) {
  while (client.sent < batch_bytes_) {
    const size_t size = FillScratch(client);
    const ssize_t sent = send(client.fd, scratch_.data(), size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN) return WatchRoom(client, true);
    if (sent < 0) return GiveUp(client, SystemError("send").message);
    client.sent += static_cast<size_t>(sent);
  }
  if (client.wants_room) WatchRoom(client, false);
}

size_t Worker::FillScratch(const Client& client) {
  const size_t request = stage_.script.request_bytes();
  size_t at = client.sent;
  size_t filled = 0;
  while (at < request * stage_.pipeline && filled < scratch_.size()) {
    const size_t copied =
        stage_.script.CopyRequest(client.keys[at / request], at % request, scratch_.data() + filled,
                                  scratch_.size() - filled);
    at += copied;
    filled += copied;
  }
  if (at >= request * stage_.pipeline) {
    const std::string_view rest = stage_.script.closing().substr(at - request * stage_.pipeline);
    const size_t count = std::min(rest.size(), scratch_.size() - filled);
    std::memcpy(scratch_.data() + filled, rest.data(), count);
    filled += count;
  }
  return filled;
}

void Worker::Receive(Client& client) {
  const ssize_t count = recv(client.fd, scratch_.data(), scratch_.size(), MSG_DONTWAIT);
  if (count < 0 && errno == EAGAIN) return;
  if (count < 0) return GiveUp(client, SystemError("recv").message);
  if (count == 0) return GiveUp(client, "the server hung up");
  const auto now = SteadyClock::now();
  std::string_view bytes(scratch_.data(), static_cast<size_t>(count));
  const size_t replies_wanted = client.busy ? RepliesPerBatch() : 0;
  uint64_t good = 0;
  while (!bytes.empty()) {
    if (client.replies >= replies_wanted)
      return GiveUp(client, "the server sent more than was requested");
    size_t used = 0;
    const ReplyStep step =
        stage_.script.Read(client.place, client.keys[client.replies], bytes, &used);
    if (step == ReplyStep::kLost) {
      return GiveUp(client, Concat("not a reply: '", Printable(bytes.substr(0, 32)), "'"));
    }
    bytes.remove_prefix(used);
    if (step == ReplyStep::kMore) break;
    ++client.replies;
    good += step == ReplyStep::kGood ? 1 : 0;
    if (step == ReplyStep::kWrong) {
      errors_ += OperationsPerReply();
      Complain("a reply has another value than was stored");
    }
  }
  good *= OperationsPerReply();
  operations_.store(operations() + good, std::memory_order_relaxed);
  if (good > 0 && stage_.phase.load(std::memory_order_relaxed) == Phase::kMeasure) {
    latency_.Add(now - client.sent_at, good);
  }
  if (client.replies == replies_wanted) EndBatch(client);
}

void Worker::EndBatch(Client& client) {
  client.busy = false;
  --busy_;
  if (stage_.phase.load(std::memory_order_relaxed) != Phase::kStop) PrepareBatch(client);
}

void Worker::WatchRoom(Client& client, bool wants_room) {
  if (client.wants_room == wants_room) return;
  client.wants_room = wants_room;
  epoll_event event{.events = EPOLLIN | (wants_room ? EPOLLOUT : 0u), .data = {.ptr = &client}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd, &event);
}

void Worker::GiveUp(Client& client, std::string why) {
  const size_t answered = client.busy ? client.replies : 0;
  errors_ += (RepliesPerBatch() - std::min(answered, RepliesPerBatch() - 1)) * OperationsPerReply();
  Complain(std::move(why));
  if (client.busy) --busy_;
  client.busy = false;
  --live_;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.fd, nullptr);
  shutdown(client.fd, SHUT_RDWR);  // the connection must not be used again later
}

void Worker::Complain(std::string why) {
  if (first_error_.empty()) first_error_ = std::move(why);
}

}  // namespace muster::load
