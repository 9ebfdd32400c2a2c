// The entry points of the Python package: see README.md.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "allocator.h"

namespace gapless {

namespace {

enum class State { kAway, kWaiting, kServing, kUninstalled, kFailed };

struct Installation {
  std::mutex lock;
  State state = State::kAway;  // guarded by lock, as are the others
  std::string conf;            // for the heap's making
  std::string settings;        // the user's own words
  std::string reason;
};

// Never destroyed: tensors may be freed after static destructors have run.
Installation &installation() {
  static auto *it = new Installation;
  return *it;
}

const char *refuse(Installation &at, const std::string &reason) {
  at.reason = reason;
  return at.reason.c_str();
}

// Memory callbacks of torch's own allocator (CUDA IPC uses one): what they free may be ours.
int run_free_callbacks(void *, int, gap_stream, uint64_t) {
  bool freed = false;
  for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
    freed = c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute() || freed;
  return freed;
}

constexpr uint8_t kPriority = 2;  // torch registers its own with 1

void register_for_accelerator(c10::Allocator *allocator) {
  c10::SetAllocator(c10::DeviceType::CUDA, allocator, kPriority);
}

}  // namespace

std::string settings_text() {
  std::lock_guard<std::mutex> guard(installation().lock);
  return installation().settings;
}

int Allocator::start(const char *conf, int count) {
  gap_heap *heap = nullptr;
  int rc = gap_heap_default(&heap);
  if (!rc && conf && *conf) rc = gap_configure(heap, conf);
  if (!rc && gap_device_count(heap) < count) rc = GAP_ENOTSUP;
  if (rc) return rc;
  gap_set_oom(heap, run_free_callbacks, nullptr);
  device_count_ = count;
  heap_ = heap;
  set_detour(kUncached, !native_->isEnabled());
  listen();
  return 0;
}

// torch calls this when CUDA starts, and once more for each later user: only the first has work to do.
void Allocator::init(int count) {
  native_->init(count);
  Installation &at = installation();
  std::lock_guard<std::mutex> guard(at.lock);
  if (at.state != State::kWaiting || heap_) return;
  int rc = start(at.conf.c_str(), count);
  at.state = rc ? State::kFailed : State::kServing;
  if (rc) {
    refuse(at, gap_strerror(rc));
    torch_cuda::allocator.store(native_);
  } else {
    register_for_accelerator(this);
  }
}

void Allocator::serve_new_blocks(bool ours) {
  set_detour(kNative, !ours);
  register_for_accelerator(ours ? static_cast<c10::Allocator *>(this) : native_);
}

namespace {

// A reason not to take over from the allocator that torch has now, or NULL.
const char *objection(CUDAAllocator *current) {
  if (current->name() != "native")
    return "another allocator was chosen first (change_current_allocator, or backend:cudaMallocAsync)";
  const char *uncached = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  return uncached && *uncached ? "PYTORCH_NO_CUDA_MEMORY_CACHING asks for no allocator at all" : nullptr;
}

const char *install_first(Installation &at) {
  CUDAAllocator *native = torch_cuda::allocator.load();
  if (const char *reason = objection(native)) return refuse(at, reason);
  the_allocator = new Allocator(native);
  if (native->initialized()) {
    int rc = the_allocator->start(at.conf.c_str(), c10::cuda::device_count());
    if (rc) {
      the_allocator = nullptr; /* the object stays: it is small, and who knows who has it */
      return refuse(at, gap_strerror(rc));
    }
    register_for_accelerator(the_allocator);
    at.state = State::kServing;
  } else {
    at.state = State::kWaiting;
  }
  torch_cuda::allocator.store(the_allocator);
  return nullptr;
}

const char *install_again(Installation &at) {
  if (torch_cuda::allocator.load() != the_allocator) return refuse(at, "another allocator was chosen since");
  the_allocator->serve_new_blocks(true);
  at.state = State::kServing;
  return nullptr;
}

}  // namespace

}  // namespace gapless

using namespace gapless;

#define SHIM_API extern "C" __attribute__((visibility("default")))

SHIM_API int gapless_torch_abi(void) { return 1; }

SHIM_API const char *gapless_torch_install(const char *conf) {
  Installation &at = installation();
  std::lock_guard<std::mutex> guard(at.lock);
  at.reason.clear();
  at.conf = conf ? conf : "";
  try {
    switch (at.state) {
      case State::kAway: return install_first(at);
      case State::kUninstalled: return install_again(at);
      case State::kFailed: return refuse(at, "gapless could not start on this machine");
      default: return nullptr;
    }
  } catch (const std::exception &error) {
    return refuse(at, error.what());
  }
}

SHIM_API const char *gapless_torch_uninstall(void) {
  Installation &at = installation();
  std::lock_guard<std::mutex> guard(at.lock);
  if (at.state == State::kServing) {
    the_allocator->serve_new_blocks(false);
    at.state = State::kUninstalled;
  } else if (at.state == State::kWaiting) {  // no block was ever made
    CUDAAllocator *ours = the_allocator;
    torch_cuda::allocator.compare_exchange_strong(ours, the_allocator->native());
    at.state = State::kAway;
  }
  return nullptr;
}

SHIM_API int gapless_torch_state(void) {
  Installation &at = installation();
  std::lock_guard<std::mutex> guard(at.lock);
  return static_cast<int>(at.state);
}

SHIM_API const char *gapless_torch_reason(void) { return installation().reason.c_str(); }

SHIM_API gap_heap *gapless_torch_heap(void) { return the_allocator ? the_allocator->heap() : nullptr; }

SHIM_API int gapless_torch_configure(const char *conf) {
  if (gap_heap *heap = gapless_torch_heap()) return gap_configure(heap, conf);
  Installation &at = installation();
  std::lock_guard<std::mutex> guard(at.lock);
  at.conf = conf;
  return 0;
}

SHIM_API void gapless_torch_settings(const char *text) {
  Installation &at = installation();
  std::lock_guard<std::mutex> guard(at.lock);
  at.settings = text;
}

SHIM_API int gapless_torch_pool_flags(uint64_t first, uint64_t second, unsigned flags, const char *tag) {
  return the_allocator ? the_allocator->pools().set_flags({first, second}, flags, tag) : GAP_ESTATE;
}

// A gap_log_fn that takes no lock of Python's: lines may come from inside the heap.
SHIM_API void gapless_torch_log(void *, int, const char *line) { std::fprintf(stderr, "gapless: %s\n", line); }

SHIM_API size_t gapless_torch_explain(int device, char *text, size_t bytes) {
  size_t needed = 0;
  if (bytes) text[0] = '\0';
  if (gap_heap *heap = gapless_torch_heap()) gap_explain(heap, device, text, bytes, &needed);
  return needed;
}
