// The session of a node on its connection: the node opens it, and sends messages to the
// coordinator.
#include <optional>
#include <string>
#include <utility>

#include "base/endpoint.h"
#include "base/text.h"
#include "rendezvous/session/admission.h"
#include "server/client_connection.h"

namespace muster {

Result<size_t> ClientConnection::RunSession(std::string_view bytes) {
  using Kind = wire::SessionRequest::Kind;
  MUSTER_TRY(const size_t size, wire::SessionFrameSize(bytes));
  if (size == 0 || bytes.size() < size) return size_t{0};
  MUSTER_TRY(wire::SessionRequest request, wire::ReadSessionRequest(bytes.substr(0, size)));
  if (request.kind == Kind::kStatus) {
    MUSTER_CHECK_OK(SendStatus(request));
  } else if (request.kind == Kind::kOpen) {
    MUSTER_CHECK_OK(OpenSession(request));
  } else {
    server_.Deliver(server_.sessions_.Handle(server_.index_, id_, request));
  }
  ++finished_;
  // One segment of the network can hold thousands of requests, and each may concern all members of
  // a run: other connections have their turn after each.
  if (request.kind != Kind::kKeepAlive) ContinueLater();
  return size;
}

Status ClientConnection::SendStatus(const wire::SessionRequest& request) {
  std::string status;
  SessionHub::StatusPage page = server_.sessions_.Status(request);
  wire::AppendStatus(status, std::move(page.runs), page.more);
  if (status.size() > server_.store_.ReplyRoom()) {
    return Error{Code::kProtocol, Concat("a status of ", HumanBytes(status.size()),
                                         ", more than one reply may have")};
  }
  stream_->WriteLarge(status);
  Account();
  return Ok();
}

bool ClientConnection::HasDocumentInUse(const std::string& document) const {
  const std::optional<std::string> value = server_.store_.Peek(document, kDocumentBytesRead);
  return !value || IsDocumentInUse(*value);
}

Status ClientConnection::OpenSession(wire::SessionRequest& request) {
  if (has_session_) return Error{Code::kProtocol, "a second session on one connection"};
  const std::string document = DocumentKey(request.hello.run_id);
  if (const auto refusal = RefusalOf(request, HasDocumentInUse(document))) {
    SendPush(*refusal);
    return Ok();
  }
  has_session_ = true;
  // A node has the address of its connection, unless it sends another one.
  const Result<Endpoint> from = ParseHostPort(stream_->peer());
  Hello& hello = request.hello;
  if (hello.node.addr.empty() && from) hello.node.addr = from->host;
  const PeerGroup group = stream_->use().from;
  hello.from.assign(group.begin(), group.end());
  if (const Result<Endpoint> to = ParseHostPort(stream_->local())) hello.server_addr = to->host;
  server_.Deliver(server_.sessions_.Handle(server_.index_, id_, request));
  server_.WatchSessions();
  // Checked again: the document may have been written before the session was registered.
  if (const auto refusal = RefusalOf(request, HasDocumentInUse(document))) {
    SendPush(*refusal);
    return Error{Code::kProtocol, refusal->why};
  }
  return Ok();
}

void ClientConnection::SendPush(const Push& push) {
  std::string frame;
  wire::AppendSessionFrame(frame, push);
  Send(frame);
  Account();
}

}  // namespace muster
