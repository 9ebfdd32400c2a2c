// Blocks, streams, limits: see allocator.h.
#include "allocator.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>

#include "gapless/restore.h"

namespace gapless {

Allocator *the_allocator = nullptr;

void Allocator::delete_block(void *ptr) { the_allocator->release(ptr); }

// Asking for the current device costs more than a block (1.5 us in a thread that has no context yet), and where there is
// only one there is nothing to ask.
inline c10::DeviceIndex Allocator::current_device() const {
  c10::DeviceIndex device = 0;
  if (device_count_ != 1) C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

static inline cudaStream_t current_stream(c10::DeviceIndex device) {
  c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device);
  return stream.id() == 0 ? nullptr : stream.stream();  // 0: the default stream
}

void Allocator::set_detour(unsigned bit, bool on) {
  if (on) detour_.fetch_or(bit);
  else detour_.fetch_and(~bit);
}

// ---- allocation ----

inline void *Allocator::serve(c10::DeviceIndex device, size_t bytes, cudaStream_t stream) {
  unsigned detour = detour_.load(std::memory_order_relaxed) & (kNative | kRoutes | kWatched);
  if (C10_UNLIKELY(detour || c10::impl::GPUTrace::haveState || c10::memoryProfilingEnabled()))
    return serve_slowly(device, bytes, stream, detour);
  gap_addr addr;
  int rc = gap_alloc(heap_, device, handle_of(stream), bytes, &addr);
  if (C10_UNLIKELY(rc)) return rescue(rc, device, bytes, stream, {0, 0});
  return pointer_to(addr);
}

// A pool is served by who served it first, whoever serves new blocks now.
Pools::Route Allocator::route(c10::DeviceIndex device, cudaStream_t stream, unsigned detour) {
  Pools::Route route = {false, Pools::Server::kOurs, {0, 0}};
  if (detour & kRoutes) route = pools_.route(device, stream);
  if (!route.found && (detour & kNative)) route.server = Pools::Server::kNative;
  return route;
}

// Somebody watches, or the request goes to a pool or to torch's own allocator.
void *Allocator::serve_slowly(c10::DeviceIndex device, size_t bytes, cudaStream_t stream, unsigned detour) {
  Pools::Route to = route(device, stream, detour);
  if (to.server == Pools::Server::kNative)
    return ask_native(device, [&] { return native_->raw_alloc_with_stream(bytes, stream); });
  gap_pool_id pool = id_of(to.pool);
  gap_addr addr = 0;
  void *ptr;
  {
    History::Call call(history_, RecordContext::STATE, 0);
    int rc = gap_alloc_in(heap_, device, handle_of(stream), pool, bytes, &addr);
    ptr = rc ? rescue(rc, device, bytes, stream, pool) : pointer_to(addr);
  }
  report_usage(ptr, 1, device);
  if (const auto *interpreter = c10::impl::GPUTrace::get_trace())
    (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
  return ptr;
}

// Pools that allow it serve requests outside pools when nobody else does.
gap_addr Allocator::last_resort(c10::DeviceIndex device, size_t bytes, cudaStream_t stream) {
  gap_addr addr = 0;
  for (const Pool &pool : pools_.last_resorts(device, Pools::Server::kOurs))
    if (!gap_alloc_in(heap_, device, handle_of(stream), id_of(pool), bytes, &addr)) return addr;
  for (const Pool &pool : pools_.last_resorts(device, Pools::Server::kNative))
    if (void *ptr = borrow(device, bytes, stream, pool)) return address_of(ptr);
  return 0;
}

// A block of a pool that torch's own allocator serves; nullptr: that has none, or another thread's requests go there now.
void *Allocator::borrow(c10::DeviceIndex device, size_t bytes, cudaStream_t stream, Pool pool) {
  auto self = std::this_thread::get_id();
  void *ptr = nullptr;
  try {
    native_->beginAllocateToPool(device, pool, [self](cudaStream_t) { return std::this_thread::get_id() == self; });
  } catch (const c10::Error &) {
    return nullptr;
  }
  try {
    ptr = ask_native(device, [&] { return native_->raw_alloc_with_stream(bytes, stream); });
  } catch (const c10::Error &) {  // out of memory, or its message could not be made
  }
  native_->endAllocateToPool(device, pool);
  native_->releasePool(device, pool);
  return ptr;
}

// The heap said no.
void *Allocator::rescue(int rc, c10::DeviceIndex device, size_t bytes, cudaStream_t stream, gap_pool_id pool) {
  TORCH_CHECK_WITH(OutOfMemoryError, rc != GAP_ETOOBIG, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  TORCH_CHECK(rc == GAP_ENOMEM, "gapless: CUDA memory cannot be allocated: ", gap_strerror(rc));
  gap_addr addr = 0;
  if (limit_grew(device) && !gap_alloc_in(heap_, device, handle_of(stream), pool, bytes, &addr))
    return pointer_to(addr);
  bool outside = !pool.first && !pool.second;
  if (outside) addr = last_resort(device, bytes, stream);
  if (addr) return pointer_to(addr);
  out_of_memory(device, bytes);
}

// torch.profiler's memory view.  `sign` 1: the block was allocated, -1: it is about to be freed.
void Allocator::report_usage(void *ptr, int64_t sign, c10::DeviceIndex device) {
  if (!c10::memoryProfilingEnabled()) return;
  gap_block block = {};
  if (gap_find_block(heap_, address_of(ptr), &block, nullptr)) return;
  auto bytes = static_cast<int64_t>(block.bytes);
  int64_t live = stat_of(heap_, device, "allocated_bytes.all.current") - (sign < 0 ? bytes : 0);
  int64_t held = stat_of(heap_, device, "reserved_bytes.all.current");
  c10::reportMemoryUsageToProfiler(ptr, sign * bytes, static_cast<size_t>(live), static_cast<size_t>(held),
                                   c10::Device(c10::DeviceType::CUDA, device));
}

c10::DataPtr Allocator::allocate(size_t bytes) {
  c10::DeviceIndex device = current_device();
  cudaStream_t stream = current_stream(device);
  unsigned detour = detour_.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(detour & (kNative | kUncached | kRoutes))) {
    bool native = (detour & kUncached) || route(device, stream, detour).server == Pools::Server::kNative;
    if (native)  // with its own deleter, by which record_stream knows its blocks
      return ask_native(device, [&] { return native_->allocate(bytes); });
  }
  void *ptr = bytes ? serve(device, bytes, stream) : nullptr;
  return {ptr, ptr, &Allocator::delete_block, c10::Device(c10::DeviceType::CUDA, device)};
}

void *Allocator::raw_alloc(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (C10_UNLIKELY(is_uncached())) return native_->raw_alloc(bytes);
  c10::DeviceIndex device = current_device();
  return serve(device, bytes, current_stream(device));
}

void *Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return nullptr;
  if (C10_UNLIKELY(is_uncached())) return native_->raw_alloc_with_stream(bytes, stream);
  return serve(current_device(), bytes, stream);
}

#if GAP_TORCH_AT_LEAST(13)
c10::DataPtr Allocator::allocateWithAddress(size_t bytes, void *addr) {
  c10::DeviceIndex device = current_device();
  int rc = gap_alloc_at(heap_, address_of(addr), bytes);
  if (rc == GAP_ENOTMINE) return native_->allocateWithAddress(bytes, addr);
  TORCH_CHECK(rc == 0, "gapless: no block can be made at ", addr, ": ", gap_strerror(rc));
  return {addr, addr, &Allocator::delete_block, c10::Device(c10::DeviceType::CUDA, device)};
}
#endif

// ---- free ----

inline void Allocator::release(void *ptr) {
  if (!ptr) return;
  unsigned detour = detour_.load(std::memory_order_relaxed) & (kWatched | kShared);
  if (C10_UNLIKELY(detour || c10::impl::GPUTrace::haveState || c10::memoryProfilingEnabled()))
    return release_slowly(ptr, detour);
  int rc = gap_free(heap_, address_of(ptr));
  if (C10_UNLIKELY(rc)) release_foreign(rc, ptr);
}

void Allocator::release_slowly(void *ptr, unsigned detour) {
  gap_block block = {};
  int device = 0;
  if (gap_find_block(heap_, address_of(ptr), &block, &device) == GAP_ENOTMINE) return native_->raw_delete(ptr);
  if (const auto *interpreter = c10::impl::GPUTrace::get_trace())
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
  if (detour & kShared) exports_.forget(block.addr);
  report_usage(ptr, -1, static_cast<c10::DeviceIndex>(device));
  History::Call call(history_, RecordContext::ALL, block.addr);
  int rc = gap_free(heap_, address_of(ptr));
  if (rc) release_foreign(rc, ptr);
}

void Allocator::release_foreign(int rc, void *ptr) {
  if (rc == GAP_ENOTMINE) native_->raw_delete(ptr);
  else TORCH_CHECK(rc == GAP_EFORKED, "invalid device pointer: ", ptr);
}

void Allocator::raw_delete(void *ptr) { release(ptr); }

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return detour_.load(std::memory_order_relaxed) & (kNative | kUncached) ? native_->raw_deleter()
                                                                         : &Allocator::delete_block;
}

