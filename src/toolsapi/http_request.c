#include "toolsapi/http_request.h"

#include <string.h>
#include <strings.h>

struct piece {
  const char *at;
  size_t length;
};

static bool equals(struct piece piece, const char *word) {
  return piece.length == strlen(word) && memcmp(piece.at, word, piece.length) == 0;
}

/* The piece before the first `end`, which is taken off too; false: there is none. */
static bool cut(struct piece *from, char end, struct piece *out) {
  const char *found = memchr(from->at, end, from->length);
  if (!found) return false;
  *out = (struct piece){from->at, (size_t)(found - from->at)};
  from->length -= out->length + 1;
  from->at = found + 1;
  return true;
}

/* A line without its end; "\n" alone ends one too. */
static bool cut_line(struct piece *from, struct piece *out) {
  if (!cut(from, '\n', out)) return false;
  if (out->length && out->at[out->length - 1] == '\r') out->length--;
  return true;
}

static struct piece trim(struct piece piece) {
  while (piece.length && (*piece.at == ' ' || *piece.at == '\t')) piece.at++, piece.length--;
  while (piece.length && (piece.at[piece.length - 1] == ' ' || piece.at[piece.length - 1] == '\t')) piece.length--;
  return piece;
}

/* ---- the first line ---- */

static int read_target(struct piece target, struct gap__http_request *out) {
  const char *query = memchr(target.at, '?', target.length);
  size_t length = query ? (size_t)(query - target.at) : target.length;
  if (!length || *target.at != '/') return 400;
  if (length >= sizeof out->path) return 414;
  for (size_t i = 0; i < target.length; i++)
    if (target.at[i] <= ' ' || target.at[i] > '~') return 400;
  memcpy(out->path, target.at, length);
  out->path[length] = '\0';
  return 200;
}

static int read_first(struct piece line, struct gap__http_request *out) {
  struct piece method, target;
  if (!cut(&line, ' ', &method) || !cut(&line, ' ', &target)) return 400;
  if (line.length != 8 || memcmp(line.at, "HTTP/", 5) != 0) return 400;
  if (line.at[5] != '1' || line.at[6] != '.') return 505;
  out->is_head = equals(method, "HEAD");
  if (!out->is_head && !equals(method, "GET")) return 405;
  return read_target(target, out);
}

/* ---- the fields ---- */

/* A name without its port; that of IPv6 is in brackets. */
static bool is_loopback(struct piece host) {
  if (host.length && *host.at == '[') return host.length >= 5 && memcmp(host.at, "[::1]", 5) == 0;
  struct piece name;
  if (!cut(&host, ':', &name)) name = host;
  if (name.length == 9 && strncasecmp(name.at, "localhost", 9) == 0) return true;
  if (name.length < 5 || memcmp(name.at, "127.", 4) != 0) return false;
  for (size_t i = 0; i < name.length; i++)
    if ((name.at[i] < '0' || name.at[i] > '9') && name.at[i] != '.') return false;
  return true;
}

static int read_field(struct piece line, struct gap__http_request *out) {
  struct piece name;
  if (!cut(&line, ':', &name) || !name.length || *name.at == ' ' || *name.at == '\t') return 400;
  if (name.length == 4 && strncasecmp(name.at, "Host", 4) == 0) out->is_loopback &= is_loopback(trim(line));
  return 200;
}

/* ---- the whole ---- */

int gap__http_read(const char *bytes, size_t length, struct gap__http_request *out) {
  struct piece rest = {bytes, length < GAP__HTTP_HEAD_MOST ? length : GAP__HTTP_HEAD_MOST}, line;
  *out = (struct gap__http_request){.is_loopback = true};
  int status = cut_line(&rest, &line) ? read_first(line, out) : 0;
  while (status == 200) {
    if (!cut_line(&rest, &line)) status = 0;
    else if (!line.length) return 200;
    else status = read_field(line, out);
  }
  return status == 0 && length >= GAP__HTTP_HEAD_MOST ? 431 : status;
}
