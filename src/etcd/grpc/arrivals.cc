#include "etcd/grpc/arrivals.h"

#include <utility>

#include "os/posix/process.h"

namespace muster::etcd {

struct Arrivals::Tag {
  std::function<void(bool ok)> then;
};

Arrivals::Arrivals(Loop& loop) : loop_(loop), thread_([this] { Run(); }) {}

Arrivals::~Arrivals() { Close(); }

void* Arrivals::Expect(std::function<void(bool ok)> then) {
  return std::make_unique<Tag>(Tag{std::move(then)}).release();  // Run() takes it back
}

void Arrivals::Close() {
  if (!thread_.joinable()) return;
  *open_ = false;
  closing_ = true;
  queue_.Shutdown();
  thread_.join();
}

void Arrivals::Run() {
  NameThisThread("muster etcd");
  void* raw = nullptr;
  bool ok = false;
  while (queue_.Next(&raw, &ok)) {
    std::shared_ptr<Tag> tag(static_cast<Tag*>(raw));
    if (closing_) continue;
    loop_.Post([tag = std::move(tag), ok, open = open_] {
      if (*open) tag->then(ok);
    });
  }
}

}  // namespace muster::etcd
