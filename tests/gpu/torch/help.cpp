// What the tests cannot do from Python: time torch's allocator calls, be a plug-in allocator, ask for checkpoints.
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

namespace allocator = c10::cuda::CUDACachingAllocator;

#define HELP extern "C" __attribute__((visibility("default")))

static double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

HELP double help_pair_ns(long bytes, long times) {
  for (int i = 0; i < 200; i++) allocator::raw_delete(allocator::raw_alloc(bytes));
  double start = now_ns();
  for (long i = 0; i < times; i++) allocator::raw_delete(allocator::raw_alloc(bytes));
  return (now_ns() - start) / times;
}

// One of `live` blocks of 512 B to 16 MiB is exchanged for one of another size, again and again.
HELP double help_churn_ns(long live, long times) {
  std::mt19937_64 random(1);
  std::vector<void *> blocks(live, nullptr);
  auto bytes = [&] { return static_cast<size_t>(std::exp2(9 + 15 * (random() % 10000) / 10000.0)); };
  for (void *&block : blocks) block = allocator::raw_alloc(bytes());
  auto step = [&] {
    void *&block = blocks[random() % live];
    allocator::raw_delete(block);
    block = allocator::raw_alloc(bytes());
  };
  for (long i = 0; i < times / 4; i++) step();
  double start = now_ns();
  for (long i = 0; i < times; i++) step();
  double each = (now_ns() - start) / times;
  for (void *block : blocks) allocator::raw_delete(block);
  return each;
}

HELP double help_threads_ns(long threads, long bytes, long times) {
  std::vector<std::thread> all;
  double start = now_ns();
  for (long k = 0; k < threads; k++)
    all.emplace_back([=] {
      for (long i = 0; i < times; i++) allocator::raw_delete(allocator::raw_alloc(bytes));
    });
  for (std::thread &thread : all) thread.join();
  return (now_ns() - start) / (times * threads);
}

// A plug-in allocator that counts.
static long plugin_live, plugin_calls;
HELP long help_plugin_live(void) { return plugin_live; }
HELP long help_plugin_calls(void) { return plugin_calls; }
HELP void *help_plugin_alloc(ssize_t bytes, int, cudaStream_t) {
  void *out = nullptr;
  plugin_calls++;
  if (cudaMalloc(&out, bytes) != cudaSuccess) return nullptr;
  plugin_live += bytes;
  return out;
}
HELP void help_plugin_free(void *ptr, ssize_t bytes, int, cudaStream_t) {
  plugin_live -= bytes;
  cudaFree(ptr);
}

// A tracker as NCCL's and the profilers' are.
static std::atomic<long> tracked_blocks, tracked_segments;
HELP void help_track(void) {
  allocator::attachAllocatorTraceTracker([](const allocator::TraceEntry &entry) {
    using Entry = allocator::TraceEntry;
    if (entry.action_ == Entry::ALLOC || entry.action_ == Entry::FREE_COMPLETED) tracked_blocks++;
    if (entry.action_ == Entry::SEGMENT_ALLOC || entry.action_ == Entry::SEGMENT_MAP) tracked_segments++;
  });
}
HELP long help_tracked_blocks(void) { return tracked_blocks; }
HELP long help_tracked_segments(void) { return tracked_segments; }

// Memory that is given up when there is no other, as CUDA IPC does with what other processes have let go.
static std::atomic<void *> spare;
struct GiveSpare : c10::FreeMemoryCallback {
  bool Execute() override {
    void *block = spare.exchange(nullptr);
    if (block) allocator::raw_delete(block);
    return block != nullptr;
  }
};
namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("gapless_test_spare", GiveSpare)
}
HELP void help_keep_spare(long bytes) { spare = allocator::raw_alloc(static_cast<size_t>(bytes)); }
HELP int help_has_spare(void) { return spare != nullptr; }

// The registry of device allocators, which torch.accelerator looks at.
HELP int help_is_registered(void) { return c10::GetAllocator(c10::DeviceType::CUDA) == allocator::get(); }
