// See ipc.h.
#include "ipc.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include <c10/cuda/CUDAException.h>

#include "allocator.h"
#include "gapless/share.h"

namespace gapless {

namespace {

constexpr char kMagic[4] = {'G', 'A', 'P', '1'};
constexpr char kDriverMagic[4] = {'G', 'A', 'P', 'D'};
constexpr uint32_t kBatch = 64;     // descriptors a message; the kernel takes 253
constexpr uint32_t kKeptMost = 64;  // descriptors kept open for one block

// GAPLESS_IPC=socket, pidfd or copy leaves only that way: for containers where one of them half works.
bool allowed(const char *way) {
  const char *only = std::getenv("GAPLESS_IPC");
  return !only || !*only || std::strcmp(only, way) == 0;
}

struct Header {  // of a handle; `kept` of gap_piece follow
  char magic[4];
  int32_t pid;
  unsigned char key[16];
  uint64_t id;
  uint32_t pieces, kept;
};

struct DriverHandle {  // a handle of memory of cudaMalloc
  char magic[4];
  cudaIpcMemHandle_t handle;
};

struct Request {
  unsigned char key[16];
  uint64_t id;
  uint32_t first, count;
};

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The abstract name of the owner's socket; the key makes it unguessable.
socklen_t socket_name(int32_t pid, const unsigned char *key, sockaddr_un *out) {
  std::memset(out, 0, sizeof *out);
  out->sun_family = AF_UNIX;
  int length = std::snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "gapless-%d-", pid);
  for (int i = 0; i < 16; i++)
    length += std::snprintf(out->sun_path + 1 + length, sizeof out->sun_path - 1 - static_cast<size_t>(length), "%02x",
                            key[i]);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

// One message: the sizes of the pieces, and their descriptors beside them.
struct Message {
  explicit Message(uint32_t count) : sizes(count) {
    body = {sizes.data(), count * sizeof(uint64_t)};
    head.msg_iov = &body;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = CMSG_SPACE(sizeof(int) * count);
  }
  std::vector<uint64_t> sizes;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kBatch)] = {};
  iovec body = {};
  msghdr head = {};
};

bool send_pieces(int to, const std::vector<gap_piece> &pieces) {
  auto count = static_cast<uint32_t>(pieces.size());
  Message message(count);
  cmsghdr *rights = CMSG_FIRSTHDR(&message.head);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
  for (uint32_t i = 0; i < count; i++) {
    message.sizes[i] = pieces[i].bytes;
    std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &pieces[i].fd, sizeof(int));
  }
  return sendmsg(to, &message.head, MSG_NOSIGNAL) == static_cast<ssize_t>(message.body.iov_len);
}

void close_all(std::vector<gap_piece> *pieces) {
  for (const gap_piece &piece : *pieces) close(piece.fd);
  pieces->clear();
}

// As many pieces as were asked for, or none when the owner says no.
std::vector<gap_piece> receive_pieces(int from, uint32_t count) {
  Message message(count);
  ssize_t got = recvmsg(from, &message.head, MSG_CMSG_CLOEXEC);
  cmsghdr *rights = CMSG_FIRSTHDR(&message.head);
  std::vector<gap_piece> out;
  if (got < 0 || !rights || rights->cmsg_type != SCM_RIGHTS) return out;
  size_t fds = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (size_t i = 0; i < fds; i++) {  // more than were asked for may fit
    gap_piece piece = {i < count ? message.sizes[i] : 0, -1};
    std::memcpy(&piece.fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
    out.push_back(piece);
  }
  if (fds != count || got != static_cast<ssize_t>(count * sizeof(uint64_t))) close_all(&out);
  return out;
}

void set_patience(int socket) {
  timeval seconds = {10, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof seconds);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &seconds, sizeof seconds);
}

bool same_user(int peer) {
  ucred who = {};
  socklen_t length = sizeof who;
  return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == getuid();
}

std::string driver_handle(void *base) {
  DriverHandle out;
  std::memcpy(out.magic, kDriverMagic, sizeof out.magic);
  C10_CUDA_CHECK(cudaIpcGetMemHandle(&out.handle, base));
  return {reinterpret_cast<const char *>(&out), sizeof out};
}

}  // namespace

// ---- the owner ----

bool Exports::start_server(gap_heap *heap) {
  if (tried_server_) return has_server_;
  tried_server_ = true;
  heap_ = heap;
  std::random_device random;
  for (unsigned char &byte : key_) byte = static_cast<unsigned char>(random());
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un name;
  socklen_t length = socket_name(getpid(), key_.data(), &name);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr *>(&name), length) || listen(listener, 64)) {
    if (listener >= 0) close(listener);
    return false;
  }
  std::thread([this, listener] { serve(listener); }).detach();
  return has_server_ = true;
}

void Exports::serve(int listener) {
  for (;;) {
    int peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0 && errno != EINTR && errno != ECONNABORTED && errno != EMFILE) return;
    if (peer < 0) {
      if (errno == EMFILE) usleep(100000);  // until the program has closed some
      continue;
    }
    Descriptor closer(peer);
    set_patience(peer);  // one peer that says nothing must not keep the others waiting for ever
    if (same_user(peer)) answer(peer);
  }
}

