#include "os/uv/uv_listener.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/limits.h"
#include "base/text.h"
#include "os/posix/owned_fd.h"
#include "os/uv/peer_shares.h"
#include "os/uv/uv_stream.h"

namespace muster {

namespace {

// The first bytes of a remote node may take this long; no peer should hold a descriptor of the
// reserve for longer.
constexpr Duration kExaminedFor = 250ms;
constexpr Duration kExamination = 10ms;
constexpr Duration kPauseFor = 100ms;
constexpr int kAcceptedPerTurn = 64;
// The address with the most connections is logged when it becomes that, and again after this time.
constexpr Duration kNamedAgain = 60s;

size_t DescriptorsMax() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 16;
}

size_t SpareDescriptors() {
  return std::clamp<size_t>(DescriptorsMax() / 16, 1, kSpareDescriptorsMax);
}

// One address may have three quarters of the descriptors that are not in reserve, however it uses
// them.
size_t ShareOfOne(size_t reserve) {
  const size_t most = DescriptorsMax();
  return std::max<size_t>(1, (most - std::min(most, reserve)) / 4 * 3);
}

}  // namespace

// The reserve consists of open descriptors, so that nothing else in the process can use them up. A
// quarter of them is for addresses other than the largest, the rest for sessions of any address.
struct UvListener::Poll {
  explicit Poll(size_t reserve) : spares_max(reserve) {}

  uv_poll_t handle{};
  OwnedFd fd;
  LogSink log;
  JudgeOpening judge;
  uint64_t shortage_logged_at = 0;
  UvLoop* loop = nullptr;
  std::unique_ptr<Timer> pause;  // while it runs, no connection is accepted
  std::function<void(OpenSocket)> accept;
  MakeRoom make_room;
  const std::shared_ptr<PeerShares> shares = std::make_shared<PeerShares>();

  const size_t spares_max;
  const size_t kept_for_others = std::max<size_t>(1, spares_max / 4);
  // Only sessions get these, whatever address other connections come from.
  const size_t kept_for_sessions = spares_max / 2;
  const size_t share_max = ShareOfOne(spares_max);
  std::vector<OwnedFd> spares;
  size_t awaited =
      0;  // descriptors that were requested from the largest address, and not freed yet
  Instant awaited_since{};
  bool hopeless = false;  // none was freed the last time
  PeerGroup named{};
  Instant named_at{};

  // Accepted into the reserve, and served if their first bytes qualify.
  struct Visitor {
    OwnedFd socket;
    PeerGroup from;
    Instant until;
  };
  std::list<Visitor> visitors;  // oldest first
  std::unique_ptr<Timer> examination;

  // At most as many as one turn may accept: the loop has other connections, and this is called
  // again.
  void AcceptSome() {
    Refill();
    for (int i = 0; i < kAcceptedPerTurn; ++i) {
      sockaddr_storage from{};
      const int peer = AcceptOne(from);
      if (peer >= 0) {
        const PeerGroup group = GroupOf(from);
        if (shares->HeldBy(group) < share_max) {
          Serve(OwnedFd(peer), group);
        } else {
          PlaceAboveShare(OwnedFd(peer), group);
        }
      } else if (errno == EMFILE || errno == ENFILE) {
        if (spares.empty()) Refill();
        if (spares.empty()) return Pause();
        // A peer that stayed in the backlog would keep the socket readable and this loop busy; one
        // that is closed at once can try again later. Existing connections are not affected, unless
        // one address holds more than all others together.
        spares.pop_back();
        OwnedFd last(AcceptOne(from));
        const bool is_backlog_empty = !last.is_open() && errno == EAGAIN;
        if (last.is_open()) Place(std::move(last), GroupOf(from));
        Refill();
        if (is_backlog_empty) return;
        // Freed descriptors go into the reserve first.
        if (IsRoomComing() && spares.size() <= kept_for_sessions) return Pause();
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return;  // EAGAIN, or an error that the next readiness event will report again
      }
    }
  }

