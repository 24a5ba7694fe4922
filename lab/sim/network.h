// The simulated network: hosts, the links between them, and connections that behave like TCP's.
//
// Bytes of one direction arrive in order or not at all. A lost packet is a late one; a link that is
// cut holds what is sent until it is healed, or until the sender's timeout ends the connection. A
// process that dies ends its connections, a machine that dies does not: the others learn of it when
// they send, once it is back.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/endpoint.h"
#include "base/prng.h"
#include "base/result.h"
#include "sim/scheduler.h"
#include "sim/trace.h"

namespace muster::sim {

enum class HostId : uint32_t {};

class SimProcess;
class Connection;

struct NetworkOptions {
  Duration latency = 100us;  ///< One way, at least.
  Duration jitter = 100us;   ///< And at most so much more.
  int64_t loss_ppm = 0;      ///< Of packets; each is sent again after kRetransmit, then after twice
                             ///< that.
  bool fragment = false;     ///< Bytes written at once may arrive in pieces.
};

/// One end of a connection. Lives as long as any owner shares it.
class Socket {
 public:
  Socket(Connection& connection, size_t side) : connection_(connection), side_(side) {}

  void Write(std::string_view bytes);
  /// This end is closed: the other one is notified.
  void Close();
  /// The owner has taken bytes out of the inbox.
  void Consumed(size_t bytes);

  /// Bytes arrived, the connection ended, or there is room again: check these.
  std::function<void()> on_event{};
  std::string inbox{};
  bool ended = false;
  bool orderly = false;  ///< The other side closed.
  bool drained = false;  ///< There was no room, and there is now. The owner resets it.
  Duration unanswered_max{};

  /// Bytes that the network has not accepted.
  size_t queued() const;
  uint64_t written() const { return written_; }
  Connection& connection() { return connection_; }
  size_t side() const { return side_; }
  SimProcess* owner() const { return owner_; }
  bool is_open() const { return !ended && !closed_ && owner_ != nullptr; }

 private:
  friend class Network;
  friend class Connection;

  Connection& connection_;
  const size_t side_;
  SimProcess* owner_ = nullptr;
  bool closed_ = false;  // by the owner
  uint64_t written_ = 0;
  uint64_t outstanding_ = 0;  // written, and not taken by the other side
  bool was_full_ = false;
  bool watched_ = false;  // its timeout is being checked
};

class Network {
 public:
  Network(Scheduler& scheduler, const NetworkOptions& options, uint64_t seed, Trace& trace);
  ~Network();

  HostId AddHost(std::string address);
  const std::string& address(HostId host) const { return At(host).address; }

  // --- For programs.

  using Accept = std::function<void(std::shared_ptr<Socket>)>;
  void Listen(SimProcess& process, uint16_t port, Accept accept);
  void StopListening(const SimProcess& process, uint16_t port);
  /// `done` is called once, in the process, unless it has died: with a socket, kUnavailable or
  /// kTimeout.
  using Connected = std::function<void(Result<std::shared_ptr<Socket>>)>;
  void Connect(SimProcess& from, const Endpoint& to, Duration patience, Connected done);

  /// How a process's connections end with it.
  enum class Ending {
    kNotified,  ///< Its system notifies the other sides.
    kSilent,    ///< Its machine has no power.
  };
  void EndAllOf(SimProcess& process, Ending ending);
  /// Its machine has power again: it refuses what is still sent to the programs of before.
  void PowerOn(HostId host);

  // --- Faults.

  void set_options(const NetworkOptions& options) { options_ = options; }
  /// From one host to another, until healed.
  void Cut(HostId from, HostId to);
  void Heal(HostId from, HostId to);
  /// Nothing arrives there before that time; then everything does.
  void Clog(HostId from, HostId to, WorldTime until);
  /// Resets one of the connections; its sides notice it at different times. Returns which one, for
  /// the trace; "": there are none.
  std::string ResetOne(Prng& prng);
  /// A client loses its connection while the server has not read what it sent: the client with most
  /// unread bytes. Returns which one.
  std::string LoseUnread();
  void HealAll();

