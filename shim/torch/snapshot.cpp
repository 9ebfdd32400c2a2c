// SnapshotInfo: what torch's own allocator has, and ours from one walk of the heap.
#include <algorithm>

#include "allocator.h"

namespace gapless {

namespace {

struct Collector {
  int device;
  Pool only;  // {0, 0}: all
  bool mapped;
  const History *history;
  std::vector<SegmentInfo> *segments;
};

SegmentInfo make_segment(const Collector &to, const gap_block &block) {
  SegmentInfo segment;
  segment.device = static_cast<c10::DeviceIndex>(to.device);
  segment.address = block.segment;
  segment.stream = reinterpret_cast<StreamField>(static_cast<uintptr_t>(block.stream));
  segment.is_expandable = to.mapped;
  segment.owner_private_pool_id = {block.pool.first, block.pool.second};
#if GAP_TORCH_AT_LEAST(11)
  // Ranks that run the same program register their buffers with NCCL in the same order.
  segment.registration_counter = static_cast<int32_t>(to.segments->size());
#endif
  return segment;
}

BlockInfo make_block(const Collector &to, const gap_block &block) {
  BlockInfo info;
  info.size = block.bytes;
  info.requested_size = block.requested;
  info.allocated = block.state == GAP_BLOCK_LIVE;
  info.active = info.allocated || block.state == GAP_BLOCK_PENDING;
  if (info.active) info.context_when_allocated = to.history->context_of(to.device, block.addr);
  return info;
}

// As its live blocks are, by which statistics go; without any, as what it could serve.
void judge_size(SegmentInfo *segment, bool active, bool is_large) {
  if (active && !segment->active_size) segment->is_large = is_large;
  else if (active || !segment->active_size) segment->is_large = segment->is_large || is_large;
}

int collect(void *arg, const gap_block *block) {
  auto *to = static_cast<Collector *>(arg);
  bool all = !to->only.first && !to->only.second;
  if (block->state == GAP_BLOCK_HOLE || (!all && !same(block->pool, to->only))) return 0;
  if (to->segments->empty() || to->segments->back().address != block->segment)
    to->segments->push_back(make_segment(*to, *block));
  SegmentInfo &segment = to->segments->back();
  BlockInfo info = make_block(*to, *block);
  segment.total_size += info.size;
  judge_size(&segment, info.active, block->is_large);
  if (info.allocated) segment.allocated_size += info.size;
  if (info.active) segment.active_size += info.size;
  if (info.active) segment.requested_size += info.requested_size;
  segment.blocks.push_back(std::move(info));
  return 0;
}

bool maps_pages(gap_heap *heap) {
  char strategy[32] = "";
  gap_conf_value(heap, "strategy", strategy, sizeof strategy);
  return std::string(strategy) != "caching_allocator";
}

bool earlier(const TraceEntry &a, const TraceEntry &b) { return a.time_.t_ < b.time_.t_; }
bool lower(const SegmentInfo &a, const SegmentInfo &b) { return a.address < b.address; }

// Ours after torch's own, in order of time; the entry that torch's own made of this very snapshot is ours to make.
void merge_traces(std::vector<TraceEntry> *into, std::vector<TraceEntry> ours) {
  auto is_snapshot = [](const TraceEntry &entry) { return entry.action_ == TraceEntry::SNAPSHOT; };
  into->erase(std::remove_if(into->begin(), into->end(), is_snapshot), into->end());
  auto middle = static_cast<std::ptrdiff_t>(into->size());
  std::move(ours.begin(), ours.end(), std::back_inserter(*into));
  std::inplace_merge(into->begin(), into->begin() + middle, into->end(), earlier);
}

}  // namespace

void add_segments(gap_heap *heap, int device, Pool pool, const History &history, std::vector<SegmentInfo> *out) {
  std::vector<SegmentInfo> found;
  Collector collector{device, pool, maps_pages(heap), &history, &found};
  gap_walk(heap, device, collect, &collector);
  std::move(found.begin(), found.end(), std::back_inserter(*out));
}

SnapshotInfo Allocator::merge_snapshot(SnapshotInfo info, Pool pool, bool with_traces) {
  for (int device = 0; device < device_count_; device++) {
    add_segments(heap_, device, pool, history_, &info.segments);
    if (with_traces && info.device_traces.size() > static_cast<size_t>(device))
      merge_traces(&info.device_traces[static_cast<size_t>(device)], history_.entries(device));
    history_.on_snapshot(device, pool, static_cast<uint64_t>(stat_of(heap_, device, "active_bytes.all.current")));
  }
  std::sort(info.segments.begin(), info.segments.end(), lower);
  std::string settings = settings_text();
  if (!settings.empty()) info.config_metadata.last_allocator_settings = settings;
  return info;
}

#if GAP_TORCH_AT_LEAST(11)
SnapshotInfo Allocator::snapshot(Pool pool, bool with_traces) {
  return merge_snapshot(native_->snapshot(pool, with_traces), pool, with_traces);
}
#else
SnapshotInfo Allocator::snapshot(Pool pool) { return merge_snapshot(native_->snapshot(pool), pool, true); }
#endif

#if GAP_TORCH_AT_LEAST(10)
namespace {

struct RangeSizes {
  std::vector<torch_cuda::StreamSegmentSize> sizes;
  gap_addr last = 0;
};

int add_range(void *arg, const gap_block *block) {
  auto *to = static_cast<RangeSizes *>(arg);
  if (block->state == GAP_BLOCK_HOLE || block->segment == to->last) return 0;
  auto *stream = reinterpret_cast<cudaStream_t>(static_cast<uintptr_t>(block->stream));
  to->sizes.emplace_back(stream, !block->is_large, block->segment_bytes);
  to->last = block->segment;
  return 0;
}

}  // namespace

std::vector<torch_cuda::StreamSegmentSize> Allocator::getExpandableSegmentSizes(c10::DeviceIndex device) {
  RangeSizes ranges{native_->getExpandableSegmentSizes(device), 0};
  if (maps_pages(heap_)) gap_walk(heap_, device, add_range, &ranges);
  return ranges.sizes;
}
#endif

}  // namespace gapless
