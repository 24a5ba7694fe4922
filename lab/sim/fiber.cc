#include "sim/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/assert.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace muster::sim {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif
constexpr size_t kPageBytes = 4096;
constexpr size_t kStacksPerSlab = 64;
// If stacks are a power of two apart, their upper ends, which are the used parts, compete for the
// same few lines of a cache. An odd number of pages, and ends at different lines, spread them.
constexpr size_t kStrideBytes = kStackBytes + kPageBytes;
constexpr size_t kLineBytes = 64;
constexpr size_t kColours = 16;
// Worlds of a few nodes find an overflow at once, by a page without access below each stack. For
// 200,000 stacks this would need more mappings than a process may have (65,530) or valgrind
// supports (30,000); the code on these stacks is the same.
constexpr size_t kGuardedSlabs = 128;
std::atomic<size_t> slabs_of_all = 0;  // threads

// Stacks are reused: a world makes thousands of fibers, a campaign millions. Only pages that are
// touched take memory.
class StackPool {
 public:
  ~StackPool() {
    for (char* slab : slabs_) munmap(slab, kStrideBytes * kStacksPerSlab);
    slabs_of_all -= slabs_.size();
  }

  char* Take() {
    if (free_.empty()) Grow();
    char* stack = free_.back();
    free_.pop_back();
    return stack;
  }

  void Give(char* stack) { free_.push_back(stack); }

 private:
  void Grow() {
    void* slab = mmap(nullptr, kStrideBytes * kStacksPerSlab, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUSTER_ASSERT(slab != MAP_FAILED);
    madvise(slab, kStrideBytes * kStacksPerSlab, MADV_NOHUGEPAGE);
    const bool guarded = slabs_of_all.fetch_add(1) < kGuardedSlabs;
    for (size_t i = kStacksPerSlab; i-- > 0;) {
      char* stack = static_cast<char*>(slab) + i * kStrideBytes;
      if (guarded) MUSTER_ASSERT(mprotect(stack, kPageBytes, PROT_NONE) == 0);
      free_.push_back(stack + kPageBytes - i % kColours * kLineBytes);
    }
    slabs_.push_back(static_cast<char*>(slab));
  }

  std::vector<char*> free_;
  std::vector<char*> slabs_;
};

StackPool& Pool() {
  thread_local StackPool pool;
  return pool;
}

// Exceptions that are being handled belong to a stack, but the runtime keeps them by thread.
// {caughtExceptions, uncaughtExceptions} in the C++ ABI.
using CaughtExceptions = std::array<void*, 2>;

void SwapExceptions(CaughtExceptions& other) {
  auto* current = reinterpret_cast<void*>(abi::__cxa_get_globals());
  CaughtExceptions mine;
  std::memcpy(&mine, current, sizeof mine);
  std::memcpy(current, &other, sizeof other);
  other = mine;
}

}  // namespace

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)

// Pushes the registers that a call must preserve, exchanges the stacks, and pops those of the other
// side. (The C library's swapcontext() makes two system calls each time.)
extern "C" void MusterSwitchStack(void** save, void* to);
asm(R"(
.text
.globl MusterSwitchStack
.type MusterSwitchStack,@function
MusterSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size MusterSwitchStack,.-MusterSwitchStack
)");

namespace {
class Switch {
 public:
  void Prepare(char* stack, void (*entry)()) {
    auto* top = reinterpret_cast<uint64_t*>(stack + kStackBytes) - 2;
    *top = reinterpret_cast<uint64_t>(entry);  // where the first switch "returns" to
    inside_ = top - 6;
    std::memset(inside_, 0, 6 * sizeof(uint64_t));
  }
  void Enter() { MusterSwitchStack(&outside_, inside_); }
  void Leave(bool) { MusterSwitchStack(&inside_, outside_); }
  void Arrived() {}

 private:
  void* outside_ = nullptr;
  void* inside_ = nullptr;
};
}  // namespace

#else

namespace {
class Switch {
 public:
  void Prepare(char* stack, void (*entry)()) {
    stack_ = stack;
    getcontext(&inside_);
    inside_.uc_stack = {.ss_sp = stack, .ss_flags = 0, .ss_size = kStackBytes};
    inside_.uc_link = nullptr;
    makecontext(&inside_, entry, 0);
  }
#if defined(__SANITIZE_ADDRESS__)
  void Enter() {
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
    swapcontext(&outside_, &inside_);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  }
  void Leave(bool for_good) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_, outer_stack_, outer_size_);
    swapcontext(&inside_, &outside_);
    Arrived();
  }
  void Arrived() { __sanitizer_finish_switch_fiber(fake_, &outer_stack_, &outer_size_); }
#else
  void Enter() { swapcontext(&outside_, &inside_); }
  void Leave(bool) { swapcontext(&inside_, &outside_); }
  void Arrived() {}
#endif

 private:
  char* stack_ = nullptr;
  ucontext_t inside_{};
  ucontext_t outside_{};
  void* fake_ = nullptr;
  const void* outer_stack_ = nullptr;
  size_t outer_size_ = 0;
};
}  // namespace

#endif

struct Fiber::Impl {
  std::function<void()> body;
  char* stack = nullptr;
  Switch stacks{};
  CaughtExceptions exceptions{};
  bool started = false;
  bool done = false;
};

namespace {
thread_local Fiber* current = nullptr;
}  // namespace

Fiber::Fiber(std::function<void()> body) : impl_(new Impl{.body = std::move(body)}) {}

Fiber::~Fiber() { MUSTER_ASSERT(impl_->done || !impl_->started); }

bool Fiber::done() const { return impl_->done; }
Fiber* Fiber::Current() { return current; }

void Fiber::Resume() {
  MUSTER_ASSERT(current == nullptr && !impl_->done);
  if (!std::exchange(impl_->started, true)) {
    impl_->stack = Pool().Take();
    impl_->stacks.Prepare(impl_->stack, [] {
      Impl& self = *current->impl_;
      self.stacks.Arrived();
      self.body();
      self.body = nullptr;
      self.done = true;
      SwapExceptions(self.exceptions);
      self.stacks.Leave(true);
    });
  }
  current = this;
  SwapExceptions(impl_->exceptions);
  impl_->stacks.Enter();
  current = nullptr;
  if (impl_->done) Pool().Give(std::exchange(impl_->stack, nullptr));
}

void Fiber::Yield() {
  MUSTER_ASSERT(current != nullptr);
  Impl& self = *current->impl_;
  SwapExceptions(self.exceptions);
  self.stacks.Leave(false);
}

}  // namespace muster::sim
