#include "etcd/grpc/completions.h"

#include <utility>

#include "os/posix/process.h"

namespace muster::etcd {

struct Completions::Tag {
  std::function<void(bool ok)> then;
};

Completions::Completions(Loop& loop) : loop_(loop), thread_([this] { Run(); }) {}

Completions::~Completions() { Close(); }

void* Completions::MakeTag(std::function<void(bool ok)> then) {
  return std::make_unique<Tag>(Tag{std::move(then)}).release();  // Run() takes it back
}

void Completions::Close() {
  if (!thread_.joinable()) return;
  *open_ = false;
  closing_ = true;
  queue_.Shutdown();
  thread_.join();
}

void Completions::Run() {
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
