// The functions behind CUDAPluggableAllocator, called as torch calls them: through std::function, with std::pair and
// std::function by value, and with an exception that crosses them.  Prints a line a step that went well.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "gapless/pluggable.h"

using Stream = void *;
using PoolId = std::pair<uint64_t, uint64_t>;
using Filter = std::function<bool(Stream)>;

static std::function<void *(size_t, int, Stream)> alloc =
    reinterpret_cast<void *(*)(size_t, int, Stream)>(gap_torch_alloc);
static std::function<void(void *, size_t, int, Stream)> free_ =
    reinterpret_cast<void (*)(void *, size_t, int, Stream)>(gap_torch_free);
static std::function<void(int, PoolId, Filter)> begin =
    reinterpret_cast<void (*)(int, PoolId, Filter)>(gap_torch_begin_pool);
static std::function<void(int, PoolId)> end = reinterpret_cast<void (*)(int, PoolId)>(gap_torch_end_pool);
static std::function<void(int, PoolId)> release = reinterpret_cast<void (*)(int, PoolId)>(gap_torch_release_pool);

#define CHECK(what) \
  do { \
    if (!(what)) { \
      std::printf("line %d: %s\n", __LINE__, #what); \
      std::exit(1); \
    } \
  } while (0)

static gap_heap *heap() {
  gap_heap *out;
  CHECK(gap_heap_default(&out) == 0);
  return out;
}

static PoolId pool_of(void *memory) {
  gap_block block;
  int device;
  CHECK(gap_find_block(heap(), reinterpret_cast<uintptr_t>(memory), &block, &device) == 0);
  return {block.pool.first, block.pool.second};
}

static PoolId pool_of_new(int device = 0) {
  void *memory = alloc(1 << 20, device, nullptr);
  PoolId pool = pool_of(memory);
  free_(memory, 1 << 20, device, nullptr);
  return pool;
}

static void blocks() {
  gap_torch_init(4);
  CHECK(alloc(0, 0, nullptr) == nullptr);
  void *a = alloc(1000, 0, nullptr);
  size_t bytes = 0;
  void *base = gap_torch_base_alloc(a, &bytes);
  CHECK(base <= a && static_cast<char *>(a) + 1000 <= static_cast<char *>(base) + bytes);
  CHECK(gap_torch_base_alloc(&bytes, &bytes) == nullptr && bytes == 0);
  gap_torch_record_stream(a, nullptr);
  free_(a, 1000, 0, nullptr);
  free_(nullptr, 0, 0, nullptr);
  gap_torch_reset();
  gap_usage usage = {};
  usage.size = sizeof usage;
  CHECK(gap_get_usage(heap(), 0, &usage) == 0 && usage.live_bytes == 0 && usage.held_bytes == 0);
  std::puts("blocks");
}

// What a capture hands over: small filters live inside std::function, larger ones on the heap; both are copied and ended.
template <class Extra>
static void routes(PoolId id) {
  auto uses = std::make_shared<int>(0);
  bool capturing = true;
  Extra extra = {};
  {
    Filter filter = [uses, &capturing, extra](Stream stream) { return (void)extra, ++*uses, capturing && !stream; };
    begin(0, id, filter);
  }
  CHECK(uses.use_count() == 2);  // ours is alive, torch's is gone
  CHECK(pool_of_new() == id && *uses == 1);
  CHECK(pool_of_new(1) == PoolId(0, 0) && *uses == 1);  // another device is not asked
  capturing = false;
  CHECK(pool_of_new() == PoolId(0, 0));
  capturing = true;
  void *kept = alloc(1 << 20, 0, nullptr);
  begin(0, {id.first, id.second + 1}, [](Stream) { return true; });  // the newest is asked first
  CHECK(pool_of_new() == PoolId(id.first, id.second + 1));
  end(0, {id.first, id.second + 1});
  CHECK(pool_of_new() == id);
  end(0, id);
  CHECK(uses.use_count() == 1 && pool_of_new() == PoolId(0, 0));
  begin(0, id, [](Stream) { return true; });  // a second graph shares the pool
  end(0, id);
  release(0, id);
  CHECK(pool_of(kept) == id);
  release(0, id);
  release(0, {id.first, id.second + 1});
  free_(kept, 1 << 20, 0, nullptr);
  std::puts("routes");
}

static void thrower(const char *, const char *, uint32_t, const char *message) { throw std::runtime_error(message); }

static void failures() {
  CHECK(alloc(size_t(1) << 40, 0, nullptr) == nullptr);
  gap_torch_set_throw(thrower);
  std::string words;
  for (size_t bytes : {size_t(1) << 40, size_t(1) << 61}) {
    try {
      alloc(bytes, 0, nullptr);
    } catch (const std::runtime_error &error) {
      words = error.what();
    }
    CHECK(words.find("CUDA out of memory. Tried to allocate ") == 0 && words.size() > 60);
  }
  gap_torch_set_throw(nullptr);
  gap_torch_memory_fraction(0.25, 0);
  gap_usage usage = {};
  usage.size = sizeof usage;
  CHECK(gap_get_usage(heap(), 0, &usage) == 0 && usage.cap_bytes == usage.card_total_bytes / 4);
  std::puts("failures");
}

// A fake driver waits to be told what it is; zeros are its defaults.
static void start_driver() {
  static const char settings[256] = {};
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(driver);
  if (void *reset = dlsym(driver, "fake_cuda_reset")) reinterpret_cast<void (*)(const void *)>(reset)(settings);
}

int main() {
  start_driver();
  gap_set_log(gap_torch_log, nullptr);
  blocks();
  routes<char>({0, 7});
  routes<char[64]>({9, 0});
  failures();
  char text[200];
  for (int device = 0; device < 2; device++) CHECK(gap_check(heap(), device, text, sizeof text) == 0);
  return 0;
}
