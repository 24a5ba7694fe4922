#include "sim/member_watch.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace muster::sim {

namespace {

// Ten times a second by the server's clock, which may be slow; and the server's ticks.
constexpr Duration kNoticeTime = 150ms;

}  // namespace

void Inbox::Add(const MembershipEvent& event) {
  using Kind = MembershipEvent::Kind;
  if (event.kind == Kind::kMemberLost) lost += Concat(event.who, ", ");
  knows_end = knows_end || event.kind == Kind::kPlaceLost || event.kind == Kind::kClosed;
}

// A lost packet is sent again later, repeatedly: there is no time within which it arrives.
MemberWatch::MemberWatch(const Plan& plan, Checkers& checkers)
    : is_small_(plan.nodes <= kFewNodes),
      is_judged_(is_small_ && !plan.faults.loss),
      within_(kNoticeTime + plan.network.latency + plan.network.jitter),
      checkers_(checkers) {}

void MemberWatch::Look(Epoch epoch, const Coordinator::Run& run, WorldTime now, Instant at,
                       bool is_free, const InboxOf& inbox_of) {
  if (is_small_) CheckForming(epoch, run, now, is_free);
  if (!is_judged_) return;
  if (!run.state.complete || epoch != epoch_ || run.state.round != round_) seats_.clear();
  epoch_ = epoch;
  round_ = run.state.round;
  if (!run.state.complete) return;
  NoteLosses(run, now);
  const auto all = static_cast<int64_t>(run.state.wait_list.size());
  const bool are_held = run.held_until > at && run.waiting_sent == 0 && all < run.missing;
  const int64_t waiting = are_held ? 0 : all;
  for (auto& [node, seat] : seats_) {
    const Coordinator::Member& member = run.members.at(node);
    const std::optional<Inbox> inbox = inbox_of(member);
    const bool is_new = std::exchange(seat.incarnation, member.incarnation) != member.incarnation;
    if (!inbox || is_new || !inbox->listens || inbox->round != round_ || inbox->knows_end) {
      for (auto& [lost, since] : seat.unnoticed) since = now;
      seat.wrong_since.reset();
      continue;
    }
    CheckLosses(node, seat, *inbox, now);
    CheckWaiting(node, seat, *inbox, waiting, now);
  }
}

// When a round opens again, each member of the last one has joined again, left or been lost. Once
// there are enough, only lost members are waited for, and not for long.
void MemberWatch::CheckForming(Epoch epoch, const Coordinator::Run& run, WorldTime now,
                               bool is_free) {
  const RendezvousState& state = run.state;
  if (epoch != forming_epoch_) last_.clear();
  forming_epoch_ = epoch;
  if (state.complete) {
    if (std::exchange(forming_round_, state.round) == state.round && !last_.empty()) return;
    last_.clear();
    for (const auto& [node, rank] : state.participants) last_.insert(run.members.at(node).serial);
  }
  const auto is_back = [&](const auto& each) {
    return last_.contains(run.members.at(each.first).serial);
  };
  const auto back = static_cast<size_t>(std::ranges::count_if(state.participants, is_back));
  // If none of them is there from the beginning, it is a first round again.
  const bool was_complete = std::exchange(was_complete_, state.complete);
  if (was_complete && !state.complete) reforms_ = back > 0;
  if (state.participants.empty()) reforms_ = false;
  const bool can_form = !state.complete && !state.closed && reforms_ &&
                        std::ssize(state.participants) >= run.settings.min_nodes;
  const bool is_whole = back == last_.size() && run.missing == 0;
  if (!can_form || !is_free) return reforms_since_.reset();
  if (!reforms_since_ || is_whole != is_whole_) reforms_since_ = now;
  is_whole_ = is_whole;
  const Duration within = kNoticeTime + (is_whole ? Duration(0) : run.settings.forming->reform_timeout);
  if (now - *reforms_since_ <= within) return;
  checkers_.Violate(Concat("round ", state.round, " has not formed again, ",
                           Milliseconds(now - *reforms_since_), " ms after ", back, " of the ",
                           last_.size(), " members of the last one were back"));
}

// A member that is unknown now, or is another one of the same name, did not leave: it is lost.
void MemberWatch::NoteLosses(const Coordinator::Run& run, WorldTime now) {
  const auto is_in = [&](const Node& node) { return run.state.participants.contains(node); };
  for (const auto& [node, seat] : seats_) {
    if (is_in(node)) continue;
    const auto member = run.members.find(node);
    if (member != run.members.end() && member->second.serial == seat.serial) continue;
    for (auto& [other, its] : seats_) its.unnoticed.try_emplace(node.ToString(), now);
  }
  std::erase_if(seats_, [&](const auto& each) { return !is_in(each.first); });
  if (!seats_.empty()) return;  // no node joins the round later
  for (const auto& [node, rank] : run.state.participants) {
    const Coordinator::Member& member = run.members.at(node);
    seats_[node] = {.serial = member.serial, .incarnation = member.incarnation};
  }
}

void MemberWatch::CheckLosses(const Node& node, Seat& seat, const Inbox& inbox, WorldTime now) {
  std::erase_if(seat.unnoticed,
                [&](const auto& loss) { return inbox.lost.find(loss.first) != std::string::npos; });
  for (const auto& [lost, since] : seat.unnoticed) {
    if (now - since <= within_) continue;
    checkers_.Violate(Concat(node.ToString(), " was not notified that round ", round_, " has lost ",
                             lost, ", ", Milliseconds(now - since), " ms ago"));
  }
}

// Notices are sent at once when the first node waits, and when no node waits any more; in between,
// when the number has doubled. The member's number may therefore be too high, or too low by half.
void MemberWatch::CheckWaiting(const Node& node, Seat& seat, const Inbox& inbox, int64_t waiting,
                               WorldTime now) {
  const bool is_true =
      (inbox.waiting > 0) == (waiting > 0) && (waiting == 0 || waiting < 2 * inbox.waiting);
  if (is_true) return seat.wrong_since.reset();
  if (std::exchange(seat.waiting, waiting) != waiting || !seat.wrong_since) seat.wrong_since = now;
  if (now - *seat.wrong_since <= within_) return;
  checkers_.Violate(Concat("NumNodesWaiting() of ", node.ToString(), " in round ", round_, " is ",
                           inbox.waiting, "; ", waiting, " nodes have waited for ",
                           Milliseconds(now - *seat.wrong_since), " ms"));
}

}  // namespace muster::sim
