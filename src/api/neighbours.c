#include "api/neighbours.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/client.h"
#include "api/door.h"
#include "api/talk.h"
#include "base/log.h"
#include "base/worker.h"

enum { PLACES_MAX = 64, GUESTS_MAX = 16, GUEST_MS = 1000, BACKLOG = 16, PACE_MS = 10, SHORTAGE_MS = 100 };

struct place { /* a device of a heap that neighbours can ask */
  gap_heap *heap;
  int device, listener;
  uint32_t id;
  struct stat socket;
  struct gap__neighbour_self self;
};

static struct {
  struct gap__lock
      life; /* the first of all locks, with that of serve.c, which is never held with it: joining and leaving */
  bool runs;
  pthread_t thread;
  int folder, wake;      /* wake: an eventfd; the thread looks again at the places, or ends */
  struct gap__lock lock; /* after `life`, before every lock of a heap; held while something is given.  Guards: */
  bool stop;
  struct place places[PLACES_MAX];
  int count;
  uint32_t last_id;
} hood = {.folder = -1, .wake = -1};

struct guest { /* somebody who has come to ask */
  int fd;
  uint32_t place;
  int64_t until_ms;
};

struct reception {                                /* the thread's own */
  struct pollfd fds[1 + PLACES_MAX + GUESTS_MAX]; /* wake, listeners, guests */
  uint32_t place_at[PLACES_MAX];                  /* of the listeners */
  int place_count;
  struct guest guests[GUESTS_MAX];
  int guest_count;
  bool shortage; /* of descriptors or memory: whoever waits goes on waiting */
};

/* ---- giving ---- */

static struct place *place_of_id(uint32_t id) {
  for (int i = 0; i < hood.count; i++)
    if (hood.places[i].id == id) return &hood.places[i];
  return NULL;
}

/* A process that was stopped may find questions that nobody waits for any more. */
static bool still_waits(int fd) {
  struct pollfd other = {.fd = fd, .events = POLLRDHUP};
  return poll(&other, 1, 0) == 0 || !(other.revents & (POLLHUP | POLLRDHUP | POLLERR));
}

static bool give(const struct place *place, const char *text, size_t length, struct gap__given *given) {
  uint64_t bytes;
  return gap__talk_read_request(text, length, place->self.uuid, &bytes) &&
         gap__heap_give(place->heap, place->device, bytes, given) == 0;
}

