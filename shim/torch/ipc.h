// Memory shared between processes.
//
// A handle names the owner's pieces of memory (file descriptors of the driver's allocations).  The other process gets them
// from a thread of the owner over a UNIX socket (SCM_RIGHTS); where that cannot be reached, by pidfd_getfd, for small
// blocks, whose descriptors are kept open for it.  Segments of the driver's go by cudaIpcMemHandle, and so does what cannot
// be exported, as a copy in memory of cudaMalloc.  GAPLESS_IPC=socket, pidfd or copy leaves one way.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "gapless/gapless.h"
#include "gapless/share.h"

namespace gapless {

// What this process shares.
class Exports {
 public:
  struct Shared {
    uint64_t id;
    gap_addr base;
    unsigned count;               // pieces
    std::vector<gap_piece> kept;  // for pidfd_getfd, maybe none
    void *copy;                   // of cudaMalloc, or NULL
    std::string handle;
  };

  // The handle of a live block, the same each time; `*offset` from what the handle stands for to the block.
  std::string share(gap_heap *heap, gap_addr block, uint64_t bytes, ptrdiff_t *offset);
  // The block is about to be freed.
  void forget(gap_addr block);

 private:
  using Key = std::array<unsigned char, 16>;
  Shared make(gap_heap *heap, gap_addr block, uint64_t bytes);
  std::string describe(const Shared &shared);
  bool start_server(gap_heap *heap);
  void serve(int listener);
  void answer(int peer);
  bool answer_request(int peer, uint64_t id, uint32_t first, uint32_t count);

  std::mutex lock_;
  std::unordered_map<gap_addr, Shared> shared_;  // guarded by lock_
  uint64_t last_id_ = 0;
  bool tried_server_ = false, has_server_ = false;
  Key key_{};
  gap_heap *heap_ = nullptr;
};

// Is it a handle of ours?
bool is_our_handle(const std::string &handle);
// Maps what another process shares; the same handle gives the same memory while anybody uses it.
std::shared_ptr<void> import_handle(gap_heap *heap, int device, const std::string &handle);

}  // namespace gapless
