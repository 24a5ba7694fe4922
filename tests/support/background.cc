#include "support/background.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <latch>
#include <string>

namespace muster::test {

int KernelThreadId() { return static_cast<int>(syscall(SYS_gettid)); }

bool KernelThreadSleeps(int thread_id) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread_id) + "/stat");
  std::string line;
  std::getline(stat, line);
  // The state is the first letter behind the name, which is in parentheses and may contain
  // anything.
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] == 'S';
}

void InParallel(int count, const std::function<void(int index)>& work) {
  std::latch all_there(count);
  std::vector<std::future<void>> results;
  results.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    results.push_back(std::async(std::launch::async, [&all_there, &work, i] {
      all_there.arrive_and_wait();
      work(i);
    }));
  }
  for (std::future<void>& result : results) result.wait();
  for (std::future<void>& result : results) result.get();
}

}  // namespace muster::test
