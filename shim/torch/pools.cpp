// Private pools of the allocator, and the checkpoints that cudagraph trees make of them.
#include "pools.h"

#include <algorithm>

#include "allocator.h"
#include "gapless/restore.h"

namespace gapless {

// ---- the table ----

Pools::Entry *Pools::find(int device, const Pool &pool) {
  for (Entry &entry : entries_)
    if (entry.device == device && entry.pool == pool) return &entry;
  return nullptr;
}

Pools::Route Pools::route(int device, cudaStream_t stream) {
  std::lock_guard<std::mutex> guard(lock_);
  for (auto at = active_.rbegin(); at != active_.rend(); ++at)
    if (at->device == device && at->filter(stream)) return {true, at->server, at->pool};
  return {false, Server::kOurs, {0, 0}};
}

bool Pools::routes_exist() {
  std::lock_guard<std::mutex> guard(lock_);
  return !active_.empty();
}

void Pools::retain(int device, Pool pool, bool native) {
  std::lock_guard<std::mutex> guard(lock_);
  Entry *entry = find(device, pool);
  if (!entry) {
    Entry fresh{device, pool, 0, native, false, 0, GAP_POOL_PRIVATE, ""};
    if (Entry *known = find(-1, pool)) {
      fresh.flags = known->flags;
      fresh.tag = known->tag;
    }
    entries_.push_back(fresh);
    entry = &entries_.back();
  }
  entry->uses++;
}

void Pools::adopt(gap_heap *heap, int device, Pool pool) {
  std::lock_guard<std::mutex> guard(lock_);
  Entry *entry = find(device, pool);
  if (!entry || entry->adopted || entry->native) return;
  const char *tag = entry->tag.empty() ? nullptr : entry->tag.c_str();
  int rc = gap_pool_adopt(heap, device, entry->flags, tag, id_of(pool));
  TORCH_CHECK(rc == 0, "gapless: a memory pool cannot be made: ", gap_strerror(rc));
  entry->adopted = true;
  if (entry->behaviour) gap_pool_behave(heap, device, id_of(pool), entry->behaviour);
}

void Pools::begin(int device, Pool pool, std::function<bool(cudaStream_t)> filter) {
  std::lock_guard<std::mutex> guard(lock_);
  for (const Active &active : active_)
    TORCH_CHECK(active.device != device || active.pool != pool, "beginAllocateToPool: already recording to mempool_id");
  Entry *entry = find(device, pool);
  Server server = entry && entry->native ? Server::kNative : Server::kOurs;
  active_.push_back({device, pool, server, std::move(filter)});
}

void Pools::end(int device, Pool pool) {
  std::lock_guard<std::mutex> guard(lock_);
  auto found = std::find_if(active_.begin(), active_.end(),
                            [&](const Active &a) { return a.device == device && a.pool == pool; });
  TORCH_CHECK(found != active_.end(), "endAllocatePool: not currently recording to mempool_id");
  active_.erase(found);
}

void Pools::release(gap_heap *heap, int device, Pool pool) {
  std::lock_guard<std::mutex> guard(lock_);
  Entry *entry = find(device, pool);
  TORCH_CHECK(entry && entry->uses > 0, "gapless: a memory pool is released that is not in use");
  if (--entry->uses > 0) return;
  if (entry->adopted) gap_pool_release(heap, device, id_of(pool));
  entries_.erase(entries_.begin() + (entry - entries_.data()));
}

int Pools::uses(int device, Pool pool) {
  std::lock_guard<std::mutex> guard(lock_);
  const Entry *entry = find(device, pool);
  return entry ? entry->uses : 0;
}

Pools::Server Pools::server(int device, Pool pool) {
  std::lock_guard<std::mutex> guard(lock_);
  const Entry *entry = find(device, pool);
  return entry && entry->native ? Server::kNative : Server::kOurs;
}

void Pools::behave(gap_heap *heap, int device, Pool pool, unsigned bit, bool on) {
  std::lock_guard<std::mutex> guard(lock_);
  Entry *entry = find(device, pool);
  if (!entry) return;
  entry->behaviour = on ? entry->behaviour | bit : entry->behaviour & ~bit;
  if (entry->adopted) gap_pool_behave(heap, device, id_of(pool), entry->behaviour);
}

std::vector<Pool> Pools::last_resorts(int device, Server server) {
  std::lock_guard<std::mutex> guard(lock_);
  std::vector<Pool> out;
  for (const Entry &entry : entries_)
    if (entry.device == device && (entry.behaviour & GAP_POOL_USE_ON_OOM) &&
        (server == Server::kNative ? entry.native : entry.adopted))
      out.push_back(entry.pool);
  return out;
}

int Pools::set_flags(Pool pool, unsigned flags, const char *tag) {
  std::lock_guard<std::mutex> guard(lock_);
  for (const Entry &entry : entries_)
    if (entry.pool == pool && entry.adopted) return GAP_ESTATE;
  bool met = false;
  for (Entry &entry : entries_) {
    if (entry.pool != pool) continue;
    entry.flags = flags;
    entry.tag = tag ? tag : "";
    met = true;
  }
  if (!met) entries_.push_back({-1, pool, 0, false, false, 0, flags, tag ? tag : ""});
  return 0;
}

// ---- the allocator's calls ----

void Allocator::createOrIncrefPool(c10::DeviceIndex device, Pool pool, PoolOwner owner) {
  bool native = owner != nullptr || (detour_.load() & kNative) != 0;
  pools_.retain(device, pool, native);
  if (pools_.server(device, pool) == Pools::Server::kNative)
    native_->createOrIncrefPool(device, pool, std::move(owner));
}

void Allocator::beginAllocateToPool(c10::DeviceIndex device, Pool pool, std::function<bool(cudaStream_t)> filter) {
  pools_.retain(device, pool, (detour_.load() & kNative) != 0);
  if (pools_.server(device, pool) == Pools::Server::kNative) native_->beginAllocateToPool(device, pool, filter);
  else pools_.adopt(heap_, device, pool);
  std::lock_guard<std::mutex> guard(switching_);
  pools_.begin(device, pool, std::move(filter));
  set_detour(kRoutes, true);
}

void Allocator::endAllocateToPool(c10::DeviceIndex device, Pool pool) {
  if (pools_.server(device, pool) == Pools::Server::kNative) native_->endAllocateToPool(device, pool);
  std::lock_guard<std::mutex> guard(switching_);
  pools_.end(device, pool);
  set_detour(kRoutes, pools_.routes_exist());
}

void Allocator::releasePool(c10::DeviceIndex device, Pool pool) {
  if (pools_.server(device, pool) == Pools::Server::kNative) native_->releasePool(device, pool);
  pools_.release(heap_, device, pool);
}

int Allocator::getPoolUseCount(c10::DeviceIndex device, Pool pool) { return pools_.uses(device, pool); }

#if GAP_TORCH_AT_LEAST(11)
void Allocator::setUseOnOOM(c10::DeviceIndex device, Pool pool, bool use) {
  if (pools_.server(device, pool) == Pools::Server::kNative) native_->setUseOnOOM(device, pool, use);
  pools_.behave(heap_, device, pool, GAP_POOL_USE_ON_OOM, use);
}
#else
void Allocator::setUseOnOOM(c10::DeviceIndex device, Pool pool) {
  if (pools_.server(device, pool) == Pools::Server::kNative) native_->setUseOnOOM(device, pool);
  pools_.behave(heap_, device, pool, GAP_POOL_USE_ON_OOM, true);
}
#endif

#if GAP_TORCH_AT_LEAST(10)
// Acts with strategy:caching_allocator: other blocks lie on pages, and there is no segment that could stay whole.
void Allocator::setNoSplit(c10::DeviceIndex device, Pool pool) {
  if (pools_.server(device, pool) == Pools::Server::kNative) native_->setNoSplit(device, pool);
  pools_.behave(heap_, device, pool, GAP_POOL_NO_SPLIT, true);
}
#endif

// ---- live blocks of a pool ----

namespace {

struct LiveBlocks {
  Pool pool;
  std::vector<gap_block> blocks;
};

int collect_live(void *arg, const gap_block *block) {
  auto *live = static_cast<LiveBlocks *>(arg);
  if (block->state == GAP_BLOCK_LIVE && same(block->pool, live->pool)) live->blocks.push_back(*block);
  return 0;
}

std::vector<gap_block> live_blocks(gap_heap *heap, int device, Pool pool) {
  LiveBlocks live{pool, {}};
  gap_walk(heap, device, collect_live, &live);
  std::sort(live.blocks.begin(), live.blocks.end(),
            [](const gap_block &a, const gap_block &b) { return a.addr < b.addr; });
  return live.blocks;
}

// A checkpoint: the blocks that were live.  The rest of the pool is idle by definition, and a pool in use keeps its pages.
struct PoolState : AllocatorState {
  Pool pool;
  std::vector<gap_block> live;
};

bool same_block(const gap_block &a, const gap_block &b) { return a.addr == b.addr && a.bytes == b.bytes; }

bool contains(const std::vector<gap_block> &sorted, const gap_block &block) {
  auto at = std::lower_bound(sorted.begin(), sorted.end(), block,
                             [](const gap_block &a, const gap_block &b) { return a.addr < b.addr; });
  return at != sorted.end() && same_block(*at, block);
}

}  // namespace

bool Allocator::checkPoolLiveAllocations(c10::DeviceIndex device, Pool pool,
                                         const std::unordered_set<void *> &expected) {
  if (pools_.server(device, pool) == Pools::Server::kNative)
    return native_->checkPoolLiveAllocations(device, pool, expected);
  std::vector<gap_block> live = live_blocks(heap_, device, pool);
  auto is_expected = [&](const gap_block &block) { return expected.count(pointer_to(block.addr)) != 0; };
  return live.size() == expected.size() && std::all_of(live.begin(), live.end(), is_expected);
}

std::shared_ptr<AllocatorState> Allocator::getCheckpointState(c10::DeviceIndex device, Pool pool) {
  if (pools_.server(device, pool) == Pools::Server::kNative) return native_->getCheckpointState(device, pool);
  auto state = std::make_shared<PoolState>();
  state->pool = pool;
  state->live = live_blocks(heap_, device, pool);
  return state;
}

// What is live now and was live then stays; torch is told of all of it, as if everything had been freed and made anew.
CheckpointDelta Allocator::setCheckpointPoolState(c10::DeviceIndex device, std::shared_ptr<AllocatorState> state) {
  auto *wanted = dynamic_cast<PoolState *>(state.get());
  if (!wanted) return native_->setCheckpointPoolState(device, std::move(state));
  std::vector<gap_block> now = live_blocks(heap_, device, wanted->pool);
  CheckpointDelta delta;
  for (const gap_block &block : now) {
    if (!contains(wanted->live, block)) gap_free(heap_, block.addr);
    delta.ptrs_freed.push_back(pointer_to(block.addr));
  }
  for (const gap_block &block : wanted->live) {
    int rc = contains(now, block) ? 0 : gap_alloc_at(heap_, block.addr, block.requested);
    TORCH_CHECK(rc == 0, "gapless: a checkpoint of a memory pool cannot be restored: ", gap_strerror(rc));
    void *ptr = pointer_to(block.addr);
    delta.dataptrs_allocd.emplace_back(ptr, ptr, &Allocator::delete_block, c10::Device(c10::DeviceType::CUDA, device));
  }
  return delta;
}

}  // namespace gapless
