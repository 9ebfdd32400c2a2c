// Private pools: which requests go to which pool, and who serves it.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "compat.h"
#include "gapless/gapless.h"

namespace gapless {

inline gap_pool_id id_of(const Pool &pool) { return gap_pool_id{pool.first, pool.second}; }
inline bool same(const gap_pool_id &a, const Pool &b) { return a.first == b.first && a.second == b.second; }

class Pools {
 public:
  enum class Server { kOurs, kNative };
  struct Route {
    bool found;
    Server server;
    Pool pool;
  };

  // The pool that a request on `stream` goes to: the newest whose filter says yes.
  Route route(int device, cudaStream_t stream);
  bool routes_exist();

  // One more user of the pool, made when it is new.  `native`: torch's own allocator serves it.
  void retain(int device, Pool pool, bool native);
  // Makes the pool in the heap before its first block; throws when that fails.
  void adopt(gap_heap *heap, int device, Pool pool);
  void begin(int device, Pool pool, std::function<bool(cudaStream_t)> filter);
  void end(int device, Pool pool);
  void release(gap_heap *heap, int device, Pool pool);
  int uses(int device, Pool pool);
  Server server(int device, Pool pool);
  // One of GAP_POOL_NO_SPLIT and GAP_POOL_USE_ON_OOM, on or off; a pool that is not made yet takes it along.
  void behave(gap_heap *heap, int device, Pool pool, unsigned bit, bool on);
  std::vector<Pool> last_resorts(int device, Server server);
  // Flags and tag of a pool that has no block yet, on whichever device; GAP_ESTATE: it has.
  int set_flags(Pool pool, unsigned flags, const char *tag);

 private:
  struct Entry {
    int device;  // -1: only flags are known
    Pool pool;
    int uses;
    bool native, adopted;
    unsigned behaviour;
    unsigned flags;
    std::string tag;
  };
  struct Active {
    int device;
    Pool pool;
    Server server;
    std::function<bool(cudaStream_t)> filter;
  };
  Entry *find(int device, const Pool &pool);

  std::mutex lock_;
  std::vector<Entry> entries_;  // guarded by lock_
  std::vector<Active> active_;  // guarded by lock_; oldest first
};

}  // namespace gapless
