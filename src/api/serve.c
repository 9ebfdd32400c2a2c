#include "api/serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/client.h"
#include "api/door.h"
#include "api/sheet.h"
#include "api/state.h"
#include "base/log.h"
#include "base/worker.h"

enum { HEAPS_MAX = 64, ASK_MS = 1000, ANSWER_MS = 5000, PAUSE_MS = 100, BACKLOG = 8, NAME_BYTES = 32 };

static struct {
  struct gap__lock life; /* the first of all locks: opening and closing */
  bool is_open;
  pthread_t thread;
  int folder, listener, wake; /* wake: an eventfd that ends the thread */
  char name[NAME_BYTES];
  struct stat socket;      /* that is ours */
  struct gap__sheet sheet; /* of the thread, while there is one */
  struct gap__lock lock;   /* after `life`, before every lock of a heap; held during a walk.  Guards: */
  gap_heap *heaps[HEAPS_MAX];
  int count;
  bool ending; /* the process is: the driver is not to be asked any more */
} door = {.folder = -1, .listener = -1, .wake = -1, .sheet = {.fd = -1}};

/* ---- one question ---- */

/* Waits for the other side.  False: the time is over, or the door is being closed. */
static bool wait_for(int fd, short events, int64_t until_ms) {
  struct pollfd fds[] = {{.fd = fd, .events = events}, {.fd = door.wake, .events = POLLIN}};
  int64_t left = until_ms - gap__door_now_ms();
  int ready = left > 0 ? poll(fds, 2, (int)left) : 0;
  return (ready > 0 && !fds[1].revents) || (ready < 0 && errno == EINTR);
}

static bool read_line(int fd, char line[GAP__DOOR_LINE_MOST + 1]) {
  int64_t until = gap__door_now_ms() + ASK_MS;
  size_t length = 0;
  while (length < GAP__DOOR_LINE_MOST && wait_for(fd, POLLIN, until)) {
    ssize_t got = recv(fd, line + length, GAP__DOOR_LINE_MOST - length, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) length += (size_t)got;
    line[length] = '\0';
    if (length && line[length - 1] == '\n') return true;
  }
  return false;
}

static void send_all(int fd, const char *bytes, size_t count) {
  int64_t until = gap__door_now_ms() + ANSWER_MS;
  while (count && wait_for(fd, POLLOUT, until)) {
    ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
    if (sent > 0) bytes += sent, count -= (size_t)sent;
  }
}

static int write_answer(const char *line, struct gap__text *answer) {
  if (strcmp(line, GAP__DOOR_ASK_STATE) != 0) return GAP_ENOTSUP;
  gap__lock(&door.lock);
  int rc = gap__state_write(door.heaps, door.count, answer);
  gap__unlock(&door.lock);
  return rc;
}

/* The answer is put together first, so that a slow asker holds nothing up. */
static void answer(int fd) {
  char line[GAP__DOOR_LINE_MOST + 1];
  struct gap__text text = {0};
  if (!gap__door_knows(fd) || !read_line(fd, line)) return;
  int rc = write_answer(line, &text);
  if (rc) {
    gap__text_clear(&text);
    gap__text_add(&text, "gapless: %s\n", gap_strerror(rc));
  }
  if (text.length) send_all(fd, text.bytes, text.length);
  gap__text_free(&text);
}

/* ---- the thread ---- */

/* Out of descriptors or memory: the asker goes on waiting. */
static bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; }
static bool is_passing(int error) { return error == EAGAIN || error == EINTR || error == ECONNABORTED; }

static void pause_a_while(void) {
  struct pollfd wake = {.fd = door.wake, .events = POLLIN};
  (void)poll(&wake, 1, PAUSE_MS);
}

/* False: the socket is no socket any more (a program may close what it did not open). */
static bool answer_next(void) {
  int fd = accept4(door.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && is_shortage(errno)) pause_a_while();
  else if (fd < 0) return is_passing(errno);
  else {
    answer(fd);
    close(fd);
  }
  return true;
}

/* Writes the sheet when it is time; the milliseconds until it is again, or -1 where there is none. */
static int publish(int64_t *due_ms) {
  int64_t now = gap__door_now_ms();
  if (!door.sheet.head) return -1;
  if (now >= *due_ms) {
    gap__lock(&door.lock);
    if (!door.ending) gap__sheet_publish(&door.sheet, door.heaps, door.count);
    gap__unlock(&door.lock);
    *due_ms = gap__door_now_ms() + GAP__SHEET_PERIOD_MS;
  }
  return (int)(*due_ms > now ? *due_ms - now : 0);
}

static void *serve_main(void *unused) {
  int64_t due_ms = 0;
  (void)unused;
  for (bool goes_on = true; goes_on;) {
    struct pollfd fds[] = {{.fd = door.listener, .events = POLLIN}, {.fd = door.wake, .events = POLLIN}};
    int ready = poll(fds, 2, publish(&due_ms));
    if (ready < 0) goes_on = errno == EINTR;
    else goes_on = !fds[1].revents && !(fds[0].revents & POLLNVAL) && (!fds[0].revents || answer_next());
  }
  return NULL;
}

static int start_thread(void) { return gap__worker_start(&door.thread, serve_main, NULL) ? 0 : GAP_EIO; }

/* ---- the door ---- */

