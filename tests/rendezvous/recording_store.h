// A store that records its requests, for tests of the order of requests.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/hash_store.h"
#include "muster/store.h"

namespace muster::test {

/// A HashStore executes everything; each request is recorded as one text: "add p/num_members 1".
class RecordingStore final : public Store {
 public:
  explicit RecordingStore(std::shared_ptr<HashStore> inner = HashStore::Create())
      : inner_(std::move(inner)) {}

  using Store::Barrier;
  using Store::Wait;
  void Set(std::string_view key, std::string_view value) override {
    Note({"set", key});
    inner_->Set(key, value);
  }
  std::string Get(std::string_view key) override {
    Note({"get", key});
    return inner_->Get(key);
  }
  int64_t Add(std::string_view key, int64_t delta) override {
    Note({"add", key, std::to_string(delta)});
    return inner_->Add(key, delta);
  }
  std::string CompareSet(std::string_view key, std::string_view expected,
                         std::string_view desired) override {
    Note({"compare_set", key});
    return inner_->CompareSet(key, expected, desired);
  }
  bool Check(const std::vector<std::string>& keys) override {
    Note("check", keys);
    return inner_->Check(keys);
  }
  void Wait(const std::vector<std::string>& keys, milliseconds timeout) override {
    Note("wait", keys);
    inner_->Wait(keys, timeout);
  }
  bool DeleteKey(std::string_view key) override {
    Note({"delete", key});
    return inner_->DeleteKey(key);
  }
  int64_t GetNumKeys() override {
    Note({"count"});
    return inner_->GetNumKeys();
  }
  std::vector<std::string> ListKeys() override {
    Note({"list"});
    return inner_->ListKeys();
  }
  void Append(std::string_view key, std::string_view suffix) override {
    Note({"append", key});
    inner_->Append(key, suffix);
  }
  std::vector<std::string> MultiGet(const std::vector<std::string>& keys) override {
    Note("multi_get", keys);
    return inner_->MultiGet(keys);
  }
  std::shared_ptr<Store> Clone() override { return std::make_shared<RecordingStore>(inner_); }
  milliseconds Timeout() const override {
    Note({"timeout"});
    return inner_->Timeout();
  }
  void SetTimeout(milliseconds timeout) override {
    Note({"set_timeout", std::to_string(timeout.count())});
    inner_->SetTimeout(timeout);
  }

  /// The requests since the last call of this.
  std::vector<std::string> Taken() const {
    const std::lock_guard lock(mutex_);
    return std::exchange(notes_, {});
  }

 private:
  void Note(const std::vector<std::string_view>& words) const {
    std::string note;
    for (const std::string_view word : words) {
      if (!note.empty()) note += ' ';
      note += word;
    }
    const std::lock_guard lock(mutex_);
    notes_.push_back(note);
  }
  void Note(std::string_view what, const std::vector<std::string>& keys) const {
    std::vector<std::string_view> words = {what};
    words.insert(words.end(), keys.begin(), keys.end());
    Note(words);
  }

  const std::shared_ptr<HashStore> inner_;
  mutable std::mutex mutex_;
  mutable std::vector<std::string> notes_;
};

}  // namespace muster::test
