#include "sim/watch.h"

#include <utility>
#include <variant>

#include "rendezvous/wire/session_codec.h"

namespace muster::sim {

RunPicture PictureOf(const Coordinator::Run& run) {
  RunPicture picture{.state = run.state};
  const auto number = [](Instant when) { return when.since_start.count(); };
  for (const auto& [node, member] : run.members) {
    picture.members += Concat(
        node.ToString(), " token ", member.token, " incarnation ", member.incarnation,
        member.session ? " connected" : " broken", member.joining ? " joining by " : " in by ",
        number(member.join_by), " seen ", number(member.seen_at), " grace ",
        number(member.grace_ends), " rank ", member.place ? member.place->rank : -1, "; ");
  }
  return picture;
}

void Watch::OnArrival(Connection& connection, size_t side, std::string_view bytes) {
  if (side != Connection::kClient) return;
  Session& session = sessions_[connection.id];
  if (session.ignored) return;
  session.connection = connection.weak_from_this();
  session.pending += bytes;
  if (connection.owner(side) != nullptr) Read(session, *connection.owner(side));
}

// A session begins with a frame, or with the one-byte reply that the server has sessions; every
// other connection is a store's.
void Watch::Read(Session& session, SimProcess& node) {
  std::string_view bytes = session.pending;
  while (!bytes.empty()) {
    if (static_cast<uint8_t>(bytes[0]) != wire::kSessionOpcode) {
      if (session.greeted || bytes[0] != wire::kSessionsSpoken) {
        session.ignored = true;
        session.pending.clear();
        return;
      }
      session.greeted = true;
      bytes.remove_prefix(1);
      continue;
    }
    session.greeted = true;
    const Result<size_t> size = wire::SessionFrameSize(bytes);
    if (!size || *size == 0 || *size > bytes.size()) break;
    const auto reply = wire::ReadSessionReply(bytes.substr(0, *size));
    bytes.remove_prefix(*size);
    const Push* push = reply ? std::get_if<Push>(&*reply) : nullptr;
    if (push == nullptr) continue;
    const auto placed = placed_in_.try_emplace(&node, -1).first;
    if (push->kind == Push::Kind::kOpened) {
      session.token = push->token;
      session.incarnation = push->incarnation;
      if (!push->resumed) notified_out_(node, placed->second);
    }
    // A server that has the session resumes it.
    const bool is_opening = session.token == 0;
    if (push->kind == Push::Kind::kRefused && is_opening) notified_out_(node, placed->second);
    const bool is_present =
        push->token == session.token && push->incarnation == session.incarnation;
    if (push->kind == Push::Kind::kComplete && is_present) placed->second = push->round;
    if (push->kind == Push::Kind::kEnded && is_present) notified_out_(node, placed->second);
  }
  session.pending.erase(0, session.pending.size() - bytes.size());
}

bool Watch::IsConnected(const Coordinator::Member& member) const {
  if (!member.session) return false;
  for (const auto& [id, session] : sessions_) {
    if (session.token != member.token || session.incarnation != member.incarnation) continue;
    const std::shared_ptr<Connection> connection = session.connection.lock();
    if (connection && connection->socket(Connection::kClient)->is_open()) return true;
  }
  return false;
}

bool Watch::IsStale(const Connection& connection, const Coordinator& coordinator,
                    std::string_view run_id) const {
  const auto session = sessions_.find(connection.id);
  if (session == sessions_.end() || session->second.token == 0) return false;
  const Coordinator::Run* run = coordinator.Find(run_id);
  if (run == nullptr) return false;
  for (const auto& [node, member] : run->members) {
    if (member.token == session->second.token)
      return member.incarnation != session->second.incarnation;
  }
  return true;
}

}  // namespace muster::sim