// ---- what blocks are used for ----

// As torch does: blocks that another allocator made are none of our business.
void Allocator::recordStream(const c10::DataPtr &block, c10::cuda::CUDAStream stream) {
  if (!block.get()) return;
  if (block.get_deleter() != &Allocator::delete_block) return native_->recordStream(block, stream);
  int rc = gap_record_stream(heap_, address_of(block.get()), handle_of(stream.stream()));
  if (rc == GAP_ENOTMINE) {  // borrowed
    c10::DataPtr theirs(block.get(), block.get(), native_->raw_deleter(), block.device());
    native_->recordStream(theirs, stream);
    theirs.release_context();
    return;
  }
  TORCH_CHECK(rc == 0, "gapless: record_stream of ", block.get(), ": ", gap_strerror(rc));
}

void *Allocator::getBaseAllocation(void *ptr, size_t *bytes) {
  gap_block block = {};
  int rc = gap_find_block(heap_, address_of(ptr), &block, nullptr);
  if (rc == GAP_ENOTMINE) return native_->getBaseAllocation(ptr, bytes);
  TORCH_CHECK(rc == 0, "invalid device pointer: ", ptr);
  if (bytes) *bytes = block.segment_bytes;
  return pointer_to(block.segment);
}

void Allocator::copy_data(void *to, const void *from, std::size_t bytes) const {
  C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyKind::cudaMemcpyDeviceToDevice));
}

