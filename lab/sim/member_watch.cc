#include "sim/member_watch.h"

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
    : is_judged_(plan.nodes <= kFewNodes && !plan.faults.loss),
      within_(kNoticeTime + plan.network.latency + plan.network.jitter),
      checkers_(checkers) {}

void MemberWatch::Look(Epoch epoch, const Coordinator::Run& run, WorldTime now,
                       const InboxOf& inbox_of) {
  if (!is_judged_) return;
  if (!run.state.complete || epoch != epoch_ || run.state.round != round_) seats_.clear();
  epoch_ = epoch;
  round_ = run.state.round;
  if (!run.state.complete) return;
  NoteLosses(run, now);
  const auto waiting = static_cast<int64_t>(run.state.wait_list.size());
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
