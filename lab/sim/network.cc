#include "sim/network.h"

#include <algorithm>

#include "base/assert.h"
#include "base/text.h"
#include "sim/process.h"

namespace muster::sim {

namespace {

constexpr Duration kRetransmit = 200ms;
constexpr Duration kSynAgain = 1s;
// Bytes that may be under way, and in the buffers of both systems.
constexpr uint64_t kWindow = 256 * 1024;
constexpr int64_t kMillion = 1'000'000;

}  // namespace

// ----------------------------------------------------------------------------------------------
// sockets

Connection::Connection(Network& network, uint64_t its_id, SimProcess& client, SimProcess& server,
                       uint16_t port)
    : id(its_id),
      network_(network),
      hosts_{client.host(), server.host()},
      ports_{static_cast<uint16_t>(30'000 + its_id % 30'000), port},
      sockets_{Socket(*this, kClient), Socket(*this, kServer)} {
  sockets_[kClient].owner_ = &client;
  sockets_[kServer].owner_ = &server;
}

std::shared_ptr<Socket> Connection::socket(size_t side) {
  return {shared_from_this(), &sockets_[side]};
}

std::string Connection::ToString() const {
  return Concat(address(kClient), " to ", address(kServer));
}

std::string Connection::address(size_t side) const {
  return Concat(network_.address(hosts_[side]), ":", ports_[side]);
}

void Socket::Write(std::string_view bytes) {
  if (ended || closed_ || bytes.empty() || !owner_->alive()) return;
  written_ += bytes.size();
  outstanding_ += bytes.size();
  if (queued() > 0) was_full_ = true;
  Network& network = connection_.network_;
  const auto connection = connection_.shared_from_this();
  while (!bytes.empty()) {
    size_t piece = bytes.size();
    if (network.options_.fragment && piece > 1 && network.prng_.Below(4) == 0)
      piece = 1 + network.prng_.Below(piece);
    network.Send(connection, side_, {.bytes = std::string(bytes.substr(0, piece))});
    bytes.remove_prefix(piece);
  }
  if (unanswered_max > 0s && !watched_) network.WatchPatience(*this);
}

void Socket::Close() {
  if (closed_) return;
  closed_ = true;
  on_event = nullptr;
  if (!ended && owner_ != nullptr && owner_->alive())
    connection_.network_.Send(connection_.shared_from_this(), side_,
                              {.kind = Network::Packet::Kind::kEnd});
  connection_.network_.Forget(connection_);
}

void Socket::Consumed(size_t bytes) {
  Socket& sender = connection_.sockets_[1 - side_];
  sender.outstanding_ -= std::min<uint64_t>(sender.outstanding_, bytes);
  if (!sender.was_full_ || sender.queued() > 0) return;
  sender.was_full_ = false;
  sender.drained = true;
  if (sender.owner_ == nullptr || sender.closed_) return;
  sender.owner_->DoAt(connection_.network_.scheduler_.now(),
                      [connection = connection_.shared_from_this(), &sender] {
                        if (sender.on_event) sender.on_event();
                      });
}

size_t Socket::queued() const {
  return outstanding_ > kWindow ? static_cast<size_t>(outstanding_ - kWindow) : 0;
}

// ----------------------------------------------------------------------------------------------
// the network

Network::Network(Scheduler& scheduler, const NetworkOptions& options, uint64_t seed, Trace& trace)
    : scheduler_(scheduler), options_(options), prng_(seed), trace_(trace) {}

Network::~Network() = default;

HostId Network::AddHost(std::string address) {
  const auto id = static_cast<HostId>(hosts_.size());
  by_address_[address] = id;
  hosts_.push_back({.address = std::move(address)});
  return id;
}

bool Network::IsCut(HostId from, HostId to) const {
  const auto link = links_.find({from, to});
  return link != links_.end() && link->second.cut;
}

Duration Network::Latency() {
  Duration latency = options_.latency;
  if (options_.jitter > 0s)
    latency +=
        Duration(static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(options_.jitter.count()))));
  Duration again = kRetransmit;
  while (options_.loss_ppm > 0 &&
         prng_.Below(kMillion) < static_cast<uint64_t>(options_.loss_ppm)) {
    latency += again;
    again *= 2;
  }
  return latency;
}

