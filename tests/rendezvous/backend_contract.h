// One contract for all backends of the dynamic rendezvous that keep its state as base64 in one
// place. The tests are in backend_contract.cc; each backend's own test file instantiates them.
#pragma once

#include <gtest/gtest.h>

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "contracts/need.h"
#include "muster/rendezvous_backend.h"

namespace muster::test {

/// Where a backend keeps its cell, empty at first, with direct access for the test.
class BackendPlace {
 public:
  virtual ~BackendPlace() = default;

  /// One more backend on the cell.
  virtual std::unique_ptr<RendezvousBackend> Open() = 0;
  /// Writes what a backend will read, unchanged.
  virtual void Put(const std::string& value) = 0;
};

struct BackendKind {
  std::string name;
  std::function<std::unique_ptr<BackendPlace>()> make;
  /// Tokens that stand for "nothing is stored".
  std::vector<std::any> no_tokens;
  /// The text of a token, for comparisons.
  std::function<std::string(const std::any&)> text;
  Need need{};
};

class BackendContract : public ::testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override {
    MUSTER_REQUIRE(GetParam().need);
    place_ = GetParam().make();
  }

  std::unique_ptr<RendezvousBackend> Open() const { return place_->Open(); }
  static std::string Text(const std::any& token) { return GetParam().text(token); }

  std::unique_ptr<BackendPlace> place_;
};

inline std::string BackendName(const ::testing::TestParamInfo<BackendKind>& info) {
  return info.param.name;
}

}  // namespace muster::test
