#include "store/client/file_table.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/text.h"

namespace muster {

namespace {

// User keys begin with '/': they differ from these, and from deletions.
constexpr std::string_view kUsers = "refcount/";
constexpr std::string_view kLeft = "cleanup/";
constexpr std::string_view kDeletion = "-";
// The longest key that a cut record may have. Text that is read as a length is at least 150
// million, in UTF-16 some 2 million.
constexpr uint32_t kCutKeyBytesMax = 1024 * 1024;

std::string FileKey(std::string_view key) { return Concat('/', key); }

void AppendRecord(std::string& out, std::string_view key, std::string_view value) {
  AppendInt<uint32_t>(out, static_cast<uint32_t>(key.size()));
  out += key;
  AppendInt<uint32_t>(out, static_cast<uint32_t>(value.size()));
  out += value;
}

// Takes one length-prefixed field off the front; nullopt if it is not all there.
std::optional<std::string_view> TakeField(std::string_view& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const auto size = LoadInt<uint32_t>(bytes.data());
  if (bytes.size() - 4 < size) return std::nullopt;
  const std::string_view field = bytes.substr(4, size);
  bytes.remove_prefix(4 + size);
  return field;
}

bool IsRecordKey(std::string_view key) {
  return key.starts_with('/') || key.starts_with("-/") || key == kUsers || key == kLeft;
}

// Whether `bytes`, too few for a record, can be the beginning of one. After whole records a cut one
// may end anywhere. A file without whole records must begin as a FileStore's does (its first record
// counts the users): any other file must not be truncated.
bool CanBeCutRecord(std::string_view bytes, bool is_first) {
  std::string users_size;
  AppendInt<uint32_t>(users_size, static_cast<uint32_t>(kUsers.size()));
  if (bytes.size() <= 4 && is_first) return users_size.starts_with(bytes);
  if (bytes.size() < 4) return true;
  const auto size = LoadInt<uint32_t>(bytes.data());
  bytes.remove_prefix(4);
  if (bytes.size() >= size) return IsRecordKey(bytes.substr(0, size));
  if (size > kCutKeyBytesMax) return false;
  // The whole key would be longer than what is there of it.
  const auto can_become = [&](std::string_view key) {
    return key.size() == size && key.starts_with(bytes);
  };
  return bytes.starts_with('/') || bytes.starts_with("-/") || can_become(kUsers) ||
         can_become(kLeft) || bytes.empty() || (bytes == kDeletion && size >= 2);
}

}  // namespace

Result<LockedFile> FileTable::OpenFresh(Lock lock, Missing missing, Instant deadline) {
  MUSTER_TRY(LockedFile file, files_.Open(path_, lock, missing, deadline));
  MUSTER_CHECK_OK(Replay(file, lock));
  return file;
}

Status FileTable::Replay(LockedFile& file, Lock lock) {
  MUSTER_TRY(const uint64_t size, file.Size());
  if (file.identity() != identity_ || size < replayed_) {  // another file has the name now
    entries_.clear();
    replayed_ = 0;
    identity_ = file.identity();
  }
  if (size == replayed_) return Ok();
  MUSTER_TRY(const std::string bytes, file.ReadFrom(replayed_));
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const uint64_t start = replayed_;
    const std::string_view record = rest;
    const auto key = TakeField(rest);
    const auto value = key ? TakeField(rest) : std::nullopt;
    if (value ? !IsRecordKey(*key) : !CanBeCutRecord(record, start == 0)) {
      return Error{Code::kProtocol, Concat(path_, " is not a FileStore file: at byte ", start,
                                           " stands '", Printable(record, 40), "'")};
    }
    if (!value) {
      // The lock is held, so no process is writing: a writer died here. The next one overwrites its
      // record.
      if (lock == Lock::kExclusive) return file.Truncate(start);
      return Ok();
    }
    if (key->starts_with(kDeletion)) {
      entries_.erase(std::string(key->substr(1)));
    } else {
      entries_.insert_or_assign(std::string(*key), std::string(*value));
    }
    replayed_ += record.size() - rest.size();
  }
  return Ok();
}

Status FileTable::Write(LockedFile& file, const std::string& key, std::string_view value) {
  constexpr uint64_t kFieldMax = UINT32_MAX;
  if (key.size() > kFieldMax || value.size() > kFieldMax) {
    return Error{Code::kInvalid,
                 Concat(path_, ": a key or value of over 4 GiB cannot be stored in a file")};
  }
  std::string record;
  AppendRecord(record, key, value);
  MUSTER_CHECK_OK(file.Append(record));
  replayed_ += record.size();
  entries_.insert_or_assign(key, std::string(value));
  return Ok();
}

