#include "etcd/grpc/completions.h"

#include <utility>

#include "os/posix/process.h"

namespace muster::etcd {

namespace {

using Tag = std::function<void(bool ok)>;

}  // namespace

Completions::Completions(Loop& loop) : loop_(loop), thread_([this] { Run(); }) {}

Completions::~Completions() {
  *open_ = false;
  closing_ = true;
  queue_.Shutdown();
  thread_.join();
}

void* Completions::MakeTag(std::function<void(bool ok)> then) {
  return std::make_unique<Tag>(std::move(then)).release();  // Run() takes it back
}

void Completions::Run() {
  NameThisThread("muster etcd");
  void* raw = nullptr;
  bool ok = false;
  while (queue_.Next(&raw, &ok)) {
    std::shared_ptr<Tag> tag(static_cast<Tag*>(raw));
    if (closing_) continue;
    loop_.Post([tag = std::move(tag), ok, open = open_] {
      if (*open) (*tag)(ok);
    });
  }
}

}  // namespace muster::etcd
