// The coordinator against the shared document. The server acts for all nodes of a run; with the
// document each node acts for itself. For the same events, the results must be the same.
//
// A story of joins, exits, deaths, closings and time is played in both worlds. After each event,
// and each quantum of time, the states are the same (round, members, ranks, wait list, spares, last
// call, closed by which node). Every living node of the shared document sees that state. Each node
// received the same results: rank, size and round, or too late, closed, not needed, nodes wait.
//
// The shared document is the real one: RendezvousDriver and SharedDocument on a cell in memory. A
// pause is interrupted and its call repeated, so everything runs in one thread. Where several nodes
// race for few places, the document lets any of them win. Here the nodes take their turns in the
// order in which the coordinator served them, which is one of the possible races.
//
// Events happen at whole quanta; limits (last call, join, keep-alive) never end at one, so nothing
// depends on whether a limit is part of its own time. In both worlds living nodes keep alive and
// check once a quantum, so every silence begins at a quantum, too.
//
// These are not played, because the worlds may differ there:
//  * A node that was declared lost and comes back. It restores itself in the document; in the
//    coordinator its session is over. So no process pauses, and dead nodes stay dead.
//  * A node that comes late and has not read the document before. It cannot know for how long
//    others have been silent; the server does. So all nodes are there from the beginning.
//  * Keep-alives less often than once a quantum. For the server any message is a sign of life, and
//    in the document only heartbeats are: a node that closes and then dies would die at two times.
//  * A connection that is broken for longer than an instant. The document has none.
//  * Requests while a join is under way: to exit, to close, to join again. The driver does one
//    thing at a time; the server accepts them. The same for an exit of a node in no round.
//  * Living on after a join was refused because of closing. Such a node stays in its list: in the
//    document until its silence is noticed, on the server as long as its session lives. So it ends,
//    as torchrun's agents do.
//  * More nodes in a complete round and its wait list than a round may have. In the document all
//    spares try to get a free place, and those that fail wait for a full round, whose members form
//    rounds because of them without end. The server promotes as many as there are places, and
//    makes spares of the others. So a story ends there.
//  * Actions of the server for a node that is dead, before this is known. In the document only
//    living nodes act. So no node dies while joining if its time to join may end before its death
//    is noticed. No node dies in the wait list or as a spare while a place may become free before
//    that. And a story ends where the last call does with only dead nodes in the round, or with
//    some and one whose time to join ends, too.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/text.h"
#include "rendezvous/core/coordinator.h"
#include "rendezvous/document/rendezvous_driver.h"
#include "rendezvous/document/shared_document.h"
#include "support/fake_cell.h"

namespace muster::testing {
namespace {

constexpr Duration kQuantum = 1s;
constexpr Instant kStart{1000s};
constexpr size_t kNodesMax = 8;

struct Setup {
  size_t nodes = 2;
  RunSettings settings{};
  Duration join_timeout{};
  bool dies_with_its_connection = false;

  RunSettings Rules() const {
    return {.min_nodes = settings.min_nodes,
            .max_nodes = settings.max_nodes,
            .last_call = settings.last_call,
            .keep_alive_interval = settings.keep_alive_interval,
            .keep_alive_max_attempt = settings.keep_alive_max_attempt,
            .join_timeout = join_timeout};
  }
  // As text, node10 comes before node7: ranks must follow PyTorch's order.
  static Node NodeAt(size_t index) { return {Concat("node", index + 7), 1, 0}; }
};

struct Event {
  enum class Kind { kJoin, kExit, kDie, kClose, kReconnect, kPass };
  Kind kind = Kind::kPass;
  size_t choice = 0;  ///< Selects one of the possible nodes.
  int quanta = 1;
};

std::string Name(Event::Kind kind) {
  static const std::map<Event::Kind, std::string> kNames = {
      {Event::Kind::kJoin, "joins"},  {Event::Kind::kExit, "exits"},
      {Event::Kind::kDie, "dies"},    {Event::Kind::kClose, "closes"},
      {Event::Kind::kPass, "passes"}, {Event::Kind::kReconnect, "connects again"}};
  return kNames.at(kind);
}

std::ostream& operator<<(std::ostream& out, const Event& event) {
  if (event.kind == Event::Kind::kPass) return out << event.quanta << " quanta pass";
  return out << "a node (" << event.choice << ") " << Name(event.kind);
}

enum class Doing { kResting, kJoining, kJoined, kDead };

std::string PlaceIn(int64_t round, int64_t rank, int64_t world_size) {
  return Concat(" rank ", rank, " of ", world_size, " in round ", round, ";");
}

/// What a node knows, in either world.
struct Knowledge {
  Doing doing = Doing::kResting;
  bool closed = false;
  bool others_wait = false;
  std::string told{};  ///< All results so far.

