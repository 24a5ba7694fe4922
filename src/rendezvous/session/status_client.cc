#include "rendezvous/session/status_client.h"

#include <array>
#include <limits>
#include <utility>
#include <variant>

#include "base/text.h"
#include "rendezvous/wire/session_codec.h"

namespace muster {

Result<StatusClient> StatusClient::Connect(Dialer& dialer, const Endpoint& server,
                                           Instant deadline) {
  MUSTER_TRY(std::unique_ptr<BlockingStream> stream, dialer.Dial(server, deadline));
  StatusClient client(std::move(stream));
  MUSTER_CHECK_OK(client.stream_->Send(wire::SessionGreeting(true), deadline));
  MUSTER_CHECK_OK(client.ReceiveMore(deadline));
  if (client.input_.front() != wire::kSessionsSpoken) {
    return Error{Code::kProtocol,
                 Concat("the server at ", server.ToString(),
                        " has no coordinator: it is a plain TCPStore's, such as PyTorch's")};
  }
  client.input_.erase(0, 1);
  return client;
}

Status StatusClient::ReceiveMore(Instant deadline) {
  std::array<char, 64 * 1024> bytes;
  MUSTER_TRY(const size_t count, stream_->Receive(bytes, deadline));
  input_.append(bytes.data(), count);
  return Ok();
}

Result<std::string> StatusClient::NextFrame(Instant deadline) {
  while (true) {
    MUSTER_TRY(const size_t size, wire::SessionFrameSize(input_));
    if (size > 0 && input_.size() >= size) {
      std::string frame = input_.substr(0, size);
      input_.erase(0, size);
      return frame;
    }
    MUSTER_CHECK_OK(ReceiveMore(deadline));
  }
}

Result<std::vector<RunReport>> StatusClient::Request(const std::string& run_id, Instant deadline) {
  std::vector<RunReport> runs;
  while (true) {
    MUSTER_TRY(const bool more, RequestMore(run_id, runs, deadline));
    if (!more) return runs;
  }
}

Result<bool> StatusClient::RequestMore(const std::string& run_id, std::vector<RunReport>& runs,
                                       Instant deadline) {
  std::string request;
  wire::AppendSessionFrame(request, {.kind = wire::SessionRequest::Kind::kStatus,
                                     .run_id = run_id,
                                     .after = runs.empty() ? "" : runs.back().id,
                                     .names_max = std::numeric_limits<uint32_t>::max()});
  MUSTER_CHECK_OK(stream_->Send(request, deadline));
  const size_t before = runs.size();
  while (true) {
    MUSTER_TRY(const std::string frame, NextFrame(deadline));
    MUSTER_TRY(auto reply, wire::ReadSessionReply(frame));
    auto* part = std::get_if<wire::StatusPart>(&reply);
    if (part == nullptr) continue;
    // A server that announces more but sends nothing must not cause an endless loop.
    if (part->kind == wire::StatusPart::Kind::kDone) return part->more && runs.size() > before;
    if (part->kind == wire::StatusPart::Kind::kRun) runs.push_back(std::move(part->run));
    if (part->kind == wire::StatusPart::Kind::kMember && !runs.empty())
      runs.back().members.push_back(std::move(part->member));
  }
}

}  // namespace muster