WorldTime Network::ArrivalOf(HostId from, HostId to) {
  const WorldTime at = scheduler_.now() + Latency();
  const auto link = links_.find({from, to});
  return link == links_.end() ? at : std::max(at, link->second.clogged_until);
}

void Network::Send(const std::shared_ptr<Connection>& connection, size_t from, Packet packet) {
  const HostId sender = connection->hosts_[from];
  const HostId receiver = connection->hosts_[1 - from];
  auto& held = connection->held_[from];
  if (!held.empty() || IsCut(sender, receiver)) {
    if (held.empty()) {
      connection->held_since_[from] = scheduler_.now();
      LinkOf(sender, receiver).held.emplace_back(connection, from);
    }
    held.push_back(std::move(packet));
    return;
  }
  Deliver(connection, 1 - from, std::move(packet));
}

void Network::Deliver(const std::shared_ptr<Connection>& connection, size_t to, Packet packet) {
  const WorldTime at = std::max(ArrivalOf(connection->hosts_[1 - to], connection->hosts_[to]),
                                connection->last_arrival_[to]);
  connection->last_arrival_[to] = at;
  ++messages_;
  bytes_ += packet.bytes.size();
  scheduler_.At(at, [this, connection, to, packet = std::move(packet)]() mutable {
    Arrive(*connection, to, std::move(packet));
  });
}

void Network::Arrive(Connection& connection, size_t to, Packet packet) {
  Socket& socket = connection.sockets_[to];
  trace_.Note(scheduler_.now(), connection.id * 8 + to * 4 + static_cast<uint64_t>(packet.kind),
              packet.bytes);
  if (Host& host = At(connection.hosts_[to]); host.dark) {
    host.undelivered.emplace_back(connection.weak_from_this(), to);
    return;
  }
  if (socket.owner_ == nullptr || socket.closed_ || socket.ended) {
    // Nothing listens there (any more), and the other side receives a reset.
    if (packet.kind == Packet::Kind::kBytes)
      Send(connection.shared_from_this(), to, {.kind = Packet::Kind::kReset});
    return;
  }
  socket.owner_->Do([this, to, packet = std::move(packet), keep = connection.shared_from_this()] {
    Socket& receiver = keep->sockets_[to];
    if (receiver.closed_ || receiver.ended) return;
    if (packet.kind != Packet::Kind::kBytes)
      return End(*keep, to, packet.kind == Packet::Kind::kEnd);
    if (on_arrival) on_arrival(*keep, to, packet.bytes);
    receiver.inbox += packet.bytes;
    if (receiver.on_event) receiver.on_event();
  });
}

void Network::End(Connection& connection, size_t side, bool orderly) {
  Socket& socket = connection.sockets_[side];
  if (socket.ended) return;
  socket.ended = true;
  socket.orderly = orderly;
  Forget(connection);
  if (socket.on_event && !socket.closed_) socket.on_event();
}

void Network::Forget(Connection& connection) {
  if (!connection.place_) return;
  const size_t place = *std::exchange(connection.place_, std::nullopt);
  std::shared_ptr<Connection> last = std::move(connections_.back());
  connections_.pop_back();
  if (last.get() == &connection) return;
  last->place_ = place;
  connections_[place] = std::move(last);
}