  void TellPlace(const std::string& place) {
    told += place;
    doing = Doing::kJoined;
    others_wait = false;
  }
  void TellTooLate() {
    told += " too late;";
    doing = Doing::kResting;
  }
  void TellClosed(bool needed) {
    told += needed ? " closed;" : " not needed;";
    doing = Doing::kDead;
  }
};

std::string Show(const RendezvousState& state) {
  std::string out = Concat("round ", state.round, state.complete ? " complete:" : " forming:");
  for (const auto& [node, rank] : state.participants) out += Concat(' ', node.addr, '=', rank);
  out += "; waiting:";
  for (const Node& node : state.wait_list) out += Concat(' ', node.addr);
  out += "; spares:";
  for (const Node& node : state.redundancy_list) out += Concat(' ', node.addr);
  if (state.deadline) out += Concat("; last call until ", static_cast<int64_t>(*state.deadline));
  if (state.complete) out += Concat("; of ", state.WorldSize());
  if (state.closed) out += Concat("; closed by ", state.closed_by);
  return out;
}

std::string Show(const Node& node, const Knowledge& knowledge) {
  static const std::map<Doing, std::string> kWords = {{Doing::kResting, "rests"},
                                                      {Doing::kJoining, "is joining"},
                                                      {Doing::kJoined, "has joined"},
                                                      {Doing::kDead, "is dead"}};
  const bool lives = knowledge.doing != Doing::kDead;
  const bool waited_for = knowledge.doing == Doing::kJoined && knowledge.others_wait;
  return Concat(node.addr, ' ', kWords.at(knowledge.doing),
                lives && knowledge.closed ? ", closed" : "", waited_for ? ", others wait" : "",
                ", received:", knowledge.told);
}

// --- The world in which a server acts for all nodes

class CoordinatorWorld {
 public:
  explicit CoordinatorWorld(const Setup& setup) : setup_(setup), clients_(setup.nodes) {
    for (size_t i = 0; i < clients_.size(); ++i) Open(i, 0);
  }

  void Happen(Event::Kind kind, size_t index) {
    Client& client = clients_[index];
    switch (kind) {
      case Event::Kind::kJoin:
        client.knows.doing = Doing::kJoining;
        return Deliver(
            [&](Pushes& out) { coordinator_.Join(client.key, setup_.join_timeout, now_, out); });
      case Event::Kind::kExit:
        return Deliver([&](Pushes& out) { coordinator_.Leave(client.key, now_, out); });
      case Event::Kind::kDie:
        return Die(client);
      case Event::Kind::kClose:
        return Deliver([&](Pushes& out) { coordinator_.Close(client.key, "why", now_, out); });
      case Event::Kind::kReconnect:
        coordinator_.Disconnect(client.key.session, now_);
        return Open(index, client.key.token);
      case Event::Kind::kPass:
        return Pass();
    }
  }

  const Coordinator::Run& run() const { return *coordinator_.Find("run"); }
  const Knowledge& knows(size_t index) const { return clients_[index].knows; }
  Instant now() const { return now_; }
  /// The nodes that the last event moved, in this order.
  const std::vector<size_t>& served() const { return served_; }
  void Forget() { served_.clear(); }