// Mapped memory needs the peer form between devices unless they reach each other.
cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                   cudaStream_t stream, bool p2p_enabled) {
  if (p2p_enabled || to_device == from_device)
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

// Kernels of `device` reach the memory of `reached`.
void Allocator::enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex reached) {
  native_->enablePeerAccess(device, reached);
  int rc = gap_enable_peer(heap_, reached, device);
  TORCH_CHECK(rc == 0, "gapless: GPU ", static_cast<int>(device), " cannot reach the memory of GPU ",
              static_cast<int>(reached), ": ", gap_strerror(rc));
}

// ---- the memory fraction ----

// One limit for what we hold and what torch's own allocator holds: each may have what the other leaves.  So it is shared out anew before torch's
// own is asked, after it was, and when we find no more.

Allocator::Limit Allocator::limit_of(c10::DeviceIndex device) {
  std::lock_guard<std::mutex> guard(limits_lock_);
  auto at = static_cast<size_t>(device);
  return at < limits_.size() ? limits_[at] : Limit();
}

double Allocator::getMemoryFraction(c10::DeviceIndex device) {
  double whole = native_->getMemoryFraction(device);  // or there is no such device
  double fraction = limit_of(device).fraction;
  return fraction < 1.0 ? fraction : whole;
}

void Allocator::setMemoryFraction(double fraction, c10::DeviceIndex device) {
  native_->setMemoryFraction(fraction, device);
  int rc = gap_set_fraction(heap_, device, fraction);
  TORCH_CHECK(rc == 0, "gapless: memory fraction ", fraction, ": ", gap_strerror(rc));
  {
    std::lock_guard<std::mutex> guard(limits_lock_);
    limits_.resize(static_cast<size_t>(device_count_));
    limits_[static_cast<size_t>(device)].fraction = fraction;
  }
  share_limit(device);
}

static int64_t held_by(CUDAAllocator *allocator, c10::DeviceIndex device) {
  return allocator->getDeviceStats(device)
      .reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
      .current;
}

// False: there is nothing to share.
bool Allocator::share_limit(c10::DeviceIndex device) {
  double fraction = limit_of(device).fraction;
  gap_usage usage = {};
  usage.size = sizeof usage;
  if (fraction >= 1.0 || gap_get_usage(heap_, device, &usage)) return false;
  int64_t theirs = held_by(native_, device);
  auto total = static_cast<double>(usage.card_total_bytes), limit = std::floor(fraction * total);
  auto left_by = [&](double bytes) { return std::max(limit - bytes + 0.5, 0.0) / total; };  // exact when rounded down
  native_->setMemoryFraction(left_by(static_cast<double>(usage.held_bytes)), device);
  std::lock_guard<std::mutex> guard(limits_lock_);
  limits_[static_cast<size_t>(device)].theirs = theirs;
  return gap_set_fraction(heap_, device, left_by(static_cast<double>(theirs))) == 0;
}

// Torch's own allocator has given something back.
bool Allocator::limit_grew(c10::DeviceIndex device) {
  int64_t before = limit_of(device).theirs;
  return before && held_by(native_, device) < before && share_limit(device);
}

// Where only our idle memory is in the way it goes.
template <typename Call>
auto Allocator::ask_native(c10::DeviceIndex device, Call call) -> decltype(call()) {
  if (!share_limit(device)) return call();
  auto ask = [&] {
    auto served = call();
    share_limit(device);
    return served;
  };
  try {
    return ask();
  } catch (const c10::OutOfMemoryError &) {
    gap_trim(heap_, device, {0, 0}, nullptr);
    share_limit(device);
  }
  return ask();
}

// ---- the whole ----

void Allocator::emptyCache(Pool pool) {
  native_->emptyCache(pool);
  History::Call call(history_, RecordContext::ALL, 0);
  for (int device = 0; device < device_count_; device++) gap_trim(heap_, device, id_of(pool), nullptr);
}

// Off: torch's own allocator passes every request on to the driver.
void Allocator::enable(bool value) {
  native_->enable(value);
  set_detour(kUncached, !value);
}

std::string Allocator::name() { return detour_.load() & kNative ? native_->name() : "gapless"; }

void Allocator::cacheInfo(c10::DeviceIndex device, size_t *largest) {
  native_->cacheInfo(device, largest);
  gap_usage usage = {};
  usage.size = sizeof usage;
  if (!gap_get_usage(heap_, device, &usage))
    *largest = std::max(*largest, static_cast<size_t>(usage.largest_servable_bytes));
}

}  // namespace gapless
