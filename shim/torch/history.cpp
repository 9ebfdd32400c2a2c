// See history.h.
#include "history.h"

#include <algorithm>
#include <stack>
#include <utility>

#include "allocator.h"

namespace gapless {

namespace {

thread_local History::Frame frame;
thread_local std::stack<std::string> compile_contexts;
thread_local std::string metadata_of_thread;

TraceEntry::Action action_of(gap_event_kind kind) {
  switch (kind) {
    case GAP_EVENT_ALLOC: return TraceEntry::ALLOC;
    case GAP_EVENT_FREE_REQUESTED: return TraceEntry::FREE_REQUESTED;
    case GAP_EVENT_FREE_COMPLETED: return TraceEntry::FREE_COMPLETED;
    case GAP_EVENT_SEGMENT_ALLOC: return TraceEntry::SEGMENT_ALLOC;
    case GAP_EVENT_SEGMENT_FREE: return TraceEntry::SEGMENT_FREE;
    case GAP_EVENT_SEGMENT_MAP: return TraceEntry::SEGMENT_MAP;
    case GAP_EVENT_SEGMENT_UNMAP: return TraceEntry::SEGMENT_UNMAP;
    default: return TraceEntry::OOM;
  }
}

// torch's entries of blocks carry what was asked for, those of segments and failures the bytes.
size_t size_of(const gap_event &event) {
  bool of_block =
      event.kind == GAP_EVENT_ALLOC || event.kind == GAP_EVENT_FREE_REQUESTED || event.kind == GAP_EVENT_FREE_COMPLETED;
  return of_block ? event.requested : event.bytes;
}

TraceEntry make_entry(TraceEntry::Action action, int device, gap_addr addr, size_t bytes, gap_stream stream,
                      const Pool &pool, Context context) {
  std::string compiled = compile_contexts.empty() ? "N/A" : compile_contexts.top();
  auto where = reinterpret_cast<StreamField>(static_cast<uintptr_t>(stream));
  return TraceEntry(action, static_cast<c10::DeviceIndex>(device), addr, bytes, where, pool, c10::getApproximateTime(),
                    std::move(context), std::move(compiled)
#if GAP_TORCH_AT_LEAST(10)
                                            ,
                    metadata_of_thread
#endif
  );
}

unsigned bit_of(TraceEntry::Action action) { return 1u << static_cast<unsigned>(action); }

unsigned bits_of(const std::vector<std::string> &names) {
  unsigned bits = 0;
#if GAP_TORCH_AT_LEAST(11)
  for (const std::string &name : names) bits |= bit_of(c10::CachingDeviceAllocator::parseTraceEntryAction(name));
#else
  (void)names;
#endif
  return bits;
}

}  // namespace

// ---- contexts ----

// Calls nest: an allocation that finds no memory runs callbacks that free.
History::Call::Call(const History &history, RecordContext level, gap_addr freed) {
  auto *recorder = history.recorder_.load();
  Frame fresh;
  if (recorder && history.when_.load() >= level) fresh.context = recorder();
  fresh.freed = freed;
  outer_ = std::exchange(frame, std::move(fresh));
}

History::Call::~Call() { frame = std::move(outer_); }

// Keeps the context of an allocation until the block is idle; says which one the entry gets.  Under the ring's lock.
Context History::context_for(const gap_event &event, Ring &ring) {
  if (event.kind == GAP_EVENT_ALLOC) {
    if (frame.context) ring.contexts[event.addr] = frame.context;
    return frame.context;
  }
  bool frees = event.kind == GAP_EVENT_FREE_REQUESTED || event.kind == GAP_EVENT_FREE_COMPLETED;
  if (!frees) return frame.context;
  auto known = ring.contexts.find(event.addr);
  Context of_block = known == ring.contexts.end() ? nullptr : known->second;
  if (event.kind == GAP_EVENT_FREE_COMPLETED && known != ring.contexts.end()) ring.contexts.erase(known);
  return frame.freed == event.addr && frame.context ? frame.context : of_block;
}

Context History::context_of(int device, gap_addr addr) const {
  const Ring &ring = rings_[static_cast<size_t>(device)];
  std::lock_guard<std::mutex> guard(ring.lock);
  auto known = ring.contexts.find(addr);
  return known == ring.contexts.end() ? nullptr : known->second;
}

void History::push_compile_context(const std::string &context) { compile_contexts.push(context); }
void History::pop_compile_context() {
  if (!compile_contexts.empty()) compile_contexts.pop();
}
std::string &History::user_metadata() { return metadata_of_thread; }

// ---- entries ----

void History::add(TraceEntry entry, Ring &ring) {
  if (!enabled() || skipped_.load() & bit_of(entry.action_)) return;
  size_t most = most_.load();
  if (ring.entries.size() < most) {
    ring.entries.push_back(std::move(entry));
    return;
  }
  ring.entries[ring.next] = std::move(entry);
  ring.next = (ring.next + 1) % ring.entries.size();
}

void History::on_event(const gap_event &event) {
  if (static_cast<unsigned>(event.device) >= kDevices) return;
  Ring &ring = rings_[static_cast<size_t>(event.device)];
  Pool pool{event.pool.first, event.pool.second};
  Context context;
  {
    std::lock_guard<std::mutex> guard(ring.lock);
    context = context_for(event, ring);
    if (when_.load() < RecordContext::ALLOC) context = nullptr;
    if (enabled() && !has_trackers_.load(std::memory_order_relaxed)) {
      add(make_entry(action_of(event.kind), event.device, event.addr, size_of(event), event.stream, pool, context),
          ring);
      return;
    }
  }
  TraceEntry entry =
      make_entry(action_of(event.kind), event.device, event.addr, size_of(event), event.stream, pool, context);
  {
    std::lock_guard<std::mutex> guard(trackers_lock_);
    for (const auto &tracker : trackers_) tracker(entry);
  }
  std::lock_guard<std::mutex> guard(ring.lock);
  add(std::move(entry), ring);
}

void History::on_snapshot(int device, Pool pool, uint64_t active_bytes) {
  Ring &ring = rings_[static_cast<size_t>(device)];
  std::lock_guard<std::mutex> guard(ring.lock);
  add(make_entry(TraceEntry::SNAPSHOT, device, 0, active_bytes, 0, pool, nullptr), ring);
}

#if GAP_TORCH_AT_LEAST(14)
void History::annotate(int device, gap_addr addr, const std::string &metadata) {
  Ring &ring = rings_[static_cast<size_t>(device)];
  TraceEntry entry = make_entry(TraceEntry::ANNOTATE, device, addr, 0, 0, {0, 0}, nullptr);
  entry.user_metadata_ = metadata;
  std::lock_guard<std::mutex> guard(ring.lock);
  add(std::move(entry), ring);
}
#endif

std::vector<TraceEntry> History::entries(int device) {
  Ring &ring = rings_[static_cast<size_t>(device)];
  std::vector<TraceEntry> out;
  {
    std::lock_guard<std::mutex> guard(ring.lock);
    auto oldest = ring.entries.begin() + static_cast<std::ptrdiff_t>(ring.next);
    out.insert(out.end(), oldest, ring.entries.end());
    out.insert(out.end(), ring.entries.begin(), oldest);
  }
  auto to_ns = clock_.makeConverter();
  for (TraceEntry &entry : out) entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
  return out;
}

// ---- switching ----

void History::clear() {
  for (Ring &ring : rings_) {
    std::lock_guard<std::mutex> guard(ring.lock);
    std::vector<TraceEntry>().swap(ring.entries);
    ring.next = 0;
  }
}

void History::record(bool enabled, torch_cuda::CreateContextFn recorder, size_t most, RecordContext when, bool clear_it,
                     const std::vector<std::string> &skip) {
  TORCH_CHECK(when == RecordContext::NEVER || recorder, "gapless: a history with contexts needs who gathers them");
  unsigned bits = bits_of(skip);
  enabled_.store(false);
  if (!enabled || clear_it || most != most_.load()) clear();
  most_.store(std::max<size_t>(most, 1));
  skipped_.store(bits);
  recorder_.store(enabled ? recorder : nullptr);
  when_.store(enabled ? when : RecordContext::NEVER);
  enabled_.store(enabled);
}

void History::track(torch_cuda::AllocatorTraceTracker tracker) {
  std::lock_guard<std::mutex> guard(trackers_lock_);
  trackers_.push_back(std::move(tracker));
  has_trackers_.store(true);
}

// ---- the allocator's calls ----

void Allocator::listen() {
  std::lock_guard<std::mutex> guard(switching_);
  gap_event_fn heard = [](void *self, const gap_event *event) { static_cast<History *>(self)->on_event(*event); };
  if (heap_) gap_set_events(heap_, history_.listens() ? heard : nullptr, &history_);
  set_detour(kWatched, history_.listens());
}

#if GAP_TORCH_AT_LEAST(11)
void Allocator::recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t most, RecordContext when,
                              bool clear, const std::vector<std::string> &skip) {
  native_->recordHistory(enabled, recorder, most, when, clear, skip);
#else
void Allocator::recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t most, RecordContext when,
                              bool clear) {
  const std::vector<std::string> skip;
  native_->recordHistory(enabled, recorder, most, when, clear);
#endif
  history_.record(enabled, recorder, most, when, clear, skip);
  listen();
}