void Exports::answer(int peer) {
  Request request;
  while (recv(peer, &request, sizeof request, 0) == sizeof request) {
    if (std::memcmp(request.key, key_.data(), key_.size()) != 0) return;
    if (!answer_request(peer, request.id, request.first, request.count)) {
      char no = 0;
      send(peer, &no, 1, MSG_NOSIGNAL);
      return;
    }
  }
}

bool Exports::answer_request(int peer, uint64_t id, uint32_t first, uint32_t count) {
  if (count == 0 || count > kBatch) return false;
  gap_addr addr = 0;
  {
    std::lock_guard<std::mutex> guard(lock_);
    for (const auto &[at, shared] : shared_)
      if (shared.id == id) addr = at;
  }
  std::vector<gap_piece> pieces(count);
  if (!addr || gap_export(heap_, addr, first, count, pieces.data())) return false;
  bool sent = send_pieces(peer, pieces);
  close_all(&pieces);
  return sent;
}

std::string Exports::describe(const Shared &shared) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(header.key, key_.data(), key_.size());
  header.pid = getpid();
  header.id = shared.id;
  header.pieces = shared.count;
  header.kept = static_cast<uint32_t>(shared.kept.size());
  std::string out(reinterpret_cast<const char *>(&header), sizeof header);
  return out.append(reinterpret_cast<const char *>(shared.kept.data()), shared.kept.size() * sizeof(gap_piece));
}

namespace {

// A block the driver cannot export: its bytes as they are now.  Whole pages, so that the handle stands for nothing else.
void *copy_of(gap_addr block, uint64_t bytes) {
  constexpr uint64_t kPage = 2 << 20;
  TORCH_WARN_ONCE("gapless: this memory cannot be shared between processes; what is shared is a copy of it");
  void *copy = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&copy, (bytes + kPage - 1) / kPage * kPage));
  C10_CUDA_CHECK(cudaMemcpy(copy, pointer_to(block), bytes, cudaMemcpyDeviceToDevice));
  return copy;
}

// Can pieces of the block be exported at all?  Those of a small block are kept.
bool try_export(gap_heap *heap, gap_addr block, unsigned count, std::vector<gap_piece> *kept) {
  if (!allowed("socket") && !allowed("pidfd")) return false;
  kept->resize(count <= kKeptMost ? count : 1);
  if (gap_export(heap, block, 0, static_cast<unsigned>(kept->size()), kept->data())) {
    kept->clear();
    return false;
  }
  if (kept->size() < count) close_all(kept);
  return true;
}

}  // namespace

Exports::Shared Exports::make(gap_heap *heap, gap_addr block, uint64_t bytes) {
  Shared shared{++last_id_, block, 0, {}, nullptr, ""};
  int rc = gap_export_layout(heap, block, &shared.base, &shared.count);
  if (rc == GAP_ENOTSUP && shared.base) {
    shared.handle = driver_handle(pointer_to(shared.base));
  } else if (!rc && try_export(heap, block, shared.count, &shared.kept) &&
             (start_server(heap) || !shared.kept.empty())) {
    shared.handle = describe(shared);
  } else {
    close_all(&shared.kept);
    shared.base = block;
    shared.copy = copy_of(block, bytes);
    shared.handle = driver_handle(shared.copy);
  }
  return shared;
}

std::string Exports::share(gap_heap *heap, gap_addr block, uint64_t bytes, ptrdiff_t *offset) {
  std::lock_guard<std::mutex> guard(lock_);
  auto found = shared_.find(block);
  if (found == shared_.end()) found = shared_.emplace(block, make(heap, block, bytes)).first;
  *offset = static_cast<ptrdiff_t>(block - found->second.base);
  return found->second.handle;
}

void Exports::forget(gap_addr block) {
  std::lock_guard<std::mutex> guard(lock_);
  auto found = shared_.find(block);
  if (found == shared_.end()) return;
  close_all(&found->second.kept);
  if (found->second.copy) cudaFree(found->second.copy);
  shared_.erase(found);
}

// ---- the other process ----

namespace {

bool begins_with(const std::string &handle, const char (&magic)[4], size_t least) {
  return handle.size() >= least && std::memcmp(handle.data(), magic, sizeof magic) == 0;
}

}  // namespace

bool is_our_handle(const std::string &handle) {
  return begins_with(handle, kMagic, sizeof(Header)) || begins_with(handle, kDriverMagic, sizeof(DriverHandle));
}