/* The heap stays while the lock is held. */
static void answer(const struct guest *guest, const char *text, size_t length) {
  struct gap__given given;
  char reply[GAP__TALK_MOST];
  gap__lock(&hood.lock);
  const struct place *place = place_of_id(guest->place);
  bool given_to = place && still_waits(guest->fd) && give(place, text, length, &given);
  gap__unlock(&hood.lock);
  if (given_to) (void)send(guest->fd, reply, gap__talk_write_answer(reply, &given), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* True: the guest goes. */
static bool attend(const struct guest *guest) {
  char text[GAP__TALK_MOST + 1];
  ssize_t got = recv(guest->fd, text, sizeof text, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got > 0) answer(guest, text, (size_t)got);
  return true;
}

/* ---- the thread ---- */

static void dismiss(struct reception *r, int i) {
  close(r->guests[i].fd);
  r->guests[i] = r->guests[--r->guest_count];
}

/* One at a time, and not faster than this, so that who asks without pause does not take the locks from the program. */
static void attend_guests(struct reception *r, const struct pollfd *fds) {
  int64_t now = gap__door_now_ms();
  for (int i = r->guest_count - 1; i >= 0; i--) {
    bool speaks = fds[i].revents != 0;
    if (speaks ? attend(&r->guests[i]) : now >= r->guests[i].until_ms) dismiss(r, i);
    if (speaks) (void)poll(NULL, 0, PACE_MS);
  }
}

static bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; }

static void welcome(struct reception *r, const struct place *place) {
  int fd = accept4(place->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  r->shortage |= fd < 0 && is_shortage(errno);
  if (fd < 0) return;
  if (gap__door_knows(fd)) r->guests[r->guest_count++] = (struct guest){fd, place->id, gap__door_now_ms() + GUEST_MS};
  else close(fd);
}

/* A program may have closed what it did not open. */
static void welcome_guests(struct reception *r) {
  gap__lock(&hood.lock);
  for (int i = 0; i < r->place_count && r->guest_count < GUESTS_MAX; i++) {
    struct place *place = place_of_id(r->place_at[i]);
    if (!place) continue;
    if (r->fds[1 + i].revents & POLLNVAL) place->listener = -1;
    else if (r->fds[1 + i].revents) welcome(r, place);
  }
  gap__unlock(&hood.lock);
}

/* While all seats are taken, or there is a shortage, nobody is let in. */
static int arrange(struct reception *r) {
  bool open = r->guest_count < GUESTS_MAX && !r->shortage;
  r->fds[0] = (struct pollfd){.fd = hood.wake, .events = POLLIN};
  gap__lock(&hood.lock);
  r->place_count = open ? hood.count : 0;
  for (int i = 0; i < r->place_count; i++) {
    r->fds[1 + i] = (struct pollfd){.fd = hood.places[i].listener, .events = POLLIN};
    r->place_at[i] = hood.places[i].id;
  }
  gap__unlock(&hood.lock);
  for (int i = 0; i < r->guest_count; i++)
    r->fds[1 + r->place_count + i] = (struct pollfd){.fd = r->guests[i].fd, .events = POLLIN};
  return 1 + r->place_count + r->guest_count;
}

static bool is_told_to_stop(void) {
  eventfd_t count;
  (void)eventfd_read(hood.wake, &count);
  gap__lock(&hood.lock);
  bool stop = hood.stop;
  gap__unlock(&hood.lock);
  return stop;
}

static int patience_ms(const struct reception *r) { return r->shortage ? SHORTAGE_MS : r->guest_count ? GUEST_MS : -1; }

static void *hood_main(void *arg) {
  struct reception *r = arg;
  for (;;) {
    int count = arrange(r), ready = poll(r->fds, (nfds_t)count, patience_ms(r));
    if (ready < 0 && errno != EINTR) break;
    if (ready < 0) continue;
    if (r->fds[0].revents && ((r->fds[0].revents & POLLNVAL) || is_told_to_stop())) break;
    r->shortage = false;
    attend_guests(r, r->fds + 1 + r->place_count);
    welcome_guests(r);
  }
  while (r->guest_count) dismiss(r, 0);
  free(r);
  return NULL;
}

/* ---- the life of the thread, under `life` ---- */

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Names of processes that were killed; of any card. */
static void sweep(int folder) {
  char prefix[GAP__NEIGHBOUR_PREFIX_BYTES];
  gap__neighbours_prefix("", prefix);
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
  for (const struct dirent *entry; list && (entry = readdir(list));)
    if (!strncmp(entry->d_name, prefix, strlen(prefix)) && gap__door_is_deaf(folder, entry->d_name, SOCK_SEQPACKET))
      unlinkat(folder, entry->d_name, 0);
  if (list) closedir(list);
  else if (copy >= 0) close(copy);
}

static void close_all(void) {
  close_fd(&hood.wake);
  close_fd(&hood.folder);
  hood.runs = hood.stop = false;
}

static int start(void) {
  struct reception *reception = calloc(1, sizeof *reception);
  hood.folder = gap__door_open_own_folder();
  hood.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int rc = !reception ? GAP_ENOMETA : hood.folder < 0 ? hood.folder : hood.wake < 0 ? GAP_EIO : 0;
  if (!rc) sweep(hood.folder);
  if (!rc && !gap__worker_start(&hood.thread, hood_main, reception)) rc = GAP_EIO;
  hood.runs = !rc;
  if (!rc) return 0;
  free(reception);
  close_all();
  return rc;
}

static void stop(void) {
  gap__lock(&hood.lock);
  hood.stop = true;
  gap__unlock(&hood.lock);
  eventfd_write(hood.wake, 1);
  pthread_join(hood.thread, NULL);
  close_all();
}

/* ---- joining and leaving, under `life` ---- */

static struct place *place_of(const gap_heap *heap, int device) {
  for (int i = 0; i < hood.count; i++)
    if (hood.places[i].heap == heap && hood.places[i].device == device) return &hood.places[i];
  return NULL;
}

void gap__neighbours_prefix(const char *uuid, char out[GAP__NEIGHBOUR_PREFIX_BYTES]) {
  snprintf(out, GAP__NEIGHBOUR_PREFIX_BYTES, "near-%s", uuid);
}

/* A number of the process's own is not enough: containers that share the folder have the same ones. */
static void name_self(struct gap__neighbour_self *self) {
  char prefix[GAP__NEIGHBOUR_PREFIX_BYTES];
  uint32_t chance = 0;
  gap__neighbours_prefix(self->uuid, prefix);
  (void)!getrandom(&chance, sizeof chance, 0);
  snprintf(self->name, sizeof self->name, "%.40s.%ld-%08x", prefix, (long)getpid(), chance);
}

static int join(gap_heap *heap, int device, const struct gap__neighbour_self *self) {
  int rc = hood.count == PLACES_MAX ? GAP_ELIMIT : hood.runs ? 0 : start();
  struct place place = {.heap = heap, .device = device, .self = *self};
  if (rc) return rc;
  name_self(&place.self);
  place.listener = gap__door_listen(hood.folder, place.self.name, SOCK_SEQPACKET, BACKLOG, &place.socket);
  if (place.listener < 0) return place.listener;
  gap__heap_lend(heap, device, true);
  gap__lock(&hood.lock);
  place.id = ++hood.last_id;
  hood.places[hood.count++] = place;
  gap__unlock(&hood.lock);
  eventfd_write(hood.wake, 1);
  return 0;
}

static void leave(struct place *place) {
  gap__heap_lend(place->heap, place->device, false);
  gap__door_remove(hood.folder, place->self.name, &place->socket);
  gap__lock(&hood.lock);
  close_fd(&place->listener);
  *place = hood.places[--hood.count];
  gap__unlock(&hood.lock);
  eventfd_write(hood.wake, 1);
}

/* Nobody is left to be asked. */
static void end_if_empty(void) {
  if (hood.runs && !hood.count) stop();
}

static void leave_all(const gap_heap *heap) {
  for (int i = 0; i < gap__heap_device_count(heap); i++) {
    struct place *place = place_of(heap, i);
    if (place) leave(place);
  }
}

/* False: nobody else can have the card, or it cannot be told from others. */
static bool can_share(gap_heap *heap, int device, struct gap__neighbour_self *self) {
  struct gap__dev *dev = gap__heap_dev(heap, device);
  *self = (struct gap__neighbour_self){.dev = dev};
  if (dev) gap__talk_uuid(dev->caps.uuid, self->uuid);
  return *self->uuid != '\0';
}

static void join_open_devices(gap_heap *heap, bool insists) {
  for (int i = 0; i < gap__heap_device_count(heap); i++) {
    struct gap__neighbour_self self;
    if (place_of(heap, i) || !can_share(heap, i, &self)) continue;
    int rc = join(heap, i, &self);
    if (rc)
      gap__log(insists ? GAP__LOG_WARNING : GAP__LOG_INFO, "device %d has no neighbours that it could ask: %s", i,
               rc == GAP_EINVAL ? "the folder of the sockets is not this user's alone" : "no socket can be made");
  }
}

/* ---- the process's life ---- */

/* The thread may be in the middle of an answer: it is left alone, and the heaps stay where they are. */
static void at_exit(void) {
  if (!gap__lock_within(&hood.life, 100)) return;
  for (int i = 0; i < hood.count; i++) gap__door_remove(hood.folder, hood.places[i].self.name, &hood.places[i].socket);
  gap__unlock(&hood.life);
}

static void before_fork(void) {
  gap__lock(&hood.life);
  gap__lock(&hood.lock);
}
static void in_parent(void) {
  gap__unlock(&hood.lock);
  gap__unlock(&hood.life);
}
/* The sockets are the parent's, and so are the heaps; the child makes its own with its first heap. */
static void in_child(void) {
  for (int i = 0; i < hood.count; i++) close_fd(&hood.places[i].listener);
  hood.count = 0;
  close_all();
  gap__neighbours_forget_locks();
  in_parent();
}

static void install(void) {
  pthread_atfork(before_fork, in_parent, in_child);
  atexit(at_exit);
}

/* ---- the whole ---- */

bool gap__neighbours_self(gap_heap *heap, int device, struct gap__neighbour_self *out) {
  gap__lock(&hood.lock);
  const struct place *place = place_of(heap, device);
  if (place) *out = place->self;
  gap__unlock(&hood.lock);
  return place != NULL;
}

static enum gap__serve wish_of(gap_heap *heap) {
  struct gap__client *client = gap__client_of(heap);
  if (client->options.flags & GAP_HEAP_NO_THREAD) return GAP__SERVE_OFF;
  gap__lock(&client->lock);
  enum gap__serve wish = gap__conf_values(client->conf)->neighbours;
  gap__unlock(&client->lock);
  return wish;
}

void gap__neighbours_leave(gap_heap *heap) {
  gap__lock(&hood.life);
  leave_all(heap);
  end_if_empty();
  gap__unlock(&hood.life);
}

void gap__neighbours_update(gap_heap *heap) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  enum gap__serve wish = wish_of(heap);
  pthread_once(&once, install);
  gap__lock(&hood.life);
  if (wish == GAP__SERVE_OFF) leave_all(heap);
  else join_open_devices(heap, wish == GAP__SERVE_ON);
  end_if_empty();
  gap__unlock(&hood.life);
}