 private:
  struct Client {
    SessionKey key{};
    Knowledge knows{};
  };

  void Open(size_t index, uint64_t resume) {
    Client& client = clients_[index];
    client.key.session = SessionId{++sessions_};
    by_session_[client.key.session] = index;
    const Hello hello{.run_id = "run",
                      .node = Setup::NodeAt(index),
                      .settings = setup_.settings,
                      .resume = resume,
                      .round = client.key.round};
    Deliver([&](Pushes& out) { coordinator_.Open(client.key.session, hello, now_, out); });
  }

  void Die(Client& client) {
    client.knows.doing = Doing::kDead;
    if (setup_.dies_with_its_connection) coordinator_.Disconnect(client.key.session, now_);
  }

  void Pass() {
    now_ = now_ + kQuantum;
    for (Client& client : clients_) {
      if (client.knows.doing == Doing::kDead) continue;
      Deliver([&](Pushes& out) { coordinator_.KeepAlive(client.key, now_, out); });
    }
    Deliver([&](Pushes& out) { coordinator_.Tick(now_, out); });
  }

  template <typename Ask>
  void Deliver(const Ask& ask) {
    Pushes out;
    ask(out);
    for (const Push& push : out) {
      const size_t index = by_session_.at(push.to);
      if (clients_[index].knows.doing != Doing::kDead) Hear(index, push);
    }
  }

  void Hear(size_t index, const Push& push) {
    Client& client = clients_[index];
    switch (push.kind) {
      case Push::Kind::kOpened:
        client.key.token = push.token;
        client.key.incarnation = push.incarnation;
        return;
      case Push::Kind::kAdmitted:
        return served_.push_back(index);
      case Push::Kind::kComplete:
        return HearPlace(index, PlaceIn(push.round, push.rank, push.world_size), push.round);
      case Push::Kind::kTimedOut:
        served_.push_back(index);
        return client.knows.TellTooLate();
      case Push::Kind::kNodesWaiting:
        client.knows.others_wait = push.count > 0;
        return;
      case Push::Kind::kClosed:
        client.knows.closed = true;
        if (client.knows.doing != Doing::kJoining) return;
        client.knows.TellClosed(!push.graceful);
        return Die(client);
      case Push::Kind::kLeft:
        client.knows.doing = Doing::kResting;
        return;
      case Push::Kind::kWaiting:
      case Push::Kind::kSpare:
      case Push::Kind::kLost:
        return;
      case Push::Kind::kRefused:
      case Push::Kind::kEnded:
        RC_FAIL(Concat(Setup::NodeAt(index).addr, " lives, and was refused: ", push.why));
    }
  }

  void HearPlace(size_t index, const std::string& place, int64_t round) {
    Client& client = clients_[index];
    served_.push_back(index);
    if (round == client.key.round) {  // sent again to a node that reconnects
      RC_ASSERT(client.knows.told.ends_with(place));
    } else {
      client.key.round = round;
      client.knows.TellPlace(place);
    }
  }

  const Setup setup_;
  // Notices without a pause: the other world has none either.
  Coordinator coordinator_{{.notice_pause = 0s}};
  Instant now_ = kStart;
  uint64_t sessions_ = 0;
  std::vector<Client> clients_;
  std::map<SessionId, size_t> by_session_;
  std::vector<size_t> served_;
};

// --- The world in which nodes share a document

/// No thread sleeps on this clock: every sleep is interrupted.
class StoppedClock final : public Clock {
 public:
  struct Interrupt {};

  Instant Now() const override { return now; }
  /// The coordinator writes time in the same way.
  WallTime Wall() const override { return WallTime{0} + now.since_start; }
  void SleepUntil(Instant) override { throw Interrupt{}; }

  Instant now = kStart;
};

class DocumentWorld {
 public:
  explicit DocumentWorld(const Setup& setup) : rules_(setup.Rules()) {
    for (size_t i = 0; i < setup.nodes; ++i)
      actors_.push_back(std::make_unique<Actor>(*this, Setup::NodeAt(i)));
    Settle({});
  }

