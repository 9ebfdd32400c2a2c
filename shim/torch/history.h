// The memory history: a ring of trace entries a device, made from the heap's events, and who else listens to them.
//
// Contexts (stacks) are gathered by the calling thread before it enters the heap, since that may take Python's lock; the
// event, which comes under the heap's locks, finds them in a thread-local place.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "compat.h"
#include "gapless/gapless.h"

namespace gapless {

using Context = std::shared_ptr<c10::GatheredContext>;

class History {
 public:
  struct Frame {
    Context context;
    gap_addr freed = 0;
  };
  // What a call into the heap brings along for the events that it causes.
  class Call {
   public:
    Call(const History &history, RecordContext level, gap_addr freed);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

   private:
    Frame outer_;
  };

  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  // Is anything to be done with events?
  bool listens() const { return enabled() || has_trackers_.load(std::memory_order_relaxed); }

  void record(bool enabled, torch_cuda::CreateContextFn recorder, size_t most, RecordContext when, bool clear,
              const std::vector<std::string> &skip);
  void track(torch_cuda::AllocatorTraceTracker tracker);
  void on_event(const gap_event &event);
  void on_snapshot(int device, Pool pool, uint64_t active_bytes);
  void annotate(int device, gap_addr addr, const std::string &metadata);

  // A device's entries, oldest first, with times in microseconds since 1970.
  std::vector<TraceEntry> entries(int device);
  Context context_of(int device, gap_addr addr) const;

  static void push_compile_context(const std::string &context);
  static void pop_compile_context();
  static std::string &user_metadata();  // of the calling thread

 private:
  static constexpr int kDevices = 64;
  struct Ring {
    mutable std::mutex lock;
    std::vector<TraceEntry> entries;                 // guarded by lock
    size_t next = 0;                                 // where the oldest lies once the ring is full
    std::unordered_map<gap_addr, Context> contexts;  // of live and pending blocks
  };

  Context context_for(const gap_event &event, Ring &ring);
  void add(TraceEntry entry, Ring &ring);
  void clear();

  std::atomic<bool> enabled_{false}, has_trackers_{false};
  std::atomic<torch_cuda::CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  std::atomic<size_t> most_{1};
  std::atomic<unsigned> skipped_{0};  // bit: TraceEntry::Action
  std::array<Ring, kDevices> rings_;
  std::mutex trackers_lock_;
  std::vector<torch_cuda::AllocatorTraceTracker> trackers_;  // guarded by trackers_lock_
  c10::ApproximateClockToUnixTimeConverter clock_;
};

}  // namespace gapless
