// DeviceStats from the heap's figures, by name.
#include <string>
#include <unordered_map>

#include "allocator.h"

namespace gapless {

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

StatArray *array_of(DeviceStats *stats, const std::string &name) {
  static const std::unordered_map<std::string, StatArray DeviceStats::*> arrays = {
      {"allocation", &DeviceStats::allocation},
      {"segment", &DeviceStats::segment},
      {"active", &DeviceStats::active},
      {"inactive_split", &DeviceStats::inactive_split},
      {"allocated_bytes", &DeviceStats::allocated_bytes},
      {"reserved_bytes", &DeviceStats::reserved_bytes},
      {"active_bytes", &DeviceStats::active_bytes},
      {"inactive_split_bytes", &DeviceStats::inactive_split_bytes},
      {"requested_bytes", &DeviceStats::requested_bytes}};
  auto found = arrays.find(name);
  return found == arrays.end() ? nullptr : &(stats->*found->second);
}

// max_split_size is configuration, and torch's own allocator has told it.
int64_t *scalar_of(DeviceStats *stats, const std::string &name) {
  static const std::unordered_map<std::string, int64_t DeviceStats::*> scalars = {
      {"num_alloc_retries", &DeviceStats::num_alloc_retries},
      {"num_ooms", &DeviceStats::num_ooms},
      {"num_sync_all_streams", &DeviceStats::num_sync_all_streams},
      {"num_device_alloc", &DeviceStats::num_device_alloc},
      {"num_device_free", &DeviceStats::num_device_free}};
  auto found = scalars.find(name);
  return found == scalars.end() ? nullptr : &(stats->*found->second);
}

Stat *single_of(DeviceStats *stats, const std::string &name) {
  if (name == "oversize_allocations") return &stats->oversize_allocations;
  return name == "oversize_segments" ? &stats->oversize_segments : nullptr;
}

int64_t *member_of(Stat *stat, const std::string &kind) {
  if (kind == "current") return &stat->current;
  if (kind == "peak") return &stat->peak;
  if (kind == "allocated") return &stat->allocated;
  return kind == "freed" ? &stat->freed : nullptr;
}

Stat *pool_of(StatArray *array, const std::string &pool) {
  if (pool == "all") return &(*array)[static_cast<size_t>(StatType::AGGREGATE)];
  if (pool == "small_pool") return &(*array)[static_cast<size_t>(StatType::SMALL_POOL)];
  return pool == "large_pool" ? &(*array)[static_cast<size_t>(StatType::LARGE_POOL)] : nullptr;
}

// Where torch keeps "active_bytes.all.peak", "oversize_segments.freed", "num_ooms"; NULL: it does not.
int64_t *place_of(DeviceStats *stats, const std::string &name) {
  size_t first = name.find('.'), last = name.rfind('.');
  if (first == std::string::npos) return scalar_of(stats, name);
  std::string kind = name.substr(last + 1);
  if (first == last) {
    Stat *single = single_of(stats, name.substr(0, first));
    return single ? member_of(single, kind) : nullptr;
  }
  StatArray *array = array_of(stats, name.substr(0, first));
  Stat *stat = array ? pool_of(array, name.substr(first + 1, last - first - 1)) : nullptr;
  return stat ? member_of(stat, kind) : nullptr;
}

int add_figure(void *arg, const char *name, int64_t value) {
  if (int64_t *place = place_of(static_cast<DeviceStats *>(arg), name)) *place += value;
  return 0;
}

#if GAP_TORCH_AT_LEAST(13)
int add_pool_bytes(void *arg, const gap_block *block) {
  if (block->state == GAP_BLOCK_HOLE || (!block->pool.first && !block->pool.second)) return 0;
  auto &pools = static_cast<DeviceStats *>(arg)->reserved_bytes_by_private_pools;
  StatArray &array = pools[Pool{block->pool.first, block->pool.second}];
  StatType kind = block->is_large ? StatType::LARGE_POOL : StatType::SMALL_POOL;
  array[static_cast<size_t>(StatType::AGGREGATE)].increase(block->bytes);
  array[static_cast<size_t>(kind)].increase(block->bytes);
  return 0;
}
#endif

}  // namespace

void add_stats(gap_heap *heap, int device, DeviceStats *out) {
  gap_stats(heap, device, add_figure, out);
#if GAP_TORCH_AT_LEAST(13)
  gap_walk(heap, device, add_pool_bytes, out);
#endif
}

int64_t stat_of(gap_heap *heap, int device, const char *name) {
  int64_t value = 0;
  return gap_stat(heap, device, name, &value) ? 0 : value;
}

DeviceStats Allocator::getDeviceStats(c10::DeviceIndex device) {
  DeviceStats stats = native_->getDeviceStats(device);
  add_stats(heap_, device, &stats);
  return stats;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex device) {
  native_->resetAccumulatedStats(device);
  gap_reset_accumulated(heap_, device);
}

void Allocator::resetPeakStats(c10::DeviceIndex device) {
  native_->resetPeakStats(device);
  gap_reset_peaks(heap_, device);
}

}  // namespace gapless
