// torch's allocator interface over a gapless heap.
//
// Two allocators serve at any time: ours, and torch's own beside it (`native_`), which keeps the blocks from before a late
// install, those made after an uninstall, and pools that bring their own allocator.  A call about a block goes to ours first;
// GAP_ENOTMINE sends it to torch's own.  Figures are sums.
//
// The hot path of a block is one look at `detour_` and at two flags of torch's, then gap_alloc or gap_free.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "compat.h"
#include "gapless/gapless.h"
#include "history.h"
#include "ipc.h"
#include "pools.h"

namespace gapless {

inline gap_stream handle_of(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream); }
inline gap_addr address_of(const void *ptr) { return reinterpret_cast<uintptr_t>(ptr); }
inline void *pointer_to(gap_addr addr) { return reinterpret_cast<void *>(static_cast<uintptr_t>(addr)); }

class Allocator final : public CUDAAllocator {
 public:
  explicit Allocator(CUDAAllocator *native) : native_(native) {}

  // c10::Allocator
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void *to, const void *from, std::size_t bytes) const override;

  // c10::DeviceAllocator
  bool initialized() override { return heap_ != nullptr; }
  void emptyCache(Pool pool = {0, 0}) override;
  DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;

  // blocks
  void *raw_alloc(size_t bytes) override;
  void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void *ptr) override;
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr &block, c10::cuda::CUDAStream stream) override;
  void *getBaseAllocation(void *ptr, size_t *bytes) override;
#if GAP_TORCH_AT_LEAST(13)
  c10::DataPtr allocateWithAddress(size_t bytes, void *addr) override;
#endif

  // the whole
  void init(int device_count) override;
  void enable(bool value) override;
  bool isEnabled() const override { return native_->isEnabled(); }
  std::string name() override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  void cacheInfo(c10::DeviceIndex device, size_t *largest) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex reached) override;
  cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream,
                          bool p2p_enabled) override;
#if GAP_TORCH_AT_LEAST(10)
  std::vector<torch_cuda::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override;
#endif

  // private pools
  void beginAllocateToPool(c10::DeviceIndex device, Pool pool, std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, Pool pool) override;
  void releasePool(c10::DeviceIndex device, Pool pool) override;
  int getPoolUseCount(c10::DeviceIndex device, Pool pool) override;
  void createOrIncrefPool(c10::DeviceIndex device, Pool pool, PoolOwner owner) override;
#if GAP_TORCH_AT_LEAST(11)
  void setUseOnOOM(c10::DeviceIndex device, Pool pool, bool use) override;
#else
  void setUseOnOOM(c10::DeviceIndex device, Pool pool) override;
#endif
#if GAP_TORCH_AT_LEAST(10)
  void setNoSplit(c10::DeviceIndex device, Pool pool) override;
#endif
  bool checkPoolLiveAllocations(c10::DeviceIndex device, Pool pool,
                                const std::unordered_set<void *> &expected) override;
  std::shared_ptr<AllocatorState> getCheckpointState(c10::DeviceIndex device, Pool pool) override;
  CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device, std::shared_ptr<AllocatorState> state) override;
#if GAP_TORCH_AT_LEAST(13)
  void markCaptureBegin(c10::DeviceIndex device) override { native_->markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { native_->markCaptureEnd(device); }
#endif

  // other processes
  ShareableHandle shareIpcHandle(void *ptr) override;
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;

  // history
  bool isHistoryEnabled() override { return history_.enabled(); }
#if GAP_TORCH_AT_LEAST(11)
  SnapshotInfo snapshot(Pool pool = {0, 0}, bool with_traces = true) override;
  void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t most, RecordContext when, bool clear,
                     const std::vector<std::string> &skip) override;
#else
  SnapshotInfo snapshot(Pool pool = {0, 0}) override;
  void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t most, RecordContext when,
                     bool clear) override;
#endif
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) override;
  void pushCompileContext(std::string &context) override;
  void popCompileContext() override;