/* Nobody answers there: its process was killed.  One of another container may have a number that is nobody's here: it does
 * answer. */
static bool is_stale(int folder, const char *name) {
  char *end;
  long process = strtol(name, &end, 10);
  if (*end || process <= 0 || kill((pid_t)process, 0) == 0 || errno != ESRCH) return false;
  return gap__door_is_deaf(folder, name, SOCK_STREAM);
}

static void sweep(int folder) {
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
  for (const struct dirent *entry; list && (entry = readdir(list));)
    if (is_stale(folder, entry->d_name)) unlinkat(folder, entry->d_name, 0);
  if (list) closedir(list);
  else if (copy >= 0) close(copy);
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void close_all(void) {
  gap__sheet_close(&door.sheet);
  close_fd(&door.listener);
  close_fd(&door.wake);
  close_fd(&door.folder);
  door.is_open = false;
}

static void remove_names(void) {
  gap__door_remove(door.folder, door.name, &door.socket);
  gap__sheet_remove_name(&door.sheet, door.folder);
}

/* Without it the process can be asked all the same. */
static void make_sheet(void) {
  gap__sheet_sweep(door.folder, geteuid());
  if (gap__sheet_make(&door.sheet, door.folder))
    gap__log(GAP__LOG_INFO, "gapless top %ld will find nothing: no file can be made for it", (long)getpid());
}

static int open_door(void) {
  snprintf(door.name, sizeof door.name, "%ld", (long)getpid());
  door.folder = gap__door_open_own_folder();
  if (door.folder < 0) return door.folder;
  sweep(door.folder);
  door.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  door.listener =
      door.wake >= 0 ? gap__door_listen(door.folder, door.name, SOCK_STREAM, BACKLOG, &door.socket) : GAP_EIO;
  if (door.listener >= 0) make_sheet();
  int rc = door.listener < 0 ? GAP_EIO : start_thread();
  if (rc && door.listener >= 0) remove_names();
  if (rc) close_all();
  else door.is_open = true;
  return rc;
}

static void close_door(void) {
  eventfd_write(door.wake, 1);
  pthread_join(door.thread, NULL);
  remove_names();
  close_all();
}

/* ---- the process's life ---- */

/* The thread may be in the middle of an answer: it is left alone, and the heaps stay where they are. */
static void at_end(void) {
  if (!gap__lock_within(&door.life, 100)) return;
  if (door.is_open) remove_names();
  gap__unlock(&door.life);
  if (!gap__lock_within(&door.lock, 100)) return;
  door.ending = true;
  gap__unlock(&door.lock);
}

static void before_fork(void) {
  gap__lock(&door.life);
  gap__lock(&door.lock);
}
static void in_parent(void) {
  gap__unlock(&door.lock);
  gap__unlock(&door.life);
}
/* The door is the parent's, and so are the heaps; the child opens one of its own with its first heap. */
static void in_child(void) {
  close_all();
  door.count = 0;
  in_parent();
}

static void install(void) {
  pthread_atfork(before_fork, in_parent, in_child);
  atexit(at_end);
}

/* ---- who can be asked ---- */

static int place_of(const gap_heap *heap) {
  for (int i = 0; i < door.count; i++)
    if (door.heaps[i] == heap) return i;
  return -1;
}

static bool join(gap_heap *heap) {
  gap__lock(&door.lock);
  bool is_new = place_of(heap) < 0 && door.count < HEAPS_MAX;
  if (is_new) door.heaps[door.count++] = heap;
  gap__unlock(&door.lock);
  return is_new;
}

static void leave(const gap_heap *heap) {
  gap__lock(&door.lock);
  int place = place_of(heap);
  if (place >= 0) door.heaps[place] = door.heaps[--door.count];
  gap__unlock(&door.lock);
}

static enum gap__serve wish_of(gap_heap *heap) {
  struct gap__client *client = gap__client_of(heap);
  if (client->options.flags & GAP_HEAP_NO_THREAD) return GAP__SERVE_OFF;
  gap__lock(&client->lock);
  enum gap__serve wish = gap__conf_values(client->conf)->serve;
  gap__unlock(&client->lock);
  if (wish == GAP__SERVE_AUTO && client->options.backend != GAP_BACKEND_CUDA) return GAP__SERVE_OFF;
  return wish;
}

static void open_for(gap_heap *heap, enum gap__serve wish) {
  if (!join(heap) || door.is_open) return;
  int rc = open_door();
  if (!rc) return;
  leave(heap);
  gap__log(wish == GAP__SERVE_ON ? GAP__LOG_WARNING : GAP__LOG_INFO, "gapless explain %ld will find nobody: %s",
           (long)getpid(),
           rc == GAP_EINVAL ? "the folder of its sockets is not this user's alone" : "no socket can be made");
}

void gap__serve_leave(gap_heap *heap) {
  gap__lock(&door.life);
  leave(heap);
  if (door.is_open && door.count == 0) close_door();
  gap__unlock(&door.life);
}

void gap__serve_update(gap_heap *heap) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  enum gap__serve wish = wish_of(heap);
  pthread_once(&once, install);
  if (wish == GAP__SERVE_OFF) {
    gap__serve_leave(heap);
    return;
  }
  gap__lock(&door.life);
  open_for(heap, wish);
  gap__unlock(&door.life);
}
