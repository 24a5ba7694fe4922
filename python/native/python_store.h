// A store whose operations are the methods of a Python object: an instance of a class that a user
// has derived from muster.Store, or a store of torch's. Any thread may call it, without Python's
// lock.
#pragma once

#include <nanobind/nanobind.h>

#include "interpreter.h"
#include "muster/store.h"

namespace muster::python {

class PythonStore final : public Store {
 public:
  explicit PythonStore(nb::object object) : object_(Share(std::move(object))) {}
  /// Without owning the object: another object keeps it, which Python's collector knows.
  static std::shared_ptr<PythonStore> Borrowing(nb::handle object) {
    return std::shared_ptr<PythonStore>(
        new PythonStore(SharedObject(object.ptr(), [](PyObject*) {})));
  }

  nb::object object() const { return nb::borrow(object_.get()); }

  using Store::Barrier;
  using Store::Wait;
  void Set(std::string_view key, std::string_view value) override;
  std::string Get(std::string_view key) override;
  int64_t Add(std::string_view key, int64_t delta) override;
  std::string CompareSet(std::string_view key, std::string_view expected,
                         std::string_view desired) override;
  bool Check(const std::vector<std::string>& keys) override;
  void Wait(const std::vector<std::string>& keys, milliseconds timeout) override;
  bool DeleteKey(std::string_view key) override;
  int64_t GetNumKeys() override;
  std::vector<std::string> ListKeys() override;
  void Append(std::string_view key, std::string_view suffix) override;
  std::vector<std::string> MultiGet(const std::vector<std::string>& keys) override;
  void MultiSet(const std::vector<std::string>& keys,
                const std::vector<std::string>& values) override;
  bool HasExtendedApi() const override;
  void QueuePush(std::string_view key, std::string_view value) override;
  std::string QueuePop(std::string_view key, PopMode mode = PopMode::kWait) override;
  int64_t QueueLen(std::string_view key) override;
  void Barrier(std::string_view key, int64_t world_size, milliseconds timeout) override;
  std::shared_ptr<Store> Clone() override;
  milliseconds Timeout() const override;
  void SetTimeout(milliseconds timeout) override;

 private:
  explicit PythonStore(SharedObject object) : object_(std::move(object)) {}

  SharedObject object_;
};

}  // namespace muster::python