  /// `order`: the order in which nodes take their turns.
  void Happen(Event::Kind kind, size_t index, const std::vector<size_t>& order) {
    Actor& actor = *actors_[index];
    switch (kind) {
      case Event::Kind::kJoin:
        actor.deadline = clock_.now + rules_.join_timeout;
        Exit(actor);
        actor.knows.doing = Doing::kJoining;
        break;
      case Event::Kind::kExit:
        Exit(actor);
        break;
      case Event::Kind::kDie:
        actor.knows.doing = Doing::kDead;
        break;
      case Event::Kind::kClose:
        RC_ASSERT(actor.driver.Close("why")->action == Action::kFinish);
        break;
      case Event::Kind::kReconnect:
        break;
      case Event::Kind::kPass:
        clock_.now = clock_.now + kQuantum;
        break;
    }
    Settle(order);
  }

  /// As this node sees it.
  const RendezvousState& state(size_t index) const { return actors_[index]->document.state(); }
  Knowledge knows(size_t index) const {
    Knowledge knows = actors_[index]->knows;
    knows.closed = state(index).closed;
    knows.others_wait = !state(index).wait_list.empty();
    return knows;
  }

 private:
  struct Actor {
    Actor(DocumentWorld& world, const Node& node)
        // No copy is recent enough: after Settle() every node must have read everything.
        : document(world.cell_, world.rules_, world.clock_, 0s),
          driver(document, node, world.rules_, world.clock_, 7,
                 {.on_action = [this, &world](Action action, const RendezvousState&) {
                   // Called again, the driver needs its earlier result: a spare's time to join
                   // begins when there is a place.
                   if (action == Action::kRemoveFromRedundancyList)
                     deadline = world.clock_.now + world.rules_.join_timeout;
                 }}) {}

    SharedDocument document;
    RendezvousDriver driver;
    Knowledge knows{};
    Instant deadline{};
    std::optional<Place> place{};
  };

  void Exit(Actor& actor) {
    actor.place.reset();
    actor.knows.doing = Doing::kResting;
    RC_ASSERT(actor.driver.Exit(clock_.now + rules_.close_timeout)->action == Action::kFinish);
  }

  void Settle(const std::vector<size_t>& order) {
    std::vector<size_t> turns = order;
    for (size_t i = 0; i < actors_.size(); ++i) turns.push_back(i);
    for (int rounds = 0;; ++rounds) {
      RC_ASSERT(rounds < 100);
      const int64_t before = cell_.token;
      for (const size_t index : turns) TakeTurn(*actors_[index]);
      if (cell_.token == before) return;
    }
  }

  void TakeTurn(Actor& actor) {
    if (actor.knows.doing == Doing::kDead) return;
    try {
      if (actor.knows.doing == Doing::kJoining) {
        FinishJoin(actor, actor.driver.Join(actor.deadline)->action);
      } else {
        RC_ASSERT(actor.driver.KeepAlive(actor.place)->action == Action::kFinish);
      }
    } catch (const StoppedClock::Interrupt&) {  // it waits
    }
  }

  void FinishJoin(Actor& actor, Action action) {
    if (action == Action::kErrorTimeout) return actor.knows.TellTooLate();
    if (action != Action::kFinish) return actor.knows.TellClosed(action == Action::kErrorClosed);
    const RendezvousState& agreed = actor.document.shared();
    actor.place = {.round = agreed.round, .rank = agreed.participants.at(actor.driver.self())};
    actor.knows.TellPlace(PlaceIn(agreed.round, actor.place->rank, agreed.WorldSize()));
  }

  const RunSettings rules_;
  StoppedClock clock_;
  FakeCell cell_;
  std::vector<std::unique_ptr<Actor>> actors_;
};

// --- Both

class TwoWorlds {
 public:
  explicit TwoWorlds(const Setup& setup) : setup_(setup), server_(setup), document_(setup) {}