namespace {

struct Import {
  Header header;
  std::vector<gap_piece> kept;
};

Import parse(const std::string &handle) {
  Import out;
  std::memcpy(&out.header, handle.data(), sizeof out.header);
  TORCH_CHECK(handle.size() == sizeof(Header) + out.header.kept * sizeof(gap_piece),
              "gapless: a shared memory handle is cut short");
  out.kept.resize(out.header.kept);
  if (!out.kept.empty())
    std::memcpy(out.kept.data(), handle.data() + sizeof(Header), out.kept.size() * sizeof(gap_piece));
  return out;
}

std::vector<gap_piece> ask_owner(const Header &header) {
  sockaddr_un name;
  socklen_t length = socket_name(header.pid, header.key, &name);
  Descriptor owner(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  std::vector<gap_piece> all;
  set_patience(owner.get());  // a fork of the owner may hold the socket and never answer
  if (owner.get() < 0 || connect(owner.get(), reinterpret_cast<sockaddr *>(&name), length)) return all;
  if (!same_user(owner.get())) return all;
  for (uint32_t first = 0; first < header.pieces; first += kBatch) {
    Request request = {};
    std::memcpy(request.key, header.key, sizeof request.key);
    request.id = header.id;
    request.first = first;
    request.count = std::min(kBatch, header.pieces - first);
    if (send(owner.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request) break;
    std::vector<gap_piece> some = receive_pieces(owner.get(), request.count);
    if (some.empty()) break;
    all.insert(all.end(), some.begin(), some.end());
  }
  if (all.size() != header.pieces) close_all(&all);
  return all;
}

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

std::vector<gap_piece> take_from_owner(const Import &import) {
  std::vector<gap_piece> all;
  if (import.kept.size() != import.header.pieces) return all;
  Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, import.header.pid, 0)));
  for (const gap_piece &piece : import.kept) {
    int fd = process.get() < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), piece.fd, 0));
    if (fd < 0) {
      close_all(&all);
      break;
    }
    all.push_back({piece.bytes, fd});
  }
  return all;
}

// Nobody knows which streams have used the memory: they all must have ended before it goes.
void finish_work(int device) {
  c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  cudaDeviceSynchronize();
}

std::shared_ptr<void> map_pieces(gap_heap *heap, int device, const std::string &handle) {
  Import import = parse(handle);
  std::vector<gap_piece> pieces;
  if (allowed("socket")) pieces = ask_owner(import.header);
  if (pieces.empty() && allowed("pidfd")) pieces = take_from_owner(import);
  TORCH_CHECK(!pieces.empty(), "gapless: process ", import.header.pid,
              ", which shares this memory, gives no descriptors of it (", std::strerror(errno),
              "): it has ended, is of another user, or lives in another container");
  gap_addr base = 0;
  int rc = gap_import(heap, device, pieces.data(), static_cast<unsigned>(pieces.size()), &base);
  close_all(&pieces);
  TORCH_CHECK(rc == 0, "gapless: shared memory cannot be mapped: ", gap_strerror(rc));
  return {pointer_to(base), [heap, device](void *mapped) {
            finish_work(device);
            gap_import_release(heap, address_of(mapped));
          }};
}

std::shared_ptr<void> map_driver(int device, const std::string &handle) {
  DriverHandle driver;
  std::memcpy(&driver, handle.data(), sizeof driver);
  void *base = nullptr;
  C10_CUDA_CHECK(cudaIpcOpenMemHandle(&base, driver.handle, cudaIpcMemLazyEnablePeerAccess));
  return {base, [device](void *mapped) {
            finish_work(device);
            cudaIpcCloseMemHandle(mapped);
          }};
}

struct Imports {
  std::mutex lock;
  std::unordered_map<std::string, std::weak_ptr<void>> mapped;
};

Imports &imports() {
  static auto *it = new Imports;
  return *it;
}

}  // namespace

std::shared_ptr<void> import_handle(gap_heap *heap, int device, const std::string &handle) {
  Imports &known = imports();
  std::lock_guard<std::mutex> guard(known.lock);
  std::string key = std::to_string(device) + ':' + handle;
  if (std::shared_ptr<void> mapped = known.mapped[key].lock()) return mapped;
  bool of_driver = begins_with(handle, kDriverMagic, sizeof(DriverHandle));
  std::shared_ptr<void> mapped = of_driver ? map_driver(device, handle) : map_pieces(heap, device, handle);
  for (auto at = known.mapped.begin(); at != known.mapped.end();)
    at = at->second.expired() ? known.mapped.erase(at) : std::next(at);
  known.mapped[key] = mapped;
  return mapped;
}

// ---- the allocator's calls ----

ShareableHandle Allocator::shareIpcHandle(void *ptr) {
  gap_block block = {};
  int rc = gap_find_block(heap_, address_of(ptr), &block, nullptr);
  if (rc == GAP_ENOTMINE) return native_->shareIpcHandle(ptr);
  TORCH_CHECK(rc == 0, "invalid device pointer: ", ptr);
  set_detour(kShared, true);
  ptrdiff_t offset = 0;
  std::string handle = exports_.share(heap_, block.addr, block.bytes, &offset);
  return {offset + static_cast<ptrdiff_t>(address_of(ptr) - block.addr), std::move(handle)};
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
  if (!is_our_handle(handle)) return native_->getIpcDevPtr(std::move(handle));
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return import_handle(heap_, device, handle);
}

}  // namespace gapless
