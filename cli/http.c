#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "toolsapi/http_request.h"

enum { GUESTS = 16, GUEST_MS = 5000, BACKLOG = 16, PAUSE_MS = 100 };

/* ---- where ---- */

static int fail(char *why, size_t bytes, const char *words) {
  snprintf(why, bytes, "%s", words);
  return -1;
}

/* A socket nobody listens at is the rest of one who was killed. */
static bool is_left_over(const struct sockaddr_un *address) {
  struct stat about;
  if (lstat(address->sun_path, &about) || !S_ISSOCK(about.st_mode)) return false;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool deaf = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) && errno == ECONNREFUSED;
  if (fd >= 0) close(fd);
  return deaf;
}

static int listen_at(int family, const void *address, socklen_t length) {
  int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
  if (fd < 0) return -1;
  if (family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, address, length) == 0 && listen(fd, BACKLOG) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

static int open_unix(const char *path, struct http_place *out, char *why, size_t bytes) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (*path != '/') return fail(why, bytes, "the path of a Unix socket begins with /");
  if (strlen(path) >= sizeof address.sun_path)
    return fail(why, bytes, "the path of a Unix socket has at most 107 bytes");
  strcpy(address.sun_path, path);
  if (is_left_over(&address)) unlink(path);
  mode_t before = umask(S_IRWXG | S_IRWXO);
  out->listener = listen_at(AF_UNIX, &address, sizeof address);
  umask(before);
  if (out->listener < 0) return fail(why, bytes, strerror(errno));
  strcpy(out->path, path);
  return 0;
}

/* Only this machine: what programs hold, and how they are named, is nobody else's business. */
static int split_host(const char *address, char host[64], unsigned *port) {
  const char *colon = strrchr(address, ':');
  size_t length = colon ? (size_t)(colon - address) : 0;
  uint64_t number;
  if (!colon || length >= 64 || gap__text_parse_u64(colon + 1, strlen(colon + 1), &number) || number > 65535) return -1;
  memcpy(host, address, length);
  host[length] = '\0';
  *port = (unsigned)number;
  return 0;
}

static unsigned port_of(int fd) {
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } at;
  socklen_t length = sizeof at;
  if (getsockname(fd, &at.any, &length)) return 0;
  return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

static int open_tcp(const char *host, unsigned port, struct http_place *out, char *why, size_t bytes) {
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_loopback};
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  bool is_v6 = strcmp(host, "[::1]") == 0;
  if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
  bool is_v4 = !is_v6 && inet_pton(AF_INET, host, &v4.sin_addr) == 1 && ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  if (!is_v6 && !is_v4)
    return fail(why, bytes,
                "only this machine is served: 127.0.0.1, localhost or [::1]; for others put a proxy before it "
                "that knows whom to let in");
  out->is_tcp = true;
  out->listener = is_v6 ? listen_at(AF_INET6, &v6, sizeof v6) : listen_at(AF_INET, &v4, sizeof v4);
  if (out->listener < 0) return fail(why, bytes, strerror(errno));
  out->port = port_of(out->listener);
  return 0;
}

int http_open(const char *address, struct http_place *out, char *why, size_t bytes) {
  char host[64];
  unsigned port;
  *out = (struct http_place){.listener = -1};
  if (strncmp(address, "unix:", 5) == 0) return open_unix(address + 5, out, why, bytes);
  if (split_host(address, host, &port)) return fail(why, bytes, "unix:/PATH or 127.0.0.1:PORT is wanted");
  return open_tcp(host, port, out, why, bytes);
}

/* ---- guests ---- */

struct guest {
  int fd;
  int64_t until_ms;
  size_t heard, told;
  struct gap__text answer; /* empty: still listening */
  char head[GAP__HTTP_HEAD_MOST];
};

struct server {
  const struct http_place *place;
  http_page_fn *page;
  void *arg;
  int count;
  struct guest *guests[GUESTS];
};

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const char *reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 414: return "URI Too Long";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Bad Request";
  }
}