  /// False: the story ends here.
  bool Happen(const Event& event) {
    if (event.kind != Event::Kind::kPass) {
      std::vector<size_t> able;
      for (size_t i = 0; i < setup_.nodes; ++i) {
        if (IsComparable(event.kind, i)) able.push_back(i);
      }
      if (!able.empty()) Play(event.kind, able[event.choice % able.size()]);
      return SomebodyLives() && !IsCrowded();
    }
    for (int i = 0; i < event.quanta; ++i) {
      if (!NextQuantumIsComparable()) return false;
      Play(event.kind, 0);
      if (IsCrowded()) return false;
    }
    return true;
  }

 private:
  void Play(Event::Kind kind, size_t index) {
    server_.Forget();
    server_.Happen(kind, index);
    document_.Happen(kind, index, server_.served());
    const std::string state = Show(server_.run().state);
    RC_LOG() << (server_.now() - kStart) / kQuantum << ": "
             << (kind == Event::Kind::kPass ? "time" : Setup::NodeAt(index).addr) << ' '
             << Name(kind) << "  ->  " << state << '\n';
    if (IsCrowded()) return;
    for (size_t i = 0; i < setup_.nodes; ++i) {
      const Node node = Setup::NodeAt(i);
      RC_ASSERT(Show(node, document_.knows(i)) == Show(node, server_.knows(i)));
      if (Lives(i)) RC_ASSERT(Show(document_.state(i)) == state);
    }
  }

  bool IsComparable(Event::Kind kind, size_t index) const {
    const Doing doing = server_.knows(index).doing;
    if (doing == Doing::kDead) return false;
    switch (kind) {
      case Event::Kind::kJoin:
        return doing == Doing::kResting || (doing == Doing::kJoined && !ADeadOneWaits());
      case Event::Kind::kExit:
        return doing == Doing::kJoined && !ADeadOneWaits();
      case Event::Kind::kClose:
        return doing != Doing::kJoining;
      case Event::Kind::kDie:
        return MayDie(index);
      default:
        return true;
    }
  }

  bool MayDie(size_t index) const {
    const RendezvousState& state = server_.run().state;
    const Coordinator::Member& member = server_.run().members.at(Setup::NodeAt(index));
    if (!member.joining) return true;
    if (member.join_by < server_.now() + setup_.Rules().dead_after() + kQuantum) return false;
    return !state.complete ||
           !AnyDead([&](const Node& node) { return state.participants.contains(node); });
  }

  bool NextQuantumIsComparable() const {
    const Coordinator::Run& run = server_.run();
    const Instant next = server_.now() + kQuantum;
    if (!run.state.deadline || run.state.closed ||
        *run.observed.last_call_since() + setup_.settings.last_call > next) {
      return true;
    }
    // The last call is about to end.
    bool living = false, dead = false, late = false;
    for (size_t i = 0; i < setup_.nodes; ++i) {
      if (!run.state.participants.contains(Setup::NodeAt(i))) continue;
      (Lives(i) ? living : dead) = true;
      late |= run.members.at(Setup::NodeAt(i)).join_by < next;
    }
    return living && !(late && dead);
  }

  /// Whether a waiting node or a spare is dead and this is not known yet.
  bool ADeadOneWaits() const {
    const Coordinator::Run& run = server_.run();
    return AnyDead([&](const Node& node) {
      return run.members.at(node).joining &&
             (run.state.wait_list.contains(node) || run.state.redundancy_list.contains(node));
    });
  }

  /// Among the nodes whose death is not known yet.
  template <typename Which>
  bool AnyDead(const Which& which) const {
    for (size_t i = 0; i < setup_.nodes; ++i) {
      const Node node = Setup::NodeAt(i);
      if (!Lives(i) && server_.run().members.contains(node) && which(node)) {
        return true;
      }
    }
    return false;
  }