Status FileTable::Erase(LockedFile& file, const std::string& key) {
  std::string record;
  AppendRecord(record, Concat(kDeletion, key), "");
  MUSTER_CHECK_OK(file.Append(record));
  replayed_ += record.size();
  entries_.erase(key);
  return Ok();
}

Result<int64_t> FileTable::Add(LockedFile& file, const std::string& key, int64_t delta) {
  int64_t current = 0;
  if (const auto entry = entries_.find(key); entry != entries_.end() && !entry->second.empty()) {
    MUSTER_TRY(current, ParseCounter(entry->second));
  }
  const auto sum =
      static_cast<int64_t>(static_cast<uint64_t>(current) + static_cast<uint64_t>(delta));
  MUSTER_CHECK_OK(Write(file, key, Concat(sum)));
  return sum;
}

Status FileTable::Enter(Instant deadline) {
  MUSTER_TRY(LockedFile file, OpenFresh(Lock::kExclusive, Missing::kCreate, deadline));
  MUSTER_CHECK_OK(Add(file, std::string(kUsers), 1));
  return Ok();
}

Status FileTable::Leave(int world_size, Instant deadline) {
  Result<LockedFile> file = OpenFresh(Lock::kExclusive, Missing::kFail, deadline);
  if (!file) return file.error().code == Code::kNotFound ? Ok() : Status(file.error());
  MUSTER_TRY(const int64_t left, Add(*file, std::string(kLeft), 1));
  MUSTER_TRY(const int64_t users, Add(*file, std::string(kUsers), -1));
  if (users == 0 && world_size >= 0 && left >= world_size) std::remove(path_.c_str());
  return Ok();
}

Result<Answer> FileTable::Find(std::vector<std::string_view>& keys, Instant deadline) {
  MUSTER_TRY(const LockedFile file, OpenFresh(Lock::kShared, Missing::kFail, deadline));
  std::erase_if(keys, [this](std::string_view key) { return entries_.contains(FileKey(key)); });
  if (!keys.empty()) return Error{Code::kNotFound, Printable(keys.back())};
  return Answer{};
}

Result<Answer> FileTable::Execute(const Request& request, Instant deadline) {
  const bool creates = request.op == Op::kSet || request.op == Op::kAdd ||
                       request.op == Op::kCompareSet || request.op == Op::kAppend;
  const bool writes = creates || request.op == Op::kDeleteKey;
  MUSTER_TRY(LockedFile file, OpenFresh(writes ? Lock::kExclusive : Lock::kShared,
                                        creates ? Missing::kCreate : Missing::kFail, deadline));
  const std::string key = FileKey(request.key);
  const auto entry = entries_.find(key);
  const bool is_there = entry != entries_.end();
  Answer answer;
  switch (request.op) {
    case Op::kSet:
      MUSTER_CHECK_OK(Write(file, key, request.value));
      break;
    case Op::kGet:
      if (!is_there) return Error{Code::kNotFound, Printable(request.key)};
      answer.value = entry->second;
      break;
    case Op::kAdd: {
      MUSTER_TRY(answer.number, Add(file, key, request.number));
      break;
    }
    case Op::kCompareSet:
      answer.value = is_there ? entry->second : request.expected;
      if (is_there ? answer.value != request.expected : !request.expected.empty()) break;
      MUSTER_CHECK_OK(Write(file, key, request.value));
      answer.value = request.value;
      break;
    case Op::kAppend:
      MUSTER_CHECK_OK(Write(file, key, Concat(is_there ? entry->second : "", request.value)));
      break;
    case Op::kDeleteKey:
      MUSTER_CHECK_OK(Erase(file, key));
      answer.number = 1;  // whether it was there or not
      break;
    case Op::kCheck:
      answer.number = std::ranges::all_of(
          request.keys, [this](std::string_view name) { return entries_.contains(FileKey(name)); });
      break;
    case Op::kGetNumKeys:
      answer.number = static_cast<int64_t>(entries_.size());
      break;
    case Op::kListKeys:
      for (const auto& [name, value] : entries_) {
        if (name.starts_with('/')) answer.values.push_back(name.substr(1));
      }
      break;
    default:
      return Error{Code::kUnsupported, Concat(Name(request.op), ": a file has no queues")};
  }
  return answer;
}

}  // namespace muster