  /// For observers: bytes are about to arrive at `side`.
  std::function<void(Connection&, size_t side, std::string_view bytes)> on_arrival{};

  /// A program is about to read what arrived.
  std::function<void(Connection&, size_t side)> before_read{};

  uint64_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Socket;
  friend class Connection;

  struct Link {
    bool cut = false;
    WorldTime cut_since{};
    WorldTime clogged_until{};
    std::vector<std::pair<std::weak_ptr<Connection>, size_t>> held;  // directions with held packets
  };
  struct Host {
    std::string address;
    bool dark = false;  // without power
    std::vector<std::pair<std::weak_ptr<Connection>, size_t>>
        undelivered{};  // sent to it meanwhile
  };
  struct Packet {
    enum class Kind { kBytes, kEnd, kReset };
    Kind kind = Kind::kBytes;
    std::string bytes{};
  };

  const Host& At(HostId host) const { return hosts_[static_cast<size_t>(host)]; }
  Host& At(HostId host) { return hosts_[static_cast<size_t>(host)]; }
  Link& LinkOf(HostId from, HostId to) { return links_[{from, to}]; }
  /// When a packet that is sent now arrives.
  WorldTime ArrivalOf(HostId from, HostId to);
  bool IsCut(HostId from, HostId to) const;
  Duration Latency();
  void Send(const std::shared_ptr<Connection>& connection, size_t from, Packet packet);
  void Deliver(const std::shared_ptr<Connection>& connection, size_t to, Packet packet);
  void Arrive(Connection& connection, size_t to, Packet packet);
  /// This side of the connection ends, for its owner.
  void End(Connection& connection, size_t side, bool orderly);
  void Forget(Connection& connection);
  /// Ends the connection if the other side has not taken the bytes in time.
  void WatchPatience(Socket& socket);
  void TryConnect(SimProcess& from, const Endpoint& to, WorldTime until, int attempt,
                  std::shared_ptr<Connected> done);
  void Meet(SimProcess& from, const Endpoint& to, WorldTime until, int attempt,
            const std::shared_ptr<Connected>& done);

  Scheduler& scheduler_;
  NetworkOptions options_;
  Prng prng_;
  Trace& trace_;
  std::vector<Host> hosts_;
  std::map<std::string, HostId, std::less<>> by_address_;
  struct Door {
    SimProcess* process;
    Accept accept;
  };
  std::map<std::pair<HostId, uint16_t>, Door> doors_;
  std::map<std::pair<HostId, HostId>, Link> links_;
  std::vector<std::shared_ptr<Connection>> connections_;  // no side has noticed their end
  uint64_t made_ = 0;
  uint64_t messages_ = 0;
  uint64_t bytes_ = 0;
};

/// Two sockets, and what is under way between them.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Network& network, uint64_t id, SimProcess& client, SimProcess& server, uint16_t port);

  const uint64_t id;
  static constexpr size_t kClient = 0;
  static constexpr size_t kServer = 1;
  std::shared_ptr<Socket> socket(size_t side);
  HostId host(size_t side) const { return hosts_[side]; }
  SimProcess* owner(size_t side) const { return sockets_[side].owner_; }
  /// "10.0.0.1:29400": as the other side sees it.
  std::string address(size_t side) const;
  std::string ToString() const;

 private:
  friend class Network;
  friend class Socket;

  Network& network_;
  std::optional<size_t> place_{};  // among the network's connections
  std::array<HostId, 2> hosts_;
  std::array<uint16_t, 2> ports_;
  std::array<Socket, 2> sockets_;
  std::array<WorldTime, 2> last_arrival_{};             // by receiving side
  std::array<std::vector<Network::Packet>, 2> held_{};  // by sending side: its link is cut
  std::array<WorldTime, 2> held_since_{};
};

}  // namespace muster::sim
