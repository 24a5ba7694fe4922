#include "sim/etcd_mail.h"

#include "base/text.h"

namespace muster::sim {

namespace {

std::string ToText(const EtcdRange& range) {
  return Concat(range.begin, range.end.empty() ? "" : Concat(" to ", range.end), " at most ",
                range.limit, range.keys_only ? " keys" : "");
}

std::string ToText(const EtcdPair& pair) {
  return Concat(pair.key, "=", pair.value, "@", pair.created, "/", pair.changed, "/", pair.lease);
}

std::string ToText(const std::vector<EtcdOperation>& operations) {
  constexpr const char* kNames[] = {"put ", "get ", "delete "};
  std::string text;
  for (const EtcdOperation& each : operations)
    text += Concat(kNames[static_cast<size_t>(each.kind)], ToText(each.range), "=", each.value,
                   " lease ", each.lease, ";");
  return text;
}

std::string ToText(const EtcdTransaction& transaction) {
  std::string text = "if ";
  for (const EtcdCondition& each : transaction.conditions)
    text += Concat(static_cast<int>(each.kind), " ", each.key, " ", each.revision, each.value, ";");
  return Concat(text, " then ", ToText(transaction.then), " else ", ToText(transaction.otherwise));
}

struct RequestText {
  std::string operator()(const EtcdRequest::Ping&) const { return "ping"; }
  std::string operator()(const EtcdTransaction& ask) const { return ToText(ask); }
  std::string operator()(const EtcdRequest::Grant& ask) const {
    return Concat("grant ", ask.ttl.count());
  }
  std::string operator()(const EtcdRequest::KeepAlive& ask) const {
    return Concat("keep ", ask.lease);
  }
  std::string operator()(const EtcdRequest::Revoke& ask) const {
    return Concat("revoke ", ask.lease);
  }
  std::string operator()(const EtcdRequest::Watch& ask) const {
    return Concat("watch ", ToText(ask.range), " from ", ask.revision);
  }
  std::string operator()(const EtcdRequest::Unwatch&) const { return "unwatch"; }
};

struct ReplyText {
  std::string operator()(const EtcdReply::Pong&) const { return "pong"; }
  std::string operator()(const Error& error) const { return error.message; }
  std::string operator()(const EtcdAnswer& answer) const {
    std::string text = Concat(answer.held ? "held " : "did not hold ", answer.revision, ":");
    for (const EtcdAnswer::Result& each : answer.results) {
      text += Concat(" ", each.count);
      for (const EtcdPair& pair : each.pairs) text += Concat(" ", ToText(pair));
    }
    return text;
  }
  std::string operator()(const EtcdLease& lease) const {
    return Concat("lease ", lease.id, " for ", lease.ttl.count());
  }
  std::string operator()(const Duration& ttl) const { return Concat("kept for ", ttl.count()); }
  std::string operator()(const Unit&) const { return "done"; }
  std::string operator()(const EtcdReply::Watching& watching) const {
    return Concat("watching at ", watching.revision);
  }
  std::string operator()(const EtcdReply::Changes& changes) const {
    std::string text;
    for (const EtcdChange& each : changes)
      text += Concat(each.deleted ? "deleted " : "changed ", ToText(each.pair), ";");
    return text;
  }
  std::string operator()(const EtcdReply::WatchEnded& end) const { return end.why.message; }
};

}  // namespace

std::string EtcdRequest::ToText() const { return Concat(id, " ", std::visit(RequestText{}, what)); }

std::string EtcdReply::ToText() const { return Concat(id, " ", std::visit(ReplyText{}, what)); }

}  // namespace muster::sim