#if GAP_TORCH_AT_LEAST(10)
  void setUserMetadata(const std::string &metadata) override;
  std::string getUserMetadata() override;
#endif
#if GAP_TORCH_AT_LEAST(12)
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *ptr) override;
  void attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) override;
#endif
#if GAP_TORCH_AT_LEAST(14)
  bool supportsUserMetadata() override { return true; }
  void annotateMemory(const void *ptr, const std::string &metadata) override;
#endif
  void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override;

  // what install.cpp needs
  gap_heap *heap() const { return heap_; }
  CUDAAllocator *native() const { return native_; }
  Pools &pools() { return pools_; }
  void serve_new_blocks(bool ours);        // false: torch's own does
  int start(const char *conf, int count);  // makes the heap; 0 or a GAP_E...

 private:
  // New blocks come from torch's own allocator; caching is off, which that does too; some go to pools; somebody listens;
  // some are shared with other processes.
  enum Detour : unsigned { kNative = 1, kUncached = 2, kRoutes = 4, kWatched = 8, kShared = 16 };

  bool is_uncached() const { return detour_.load(std::memory_order_relaxed) & kUncached; }
  void *serve(c10::DeviceIndex device, size_t bytes, cudaStream_t stream);
  c10::DeviceIndex current_device() const;
  Pools::Route route(c10::DeviceIndex device, cudaStream_t stream, unsigned detour);
  void *serve_slowly(c10::DeviceIndex device, size_t bytes, cudaStream_t stream, unsigned detour);
  void *rescue(int rc, c10::DeviceIndex device, size_t bytes, cudaStream_t stream, gap_pool_id pool);
  gap_addr last_resort(c10::DeviceIndex device, size_t bytes, cudaStream_t stream);
  void *borrow(c10::DeviceIndex device, size_t bytes, cudaStream_t stream, Pool pool);
  template <typename Call>
  auto ask_native(c10::DeviceIndex device, Call call) -> decltype(call());
  struct Limit {
    double fraction = 1.0;  // 1: none
    int64_t theirs = 0;     // bytes that torch's own allocator held when it was shared out
  };
  Limit limit_of(c10::DeviceIndex device);
  bool share_limit(c10::DeviceIndex device);
  bool limit_grew(c10::DeviceIndex device);
  void release(void *ptr);
  void release_slowly(void *ptr, unsigned detour);
  void release_foreign(int rc, void *ptr);
  void report_usage(void *ptr, int64_t bytes, c10::DeviceIndex device);
  void set_detour(unsigned bit, bool on);
  void listen();
  SnapshotInfo merge_snapshot(SnapshotInfo native, Pool pool, bool with_traces);
  [[noreturn]] void out_of_memory(c10::DeviceIndex device, size_t bytes);
  static void delete_block(void *ptr);

  CUDAAllocator *const native_;
  gap_heap *heap_ = nullptr;         // set once, in init
  std::atomic<unsigned> detour_{0};  // bits of Detour: why the short way is not enough
  int device_count_ = 0;
  std::mutex switching_;  // held while a bit of detour_ and what it stands for change together
  Pools pools_;
  History history_;
  Exports exports_;
  std::mutex limits_lock_;
  std::vector<Limit> limits_;  // guarded by limits_lock_; of each device, once one was set
  std::mutex observers_lock_;
  std::vector<torch_cuda::OutOfMemoryObserver> observers_;  // guarded by observers_lock_
};

// The one instance, made by the first install and never destroyed.
extern Allocator *the_allocator;

// The figures of a device that torch keeps too.
void add_stats(gap_heap *heap, int device, DeviceStats *out);
int64_t stat_of(gap_heap *heap, int device, const char *name);
// The user's own settings string, as last told by gapless_torch_settings; "" when never.
std::string settings_text();
// The segments of a device that belong to `pool` ({0, 0}: all).
void add_segments(gap_heap *heap, int device, Pool pool, const History &history, std::vector<SegmentInfo> *out);

}  // namespace gapless
