// A directory of the test's own, removed when the test is over.
#pragma once

#include <string>
#include <string_view>

namespace muster::test {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  /// A path in it; nothing is created.
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

/// The whole content of a file; empty if there is none.
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, std::string_view bytes);
bool FileExists(const std::string& path);

}  // namespace muster::test
