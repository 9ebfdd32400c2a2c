// C++: a buffer that frees itself in order of its stream, and cudaMallocAsync's shape for a program that has it everywhere.
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "device.h"

// Owns device memory for `count` elements; moves, does not copy.
template <typename T>
class buffer {
 public:
  buffer(gap_heap *heap, gap_stream stream, std::size_t count) : heap_(heap), count_(count) {
    int rc = gap_alloc(heap, 0, stream, count * sizeof(T), &addr_);
    if (rc) throw std::runtime_error(gap_strerror(rc));
  }
  buffer(buffer &&other) noexcept : heap_(other.heap_), count_(other.count_), addr_(std::exchange(other.addr_, 0)) {}
  buffer &operator=(buffer &&) = delete;
  ~buffer() { gap_free(heap_, addr_); }  // address 0 is fine

  T *data() const { return reinterpret_cast<T *>(addr_); }
  gap_addr addr() const { return addr_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  void used_on(gap_stream stream) { gap_record_stream(heap_, addr_, stream); }

 private:
  gap_heap *heap_;
  std::size_t count_;
  gap_addr addr_ = 0;
};

// A program that calls cudaMallocAsync and cudaFreeAsync gets gapless with two lines like these.
#define MALLOC_ASYNC(pointer, bytes, stream) gap_malloc(reinterpret_cast<void **>(pointer), bytes, stream)
#define FREE_ASYNC(pointer, stream) gap_mfree(pointer, stream)

static void one_line_calls(gap_stream stream) {
  float *memory;
  check(MALLOC_ASYNC(&memory, 1000 * sizeof *memory, stream), "gap_malloc");
  check(FREE_ASYNC(memory, stream), "gap_mfree");
  gap_shutdown();
}

int main(int argc, char **argv) {
  gap_heap *heap = device_open(argc, argv, nullptr);
  gap_stream stream = device_stream();
  gap_addr first;
  {
    buffer<float> weights(heap, stream, 1 << 20);
    first = weights.addr();
    device_fill(weights.addr(), 0, weights.bytes(), stream);
    buffer<float> moved(std::move(weights));
    if (moved.addr() != first) return 1;
  }
  bool reused = buffer<float>(heap, stream, 1 << 20).addr() == first;
  if (device_backend() == GAP_BACKEND_CUDA) one_line_calls(stream);  // the default heap is the driver's
  gap_heap_destroy(heap);
  if (!reused) return 1;
  std::printf("ok\n");
  return 0;
}