static void put_answer(struct guest *guest, int status, const char *type, const struct gap__text *body, bool is_head) {
  gap__text_add(&guest->answer,
                "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sCache-Control: no-store\r\n"
                "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                status, reason(status), type, body->length, status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (!is_head) gap__text_add_bytes(&guest->answer, gap__text_str(body), body->length);
}

static void answer(struct server *server, struct guest *guest, const struct gap__http_request *request, int status) {
  struct gap__text body = {0};
  const char *type = "text/plain; charset=utf-8";
  if (status == 200 && server->place->is_tcp && !request->is_loopback) status = 403;
  if (status == 200 && strcmp(request->path, "/metrics") == 0) {
    type = "text/plain; version=0.0.4; charset=utf-8";
    server->page(server->arg, &body);
    if (body.failed || !body.length) status = 503;
  } else if (status == 200 && strcmp(request->path, "/") == 0) gap__text_add(&body, "gapless: see /metrics\n");
  else if (status == 200) status = 404;
  if (status != 200) {
    gap__text_free(&body);
    gap__text_add(&body, "%d %s\n", status, reason(status));
  }
  put_answer(guest, status, type, &body, request->is_head);
  gap__text_free(&body);
}

/* False: the guest goes. */
static bool listen_to(struct server *server, struct guest *guest) {
  struct gap__http_request request;
  ssize_t got = recv(guest->fd, guest->head + guest->heard, sizeof guest->head - guest->heard, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (got > 0) guest->heard += (size_t)got;
  int status = gap__http_read(guest->head, guest->heard, &request);
  if (status) answer(server, guest, &request, status);
  return !guest->answer.failed;
}

static bool tell(struct guest *guest) {
  ssize_t sent = send(guest->fd, guest->answer.bytes + guest->told, guest->answer.length - guest->told, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  guest->told += (size_t)sent;
  return guest->told < guest->answer.length;
}

static void dismiss(struct server *server, int index) {
  struct guest *guest = server->guests[index];
  shutdown(guest->fd, SHUT_WR);
  close(guest->fd);
  gap__text_free(&guest->answer);
  free(guest);
  server->guests[index] = server->guests[--server->count];
}

static void welcome(struct server *server) {
  int fd = accept4(server->place->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  struct guest *guest = fd >= 0 ? calloc(1, sizeof *guest) : NULL;
  if (guest) {
    guest->fd = fd;
    guest->until_ms = now_ms() + GUEST_MS;
    server->guests[server->count++] = guest;
  } else if (fd >= 0) close(fd);
  else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) (void)poll(NULL, 0, PAUSE_MS);
}

static void attend(struct server *server, int index, short events) {
  struct guest *guest = server->guests[index];
  bool stays = now_ms() < guest->until_ms;
  if (stays && events) stays = guest->answer.length ? tell(guest) : listen_to(server, guest);
  if (!stays) dismiss(server, index);
}

/* ---- the loop ---- */

static volatile sig_atomic_t told_to_stop;
static void stop(int signal) { told_to_stop = signal; }

/* Blocked but while the loop waits, so that none is missed. */
static sigset_t catch_signals(void) {
  struct sigaction action = {.sa_handler = stop};
  sigset_t wanted, before;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGTERM);
  sigprocmask(SIG_BLOCK, &wanted, &before);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  return before;
}

static int wait_for_all(struct server *server, struct pollfd fds[1 + GUESTS], const sigset_t *open) {
  struct timespec second = {.tv_sec = 1};
  fds[0] = (struct pollfd){.fd = server->count < GUESTS ? server->place->listener : -1, .events = POLLIN};
  for (int i = 0; i < server->count; i++)
    fds[1 + i] =
        (struct pollfd){.fd = server->guests[i]->fd, .events = server->guests[i]->answer.length ? POLLOUT : POLLIN};
  return ppoll(fds, 1 + (nfds_t)server->count, server->count ? &second : NULL, open);
}

int http_serve(struct http_place *place, http_page_fn *page, void *arg) {
  struct server server = {.place = place, .page = page, .arg = arg};
  struct pollfd fds[1 + GUESTS];
  sigset_t open = catch_signals();
  int rc = 0;
  while (!told_to_stop && !rc) {
    int ready = wait_for_all(&server, fds, &open);
    if (ready < 0 && errno != EINTR) rc = -1;
    if (ready < 0) continue;
    for (int i = server.count - 1; i >= 0; i--) attend(&server, i, fds[1 + i].revents);
    if (fds[0].revents) welcome(&server);
  }
  while (server.count) dismiss(&server, server.count - 1);
  close(place->listener);
  if (*place->path) unlink(place->path);
  return rc;
}