void Network::WatchPatience(Socket& socket) {
  socket.watched_ = true;
  const WorldTime since = scheduler_.now();
  scheduler_.After(socket.unanswered_max, [this, since, &socket,
                                           connection = socket.connection_.shared_from_this()] {
    socket.watched_ = false;
    if (socket.ended || socket.closed_ || socket.owner_ == nullptr) return;
    const size_t side = socket.side_;
    const bool stuck = !connection->held_[side].empty() && connection->held_since_[side] <= since;
    const auto back = links_.find({connection->hosts_[1 - side], connection->hosts_[side]});
    const bool undelivered =
        back != links_.end() && back->second.cut && back->second.cut_since <= since;
    const bool is_dark = At(connection->hosts_[1 - side]).dark;
    if (!stuck && !undelivered && !is_dark) {
      if (!connection->held_[side].empty()) WatchPatience(socket);
      return;
    }
    socket.owner_->Do([this, side, connection] { End(*connection, side, false); });
  });
}

// ----------------------------------------------------------------------------------------------
// connecting

void Network::Listen(SimProcess& process, uint16_t port, Accept accept) {
  doors_[{process.host(), port}] = {&process, std::move(accept)};
}

void Network::StopListening(const SimProcess& process, uint16_t port) {
  const auto door = doors_.find({process.host(), port});
  if (door != doors_.end() && door->second.process == &process) doors_.erase(door);
}

void Network::Connect(SimProcess& from, const Endpoint& to, Duration patience, Connected done) {
  TryConnect(from, to, scheduler_.now() + patience, 0,
             std::make_shared<Connected>(std::move(done)));
}

void Network::TryConnect(SimProcess& from, const Endpoint& to, WorldTime until, int attempt,
                         std::shared_ptr<Connected> done) {
  const auto host = by_address_.find(to.host);
  const auto fail = [&](WorldTime at, Code code, const char* why) {
    from.DoAt(at,
              [done, error = Error{code, Concat(to.ToString(), ": ", why)}] { (*done)(error); });
  };
  if (host == by_address_.end())
    return fail(scheduler_.now() + 1ms, Code::kUnavailable, "no such name");
  if (!from.alive()) return;
  // A machine without power does not answer, like a link that is cut.
  const bool reaches = !IsCut(from.host(), host->second) && !IsCut(host->second, from.host());
  if (!reaches || At(host->second).dark) {
    const WorldTime again = scheduler_.now() + kSynAgain * (1 << std::min(attempt, 6));
    if (again >= until) return fail(until, Code::kTimeout, "no answer");
    from.DoAt(again, [this, &from, to, until, attempt, done] {
      TryConnect(from, to, until, attempt + 1, done);
    });
    return;
  }
  const WorldTime there = ArrivalOf(from.host(), host->second);
  if (there >= until) return fail(until, Code::kTimeout, "no answer");
  scheduler_.At(there,
                [this, &from, to, until, attempt, done] { Meet(from, to, until, attempt, done); });
}

void Network::Meet(SimProcess& from, const Endpoint& to, WorldTime until, int attempt,
                   const std::shared_ptr<Connected>& done) {
  const HostId host = by_address_.at(to.host);
  // Cut off meanwhile: retried later.
  if (IsCut(from.host(), host) || IsCut(host, from.host()) || At(host).dark)
    return TryConnect(from, to, until, attempt, done);
  const WorldTime back = ArrivalOf(host, from.host());
  const auto door = doors_.find({host, to.port});
  if (door == doors_.end()) {
    return from.DoAt(back, [done, where = to.ToString()] {
      (*done)(Error{Code::kUnavailable, Concat(where, ": connection refused")});
    });
  }
  SimProcess& server = *door->second.process;
  if (!from.alive()) return;
  const auto connection = std::make_shared<Connection>(*this, ++made_, from, server, to.port);
  connection->place_ = connections_.size();
  connections_.push_back(connection);
  for (SimProcess* end : {&from, &server}) {
    // Ended connections are removed when the list has doubled.
    if (end->connections.size() == end->connections.capacity())
      std::erase_if(end->connections, [](const auto& weak) { return weak.expired(); });
    end->connections.push_back(connection);
  }
  trace_.Note(scheduler_.now(), connection->id * 8 + 3);
  server.Do([connection, accept = door->second.accept] {
    accept(connection->socket(Connection::kServer));
  });
  from.DoAt(back, [done, connection] { (*done)(connection->socket(Connection::kClient)); });
}

