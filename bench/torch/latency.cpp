// What a block costs below Python, by whatever allocator PyTorch uses: pairs, churn, and threads that share a stream.
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/extension.h>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace blocks = c10::cuda::CUDACachingAllocator;

static double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One block is allocated and freed again and again; ns a pair.
static double pair_ns(int64_t bytes, int64_t count) {
  auto run = [&](int64_t pairs) {
    for (int64_t i = 0; i < pairs; i++) blocks::raw_delete(blocks::raw_alloc(static_cast<size_t>(bytes)));
  };
  run(count / 100 + 1);
  double begun = now_ns();
  run(count);
  return (now_ns() - begun) / static_cast<double>(count);
}

// A random one of `live` blocks (512 B to 2^most, log-uniform) is freed and another size allocated; ns for both.
static double churn_ns(int64_t live, int64_t count, int64_t most) {
  std::mt19937_64 random(1);
  auto size = [&] { return static_cast<size_t>(std::exp2(9 + static_cast<double>(most - 9) * static_cast<double>(random() % 10000) / 1e4)); };
  std::vector<void *> held(static_cast<size_t>(live));
  auto run = [&](int64_t times) {
    for (int64_t i = 0; i < times; i++) {
      void *&block = held[random() % held.size()];
      blocks::raw_delete(block);
      block = blocks::raw_alloc(size());
    }
  };
  for (void *&block : held) block = blocks::raw_alloc(size());
  run(count);
  double begun = now_ns();
  run(count);
  double ns = (now_ns() - begun) / static_cast<double>(count);
  for (void *block : held) blocks::raw_delete(block);
  return ns;
}

// `threads` do pairs on the default stream at once; wall time over all pairs.
static double threads_ns(int64_t threads, int64_t bytes, int64_t count) {
  std::vector<std::thread> team;
  double begun = now_ns();
  for (int64_t t = 0; t < threads; t++)
    team.emplace_back([=] {
      for (int64_t i = 0; i < count; i++) blocks::raw_delete(blocks::raw_alloc(static_cast<size_t>(bytes)));
    });
  for (std::thread &one : team) one.join();
  return (now_ns() - begun) / static_cast<double>(threads * count);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  auto unlocked = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def("pair_ns", &pair_ns, unlocked);
  module.def("churn_ns", &churn_ns, unlocked);
  module.def("threads_ns", &threads_ns, unlocked);
}