void Allocator::attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) {
  native_->attachAllocatorTraceTracker(tracker);
  history_.track(std::move(tracker));
  listen();
}

// Annotations are the process's, not a device's: torch's own buffer keeps them for both.
void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) {
  native_->recordAnnotation(metadata);
}

void Allocator::pushCompileContext(std::string &context) {
  History::push_compile_context(context);
  native_->pushCompileContext(context);
}

void Allocator::popCompileContext() {
  History::pop_compile_context();
  native_->popCompileContext();
}

#if GAP_TORCH_AT_LEAST(10)
void Allocator::setUserMetadata(const std::string &metadata) {
  History::user_metadata() = metadata;
  native_->setUserMetadata(metadata);
}

std::string Allocator::getUserMetadata() { return History::user_metadata(); }
#endif

#if GAP_TORCH_AT_LEAST(12)
Context Allocator::getContextForPointer(const void *ptr) {
  gap_block block = {};
  int device = 0;
  int rc = gap_find_block(heap_, address_of(ptr), &block, &device);
  return rc ? native_->getContextForPointer(ptr) : history_.context_of(device, block.addr);
}
#endif

#if GAP_TORCH_AT_LEAST(14)
void Allocator::annotateMemory(const void *ptr, const std::string &metadata) {
  gap_block block = {};
  int device = 0;
  if (gap_find_block(heap_, address_of(ptr), &block, &device)) native_->annotateMemory(ptr, metadata);
  else history_.annotate(device, block.addr, metadata);
}
#endif

}  // namespace gapless