  int AcceptOne(sockaddr_storage& from) const {
    socklen_t size = sizeof from;
    return accept4(fd.get(), reinterpret_cast<sockaddr*>(&from), &size,
                   SOCK_CLOEXEC | SOCK_NONBLOCK);
  }

  // No descriptor is left. Trying again at once would keep the loop busy.
  void Pause() {
    uv_poll_stop(&handle);
    pause = loop->After(IsRoomComing() ? kExamination : kPauseFor, [this] { Listen(); });
  }

  void Listen() {
    uv_poll_start(&handle, UV_READABLE,
                  [](uv_poll_t* poll, int, int) { static_cast<Poll*>(poll->data)->AcceptSome(); });
  }

  void Serve(OwnedFd peer, const PeerGroup& from) {
    struct Arrival {
      OwnedFd socket;
      PeerHold hold;
    };
    auto arrival = std::make_shared<Arrival>(std::move(peer), PeerHold(shares, from));
    accept([arrival](UvLoop& chosen) {
      return UvStream::Open(chosen, arrival->socket.Release(), std::move(arrival->hold));
    });
  }

  // ----------------------------------------------------------------------------------------------
  // the reserve

  // Before a connection is accepted: free descriptors belong to the reserve first.
  void Refill() {
    while (spares.size() < spares_max) {
      OwnedFd spare(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!spare.is_open()) return;
      spares.push_back(std::move(spare));
      if (awaited > 0) --awaited;
      hopeless = false;
    }
  }

  void Place(OwnedFd peer, const PeerGroup& from) {
    const PeerShares::Largest largest = shares->FindLargest();
    LogShortage(largest);
    if (Dominates(largest) && from != largest.from) {
      RequestRoom(largest.from, false);
      const size_t kept = IsRoomComing() ? kept_for_sessions / 4 * 3 : kept_for_sessions;
      if (spares.size() > kept) return Serve(std::move(peer), from);
    }
    // The last descriptors are for other addresses.
    if (spares.size() < kept_for_others && !visitors.empty()) {
      visitors.pop_front();
      Refill();
    }
    const bool is_other = from != largest.from;
    if (spares.size() < (is_other ? 1 : kept_for_others)) return;
    Receive(std::move(peer), from);
  }

  // A connection of an address that has its share is served if it opens a session, within bounds,
  // or if it replaces an unused connection of the same address.
  void PlaceAboveShare(OwnedFd peer, const PeerGroup& from) {
    LogShortage(shares->FindLargest());
    if (visitors.size() >= spares_max) visitors.pop_front();
    Receive(std::move(peer), from);
  }

  void Receive(OwnedFd peer, const PeerGroup& from) {
    visitors.push_back({std::move(peer), from, loop->Now() + kExaminedFor});
    if (!examination) examination = loop->Every(kExamination, [this] { ExamineVisitors(); });
  }

  // Whether a visitor is served although its address has its share.
  bool MayExceedShare(const Visitor& visitor, Opening opening) {
    const size_t above = shares->HeldBy(visitor.from) - share_max;
    if (opening == Opening::kSession) return above < kept_for_sessions;
    if (opening != Opening::kRequest || above >= kept_for_others) return false;
    make_room(visitor.from, above + 1, /*only_unused=*/true);
    return true;
  }

  static bool Dominates(const PeerShares::Largest& largest) {
    return largest.held > largest.total / 2;
  }

  void RequestRoom(const PeerGroup& from, bool only_unused) {
    const Instant now = loop->Now();
    if (awaited > 0 && now - awaited_since >= kPauseFor) {
      hopeless = true;
      awaited = 0;
    }
    const size_t lacking = spares_max - spares.size();
    if (lacking <= awaited) return;
    make_room(from, lacking - awaited, only_unused);
    awaited = lacking;
    awaited_since = now;
  }

