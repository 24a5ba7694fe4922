#include "muster/etcd_v2_rendezvous.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/base64.h"
#include "base/text.h"
#include "etcd/calls.h"
#include "etcd/layout.h"
#include "muster/rendezvous_error.h"
#include "store/throw.h"

namespace muster {

namespace {

using std::chrono::milliseconds;
using Kind = EtcdOperation::Kind;

constexpr Duration kTtl = EtcdV2RendezvousBackend::kTimeToLive;
// A lease serves the writes of its first half. So no write needs a lease of its own, and what is
// written stays for at least an hour.
constexpr Duration kLeaseServes = kTtl / 2;

constexpr milliseconds kLook{5'000};

int64_t ChangedAt(const std::any& token) {
  const auto* revision = std::any_cast<int64_t>(&token);
  return revision == nullptr ? 0 : *revision;
}

}  // namespace

struct EtcdV2RendezvousBackend::Impl {
  Impl(std::shared_ptr<EtcdCalls> its_calls, std::string_view prefix, std::string_view run_id,
       milliseconds its_timeout)
      : calls(std::move(its_calls)),
        key(Concat(prefix, "/rendezvous/", run_id)),
        news(Concat(prefix, "/news/", EscapedEtcdKey(run_id), "#")),
        timeout(its_timeout) {}

  const std::shared_ptr<EtcdCalls> calls;
  const std::string key;
  const std::string news;  // what their keys begin with
  const milliseconds timeout;
  int64_t lease = 0;
  Instant lease_until = {};  // serves for new writes

  Instant Deadline() { return After(calls->clock().Now(), timeout); }

  [[noreturn]] void Fail(std::string_view what, const Error& why) {
    if (why.code == Code::kInterrupted) ThrowInterrupted(why.message);
    throw RendezvousConnectionError(
        Concat("the state of the rendezvous could not ", what, ": ", why.message));
  }

  EtcdAnswer Commit(std::string_view what, const EtcdTransaction& transaction, Instant deadline) {
    Result<EtcdAnswer> answer = calls->Commit(transaction, deadline);
    if (!answer) Fail(what, answer.error());
    return *std::move(answer);
  }

  int64_t Lease(Instant deadline) {
    const Instant now = calls->clock().Now();
    if (lease != 0 && now < lease_until) return lease;
    const Result<EtcdLease> granted = calls->Grant(kTtl, deadline);
    if (!granted) Fail("be put under a lease", granted.error());
    lease = granted->id;
    lease_until = now + kLeaseServes;
    return lease;
  }

  /// A transaction that puts something under the lease, which somebody may have revoked.
  EtcdAnswer Write(std::string_view what, EtcdTransaction transaction) {
    const Instant deadline = Deadline();
    for (int tries = 0;; ++tries) {
      transaction.then.at(0).lease = Lease(deadline);
      Result<EtcdAnswer> answer = calls->Commit(transaction, deadline);
      if (answer) return *std::move(answer);
      if (answer.error().code != Code::kNotFound || tries > 0) Fail(what, answer.error());
      lease = 0;
    }
  }

  std::string Decode(const EtcdPair& pair) const {
    Result<std::string> bytes = Base64Decode(pair.value);
    if (bytes) return *std::move(bytes);
    throw RendezvousStateError(Concat("the state of the rendezvous at ", calls->name(), ", key '",
                                      Printable(key), "', is not base64 (", bytes.error().message,
                                      "): '", Printable(pair.value, 40), "'"));
  }

  EtcdOperation Read() const { return {.kind = Kind::kGet, .range = {.begin = key}}; }
};

EtcdV2RendezvousBackend::EtcdV2RendezvousBackend(std::shared_ptr<EtcdCalls> calls,
                                                 std::string_view prefix, std::string_view run_id,
                                                 milliseconds timeout) {
  if (!calls) throw std::invalid_argument("EtcdV2RendezvousBackend: there is no connection");
  if (run_id.empty()) {
    throw std::invalid_argument("the run id is empty: it names the rendezvous and must not be");
  }
  impl_ = std::make_unique<Impl>(std::move(calls), prefix, run_id, timeout);
}

EtcdV2RendezvousBackend::~EtcdV2RendezvousBackend() = default;

std::optional<StoredState> EtcdV2RendezvousBackend::GetState() {
  const EtcdAnswer answer = impl_->Commit("be read", {.then = {impl_->Read()}}, impl_->Deadline());
  const std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
  if (pairs.empty()) return std::nullopt;
  return StoredState{impl_->Decode(pairs.front()), pairs.front().changed};
}

std::optional<StoredState> EtcdV2RendezvousBackend::SetState(std::string_view bytes,
                                                             const std::any& token) {
  const bool is_ours = !token.has_value() || std::any_cast<int64_t>(&token) != nullptr;
  if (!is_ours) {  // it fences nothing
    std::optional<StoredState> stored = GetState();
    if (!stored) return std::nullopt;
    return StoredState{std::move(stored->bytes), std::move(stored->token), false};
  }
  const EtcdAnswer answer = impl_->Write(
      "be written",
      {.conditions = {{.kind = EtcdCondition::Kind::kChangedAt,
                       .key = impl_->key,
                       .revision = ChangedAt(token)}},
       .then = {{.kind = Kind::kPut, .range = {.begin = impl_->key}, .value = Base64Encode(bytes)}},
       .otherwise = {impl_->Read()}});
  if (answer.held) return StoredState{std::string(bytes), answer.revision, true};
  const std::vector<EtcdPair>& pairs = answer.results.at(0).pairs;
  if (pairs.empty()) return std::nullopt;
  return StoredState{impl_->Decode(pairs.front()), pairs.front().changed, false};
}

void EtcdV2RendezvousBackend::Announce(std::string_view news) {
  impl_->Write("be announced", {.then = {{.kind = Kind::kPut,
                                          .range = {.begin = Concat(impl_->news, news)},
                                          .value = "1"}}});
}

bool EtcdV2RendezvousBackend::AwaitNews(std::string_view news, milliseconds time) {
  const Instant now = impl_->calls->clock().Now();
  const Instant until = After(now, std::max(time, milliseconds(1)));
  // Who waits for a moment does not wait for an etcd that is away for as long as one who writes.
  const Instant look_by = After(now, std::min(impl_->timeout, std::max(time, kLook)));
  const EtcdRange place{.begin = Concat(impl_->news, news)};
  while (true) {
    const EtcdAnswer answer =
        impl_->Commit("be waited on", {.then = {{.kind = Kind::kGet, .range = place}}}, look_by);
    if (!answer.results.at(0).pairs.empty()) return true;
    const Status come = impl_->calls->Await({place}, answer.revision + 1, until,
                                            [](const EtcdChange& each) { return !each.deleted; });
    if (come || come.error().code == Code::kTimeout) return true;
    if (come.error().code != Code::kNotFound) impl_->Fail("be waited on", come.error());
  }
}

}  // namespace muster
