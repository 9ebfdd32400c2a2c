// Out of memory: callbacks that may free some, observers, torch's text, and our diagnosis.
#include <dlfcn.h>
#include <unistd.h>

#include <sstream>

#include <c10/cuda/CUDAException.h>

#include "allocator.h"

namespace gapless {

namespace {

using c10::CachingAllocator::format_size;

std::string explain(gap_heap *heap, int device) {
  size_t needed = 0;
  if (gap_explain(heap, device, nullptr, 0, &needed) || needed == 0) return "";
  std::string text(needed + 1, '\0');
  gap_explain(heap, device, &text[0], text.size(), nullptr);
  text.resize(needed);
  return text;
}

// The few calls of the management library that say which processes are on the card; it is always loaded by hand.
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

struct Management {
  int (*init)();
  int (*device)(const char *bus_id, void **out);
  int (*processes)(void *device, unsigned *count, ProcessInfo *out);

  Management() {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    auto find = [&](const char *name) { return library ? dlsym(library, name) : nullptr; };
    init = reinterpret_cast<int (*)()>(find("nvmlInit_v2"));
    device = reinterpret_cast<int (*)(const char *, void **)>(find("nvmlDeviceGetHandleByPciBusId_v2"));
    processes =
        reinterpret_cast<int (*)(void *, unsigned *, ProcessInfo *)>(find("nvmlDeviceGetComputeRunningProcesses_v3"));
    if (init && init() != 0) init = nullptr;
  }
};

// " Process 17 has 3.00 GiB memory in use." for each, this one in torch's words; "" where nobody can tell.
std::string processes_on(int device) {
  static Management management;
  char bus_id[64] = "";
  void *card = nullptr;
  if (!management.init || !management.device || !management.processes) return "";
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) != cudaSuccess || management.device(bus_id, &card))
    return "";
  std::vector<ProcessInfo> list(128);
  auto count = static_cast<unsigned>(list.size());
  if (management.processes(card, &count, list.data())) return "";
  std::ostringstream out;
  for (unsigned i = 0; i < count; i++) {
    if (list[i].pid == static_cast<unsigned>(getpid()))
      out << "Including non-PyTorch memory, this process has " << format_size(list[i].bytes) << " memory in use. ";
    else out << "Process " << list[i].pid << " has " << format_size(list[i].bytes) << " memory in use. ";
  }
  return out.str();
}

// What private pools keep for themselves: torch counts it as allocated.
uint64_t idle_in_pools(gap_heap *heap, int device) {
  uint64_t bytes = 0;
  auto add = [](void *sum, const gap_block *block) {
    bool is_private = block->pool.first || block->pool.second;
    if (is_private && block->state == GAP_BLOCK_IDLE) *static_cast<uint64_t *>(sum) += block->bytes;
    return 0;
  };
  gap_walk(heap, device, add, &bytes);
  return bytes;
}

}  // namespace

// Throws.  The caller holds no lock.
void Allocator::out_of_memory(c10::DeviceIndex device, size_t bytes) {
  gap_usage usage = {};
  usage.size = sizeof usage;
  gap_get_usage(heap_, device, &usage);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), usage.live_bytes, usage.held_bytes,
                                   c10::Device(c10::DeviceType::CUDA, device));
  std::vector<torch_cuda::OutOfMemoryObserver> observers;
  {
    std::lock_guard<std::mutex> guard(observers_lock_);
    observers = observers_;
  }
  uint64_t limit = usage.cap_bytes ? usage.cap_bytes : usage.card_total_bytes;
  for (const auto &observer : observers)
    observer(device, static_cast<int64_t>(bytes), static_cast<size_t>(limit),
             static_cast<size_t>(usage.card_free_bytes));

  uint64_t pooled = idle_in_pools(heap_, device), allocated = usage.live_bytes + pooled;
  std::string pools = pooled ? "with " + format_size(pooled) + " allocated in private pools (e.g., CUDA Graphs), " : "";
  std::string allowed = usage.cap_bytes ? format_size(usage.cap_bytes) + " allowed; " : "";
  std::string diagnosis = explain(heap_, device);
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", format_size(bytes), ". GPU ",
                   static_cast<int>(device), " has a total capacity of ", format_size(usage.card_total_bytes),
                   " of which ", format_size(usage.card_free_bytes), " is free. ", processes_on(device), allowed,
                   "Of the allocated memory ", format_size(allocated), " is allocated by PyTorch, ", pools, "and ",
                   format_size(usage.held_bytes - std::min(usage.held_bytes, allocated)),
                   " is reserved by PyTorch but unallocated.", diagnosis.empty() ? "" : "\ngapless: ", diagnosis);
}

void Allocator::attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) {
  native_->attachOutOfMemoryObserver(observer);
  std::lock_guard<std::mutex> guard(observers_lock_);
  observers_.push_back(std::move(observer));
}

#if GAP_TORCH_AT_LEAST(12)
// Only torch's own allocator rejects requests before it asks the driver.
void Allocator::attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) {
  native_->attachOomRejectionObserver(std::move(observer));
}
#endif

}  // namespace gapless