  /// Whether more nodes want a place, in the document, than there will be.
  bool IsCrowded() const {
    for (size_t i = 0; i < setup_.nodes; ++i) {
      if (!Lives(i)) continue;
      const RendezvousState& state = document_.state(i);
      return state.complete && state.participants.size() + state.wait_list.size() >
                                   static_cast<size_t>(setup_.settings.max_nodes);
    }
    return false;
  }

  bool Lives(size_t index) const { return server_.knows(index).doing != Doing::kDead; }
  bool SomebodyLives() const {
    for (size_t i = 0; i < setup_.nodes; ++i) {
      if (Lives(i)) return true;
    }
    return false;
  }

  const Setup setup_;
  CoordinatorWorld server_;
  DocumentWorld document_;
};

// --- Random stories

/// Between two quanta.
rc::Gen<Duration> ALimitBetween(int shortest, int longest) {
  return rc::gen::map(rc::gen::inRange(shortest, longest + 1),
                      [](int quanta) { return quanta * kQuantum + kQuantum / 2; });
}

Setup AnySetup(bool dies_with_its_connection) {
  Setup setup{.nodes = *rc::gen::inRange<size_t>(2, kNodesMax + 1),
              .dies_with_its_connection = dies_with_its_connection};
  RunSettings& settings = setup.settings;
  settings.forming.reset();  // a document knows nothing of it
  settings.max_nodes = *rc::gen::inRange<int64_t>(1, static_cast<int64_t>(setup.nodes) + 2);
  settings.min_nodes = *rc::gen::inRange<int64_t>(1, settings.max_nodes + 1);
  settings.last_call = *ALimitBetween(0, 5);
  // A heartbeat is due at every quantum, and no such window ends at one.
  settings.keep_alive_interval = kQuantum * 3 / 4;
  settings.keep_alive_max_attempt = *rc::gen::element<int64_t>(2, 3, 5, 6, 7);
  settings.policy = RankPolicy::kText;
  if (dies_with_its_connection) settings.grace = setup.Rules().dead_after();
  setup.join_timeout = *rc::gen::oneOf(ALimitBetween(2, 8), ALimitBetween(100, 100));
  return setup;
}

rc::Gen<Event> AnyEvent() {
  return rc::gen::exec([] {
    // Closings and deaths end a story early, so they are rare.
    return Event{.kind = *rc::gen::weightedElement<Event::Kind>({{40, Event::Kind::kJoin},
                                                                 {30, Event::Kind::kPass},
                                                                 {10, Event::Kind::kExit},
                                                                 {6, Event::Kind::kDie},
                                                                 {4, Event::Kind::kReconnect},
                                                                 {1, Event::Kind::kClose}}),
                 .choice = *rc::gen::inRange<size_t>(0, kNodesMax),
                 .quanta = *rc::gen::inRange(1, 5)};
  });
}

void PlayBoth(const Setup& setup) {
  const auto story = *rc::gen::scale(2.0, rc::gen::container<std::vector<Event>>(AnyEvent()));
  RC_LOG() << setup.nodes << " nodes, min " << setup.settings.min_nodes << ", max "
           << setup.settings.max_nodes << ", last call " << setup.settings.last_call / 1ms
           << " ms, join " << setup.join_timeout / 1ms << " ms, dead after "
           << setup.Rules().dead_after() / 1ms << " ms\n";
  TwoWorlds worlds(setup);
  for (const Event& event : story) {
    if (!worlds.Happen(event)) return;
  }
}

RC_GTEST_PROP(RendezvousEquivalenceTest, ServerAndDocumentComeToTheSameEnd, ()) {
  for (int stories = 0; stories < 2; ++stories) PlayBoth(AnySetup(false));
}

RC_GTEST_PROP(RendezvousEquivalenceTest, ServerAndDocumentAgreeOnNodesThatDieWithTheirConnections,
              ()) {
  for (int stories = 0; stories < 2; ++stories) PlayBoth(AnySetup(true));
}

}  // namespace
}  // namespace muster::testing