// ----------------------------------------------------------------------------------------------
// what goes wrong

void Network::PowerOn(HostId host) {
  At(host).dark = false;
  // Senders retransmit, sooner or later.
  for (const auto& [weak, side] : std::exchange(At(host).undelivered, {})) {
    const std::shared_ptr<Connection> connection = weak.lock();
    if (!connection) continue;
    scheduler_.After(kRetransmit, [this, connection, side] {
      Send(connection, side, {.kind = Packet::Kind::kReset});
    });
  }
}

void Network::EndAllOf(SimProcess& process, Ending ending) {
  if (ending == Ending::kSilent) At(process.host()).dark = true;
  std::erase_if(doors_, [&](const auto& door) { return door.second.process == &process; });
  for (const auto& weak : std::exchange(process.connections, {})) {
    const std::shared_ptr<Connection> connection = weak.lock();
    if (!connection || !connection->place_) continue;
    for (const size_t side : {Connection::kClient, Connection::kServer}) {
      Socket& socket = connection->sockets_[side];
      if (socket.owner_ != &process) continue;
      if (ending == Ending::kNotified && !socket.closed_ && !socket.ended)
        Send(connection, side, {.kind = Packet::Kind::kReset});
      socket.owner_ = nullptr;
      socket.ended = true;
      socket.on_event = nullptr;
    }
    Forget(*connection);
  }
}

void Network::Cut(HostId from, HostId to) {
  Link& link = LinkOf(from, to);
  if (std::exchange(link.cut, true)) return;
  link.cut_since = scheduler_.now();
}

void Network::Heal(HostId from, HostId to) {
  Link& link = LinkOf(from, to);
  if (!std::exchange(link.cut, false)) return;
  for (const auto& [weak, side] : std::exchange(link.held, {})) {
    const auto connection = weak.lock();
    if (!connection) continue;
    for (Packet& packet : std::exchange(connection->held_[side], {}))
      Deliver(connection, 1 - side, std::move(packet));
  }
}

void Network::Clog(HostId from, HostId to, WorldTime until) {
  Link& link = LinkOf(from, to);
  link.clogged_until = std::max(link.clogged_until, until);
}

std::string Network::ResetOne(Prng& prng) {
  if (connections_.empty()) return "";
  const std::shared_ptr<Connection> connection = connections_[prng.Below(connections_.size())];
  // A device in between has lost its state. Each side notices it by itself, or when it sends.
  const uint64_t who = prng.Below(3);
  for (const size_t side : {Connection::kClient, Connection::kServer}) {
    if (who != 2 && who != side) continue;
    if (SimProcess* owner = connection->sockets_[side].owner_)
      owner->DoAt(scheduler_.now() + Latency(),
                  [this, side, connection] { End(*connection, side, false); });
  }
  return connection->ToString();
}

std::string Network::LoseUnread() {
  std::shared_ptr<Connection> most;
  const auto unread = [](Connection& connection) {
    return connection.sockets_[Connection::kServer].inbox.size();
  };
  for (const auto& connection : connections_) {
    if (unread(*connection) > (most ? unread(*most) : 0)) most = connection;
  }
  if (!most || most->sockets_[Connection::kClient].owner_ == nullptr) return "";
  most->sockets_[Connection::kClient].owner_->Do(
      [this, most] { End(*most, Connection::kClient, false); });
  return most->ToString();
}

void Network::HealAll() {
  for (auto& [ends, link] : links_) {
    link.clogged_until = std::min(link.clogged_until, scheduler_.now());
    if (link.cut) Heal(ends.first, ends.second);
  }
}

}  // namespace muster::sim
