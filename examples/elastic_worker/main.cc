// A worker of an elastic job. It may be killed and restarted among fewer or more others; the result
// of the job is the same.
//
//   muster run --standalone --nproc-per-node=4 --no-python elastic_worker CHECKPOINT [STEPS
//   [SECONDS]]
//
// All workers together add up the numbers from 1 on, a thousand in each of STEPS steps. A step
// takes SECONDS, so that the job can be watched. The share of each worker depends on their number;
// the sum does not. Rank 0 keeps the progress in the file CHECKPOINT, which all nodes must see.
// Finally it compares the sum: a step that was lost, or done twice, would show.
#include <muster/error.h>
#include <muster/tcp_store.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

constexpr int64_t kNumbersPerStep = 1000;

// What `muster run` (or torchrun) has put into the environment.
std::string Told(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr)
    throw std::invalid_argument(std::string(name) + " is not set: start this with muster run");
  return value;
}

// The progress so far: as text, "STEPS SUM", in the file and in the store.
struct Progress {
  int64_t steps = 0;
  int64_t sum = 0;

  std::string ToText() const { return std::to_string(steps) + " " + std::to_string(sum); }
  static Progress FromText(const std::string& text) {
    Progress progress;
    if (std::sscanf(text.c_str(), "%ld %ld", &progress.steps, &progress.sum) != 2) {
      throw std::invalid_argument("no progress: '" + text + "'");
    }
    return progress;
  }
};

Progress Load(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) ? Progress::FromText(line) : Progress{};
}

// The old state or the new one, never a part: a worker may be killed at any moment.
void Save(const std::string& path, const Progress& progress) {
  const std::string draft = path + ".new";
  if (!(std::ofstream(draft) << progress.ToText() << std::endl)) {
    throw std::runtime_error("cannot write " + draft);
  }
  std::filesystem::rename(draft, path);
}

class Worker {
 public:
  Worker(std::string checkpoint, int64_t steps, double seconds)
      : checkpoint_(std::move(checkpoint)), steps_(steps), seconds_(seconds) {}

  void Run() {
    Progress progress = Begin();
    while (progress.steps < steps_) {
      progress = Step(progress);
      if (rank_ == 0) {
        Save(checkpoint_, progress);
        std::printf("step %ld of %ld: %ld workers, sum %ld\n", progress.steps, steps_, world_,
                    progress.sum);
      }
    }
    const int64_t last = steps_ * kNumbersPerStep;
    const int64_t right = last * (last + 1) / 2;
    if (progress.sum != right) {
      throw std::runtime_error("the sum is " + std::to_string(progress.sum) + ", not " +
                               std::to_string(right));
    }
    if (rank_ == 0) std::printf("the sum of 1 to %ld is %ld, as it has to be\n", last, right);
  }

 private:
  // All workers continue from rank 0's state: only one may decide, because two could read different
  // files.
  Progress Begin() {
    if (rank_ == 0) store_.Set("resume", Load(checkpoint_).ToText());
    const Progress progress = Progress::FromText(store_.Get("resume"));
    if (progress.steps == 0) {
      std::printf("rank %ld of %ld begins\n", rank_, world_);
    } else {
      std::printf("rank %ld of %ld continues after step %ld\n", rank_, world_, progress.steps);
    }
    return progress;
  }

  // Each adds its share. After the barrier all shares are there.
  Progress Step(const Progress& before) {
    const std::string name = "step/" + std::to_string(before.steps);
    const int64_t first = before.steps * kNumbersPerStep + 1;
    int64_t share = 0;
    for (int64_t number = first + rank_; number < first + kNumbersPerStep; number += world_)
      share += number;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    store_.Add(name + "/sum", share);
    store_.Barrier(name + "/done", world_);
    return {before.steps + 1, before.sum + store_.Add(name + "/sum", 0)};
  }

  const std::string checkpoint_;
  const int64_t steps_;
  const double seconds_;
  const int64_t rank_ = std::stol(Told("RANK"));
  const int64_t world_ = std::stol(Told("WORLD_SIZE"));
  // The launcher serves it: a new, empty store for each round.
  muster::TcpStore store_{Told("MASTER_ADDR"),
                          {.port = static_cast<uint16_t>(std::stoi(Told("MASTER_PORT")))}};
};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: %s CHECKPOINT [STEPS [SECONDS]]\n", argv[0]);
    return 2;
  }
  try {
    Worker(argv[1], argc > 2 ? std::stol(argv[2]) : 20, argc > 3 ? std::stod(argv[3]) : 0.2).Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