  // Requests that unused connections are closed. Returns whether some may be.
  bool RequestUnused() {
    const PeerShares::Largest largest = shares->FindLargest();
    if (!Dominates(largest)) return false;
    RequestRoom(largest.from, true);
    return !hopeless;
  }

  bool IsRoomComing() const { return awaited > 0 && !hopeless; }

  // MSG_PEEK leaves the bytes in the socket: a visitor that qualifies is served like any
  // connection.
  void ExamineVisitors() {
    const Instant now = loop->Now();
    Refill();
    const PeerShares::Largest largest = shares->FindLargest();
    for (auto visitor = visitors.begin(); visitor != visitors.end();) {
      char bytes[256];
      const ssize_t count =
          recv(visitor->socket.get(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
      const bool waits = count < 0 && (errno == EAGAIN || errno == EINTR);
      const Opening opening = waits        ? Opening::kIncomplete
                              : count <= 0 ? Opening::kOther
                                           : judge({bytes, static_cast<size_t>(count)});
      const bool has_room = Dominates(largest) && visitor->from != largest.from &&
                            opening != Opening::kOther && spares.size() > kept_for_sessions;
      if (opening == Opening::kIncomplete && now < visitor->until && !has_room) {
        ++visitor;
        continue;
      }
      if (has_room) {
        Serve(std::move(visitor->socket), visitor->from);
      } else if (shares->HeldBy(visitor->from) >= share_max) {
        if (MayExceedShare(*visitor, opening)) Serve(std::move(visitor->socket), visitor->from);
      } else if (opening == Opening::kSession) {
        Serve(std::move(visitor->socket), visitor->from);
        if (spares.size() <= kept_for_others) RequestUnused();
      } else if (opening == Opening::kRequest && RequestUnused() &&
                 spares.size() + visitors.size() >
                     spares_max / 2) {  // other visitors soon free theirs
        Serve(std::move(visitor->socket), visitor->from);
      }
      visitor = visitors.erase(visitor);
    }
    Refill();
    if (visitors.empty()) examination.reset();  // destroys this function, so it must come last
  }

  void LogShortage(const PeerShares::Largest& largest) {
    if (!log) return;
    const uint64_t now = uv_hrtime();
    if (shortage_logged_at == 0 || now - shortage_logged_at > 1'000'000'000) {
      shortage_logged_at = now;
      log(LogLevel::kError,
          "out of file descriptors: new connections are refused; raise 'ulimit -n'");
    }
    if (!Dominates(largest)) return;
    if (largest.from == named && loop->Now() - named_at < kNamedAgain) return;
    named = largest.from;
    named_at = loop->Now();
    log(LogLevel::kWarning,
        Concat(NameOf(largest.from), " holds ", largest.held, " of ", largest.total,
               " connections: the least used are closed when other addresses need a descriptor"));
  }
};

UvListener::UvListener(UvLoop& loop, ListeningSocket socket, JudgeOpening judge, LogSink log,
                       size_t reserve)
    : poll_(new Poll(reserve > 0 ? reserve : SpareDescriptors())) {
  MUSTER_ASSERT(loop.IsCurrent());
  poll_->fd = OwnedFd(socket.Release());
  poll_->judge = std::move(judge);
  poll_->log = std::move(log);
  poll_->handle.data = poll_;
  poll_->loop = &loop;
  poll_->Refill();
  MUSTER_ASSERT(uv_poll_init(loop.raw(), &poll_->handle, poll_->fd.get()) == 0);
}

UvListener::~UvListener() {
  poll_->pause.reset();
  poll_->examination.reset();
  poll_->visitors.clear();
  CloseAndDelete(poll_, &Poll::handle);
}

void UvListener::Start(std::function<void(OpenSocket open)> accept, MakeRoom make_room) {
  poll_->accept = std::move(accept);
  poll_->make_room = std::move(make_room);
  poll_->Listen();
}

}  // namespace muster
