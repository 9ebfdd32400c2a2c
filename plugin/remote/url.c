#include "url.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { PORT = 6379, DATABASE_MOST = 65535 };

struct part {
  const char *at;
  size_t length;
};

static struct part until(struct part from, const char *found) {
  return (struct part){from.at, (size_t)(found - from.at)};
}
static struct part after(struct part from, const char *found) {
  return (struct part){found + 1, (size_t)(from.at + from.length - found - 1)};
}
static const char *find(struct part in, char what) { return in.length ? memchr(in.at, what, in.length) : NULL; }

static const char *find_last(struct part in, char what) {
  for (size_t i = in.length; i-- > 0;)
    if (in.at[i] == what) return in.at + i;
  return NULL;
}

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* %XX becomes a byte, which may not be 0. */
static const char *decode(struct part text, char *out, size_t room) {
  size_t length = 0;
  for (size_t i = 0; i < text.length; i++) {
    int byte = (unsigned char)text.at[i];
    if (byte == '%') {
      int high = i + 2 < text.length ? digit(text.at[i + 1]) : -1, low = high < 0 ? -1 : digit(text.at[i + 2]);
      if (low < 0 || high + low == 0) return "% is not followed by two hexadecimal digits";
      byte = high * 16 + low;
      i += 2;
    }
    if (length + 1 >= room) return "the user or the password is too long";
    out[length++] = (char)byte;
  }
  out[length] = '\0';
  return NULL;
}

static const char *read_secret(struct part text, struct gap__remote_url *url) {
  const char *colon = find(text, ':');
  if (!text.length) return "before @ there is no user";
  if (!colon) return decode(text, url->user, sizeof url->user);
  const char *fault = decode(until(text, colon), url->user, sizeof url->user);
  if (!fault) fault = decode(after(text, colon), url->password, sizeof url->password);
  url->has_password = true;
  return fault ? fault : url->password[0] ? NULL : "the password is empty";
}

static const char *read_number(struct part text, uint64_t least, uint64_t most, const char *fault, uint64_t *out) {
  return gap__text_parse_u64(text.at, text.length, out) == 0 && *out >= least && *out <= most ? NULL : fault;
}

static bool fit_for_host(struct part host) {
  for (size_t i = 0; i < host.length; i++) {
    unsigned char c = (unsigned char)host.at[i];
    if (c <= ' ' || c >= 0x7F || strchr("/@[]\"'\\?#", c)) return false;
  }
  return host.length > 0 && host.length < GAP__REMOTE_HOST_BYTES;
}

static const char *read_port(struct part text, struct gap__remote_url *url) {
  uint64_t port = PORT;
  const char *fault = NULL;
  if (text.length) {
    if (text.at[0] != ':') return "behind the brackets there is no :port";
    fault = read_number((struct part){text.at + 1, text.length - 1}, 1, 65535, "the port is no number from 1 to 65535",
                        &port);
  }
  url->port = (uint16_t)port;
  return fault;
}

static const char *read_host(struct part text, struct gap__remote_url *url) {
  bool bracketed = text.length && text.at[0] == '[';
  const char *end = bracketed ? find(text, ']') : find(text, ':');
  if (bracketed && !end) return "a bracket is not closed";
  struct part host = end ? until(text, end) : text, rest = {text.at + text.length, 0};
  if (bracketed) host.at++, host.length--, rest = after(text, end);
  else if (end) rest = (struct part){end, (size_t)(text.at + text.length - end)};
  if (!fit_for_host(host)) return "there is no host, or it is no name";
  memcpy(url->host, host.at, host.length);
  return read_port(rest, url);
}

static const char *read_scheme(struct part *text, bool first, struct gap__remote_url *url) {
  static const char plain[] = "redis://", tls[] = "rediss://";
  if (text->length >= sizeof tls - 1 && memcmp(text->at, tls, sizeof tls - 1) == 0) {
    url->tls = true;
    text->at += sizeof tls - 1, text->length -= sizeof tls - 1;
  } else if (text->length >= sizeof plain - 1 && memcmp(text->at, plain, sizeof plain - 1) == 0) {
    url->tls = false;
    text->at += sizeof plain - 1, text->length -= sizeof plain - 1;
  } else if (first) {
    return "it does not begin with redis:// or rediss://";
  }
  return NULL;
}

static const char *read_one(struct part text, bool first, struct gap__remote_url *url) {
  const char *fault = read_scheme(&text, first, url);
  const char *at = fault ? NULL : find_last(text, '@');
  if (at) fault = read_secret(until(text, at), url), text = after(text, at);
  const char *slash = fault ? NULL : find(text, '/');
  if (slash && slash + 1 < text.at + text.length) {
    uint64_t database = 0;
    fault = read_number(after(text, slash), 0, DATABASE_MOST, "the database is no number from 0 to 65535", &database);
    url->database = (uint32_t)database;
  }
  if (slash) text = until(text, slash);
  return fault ? fault : read_host(text, url);
}

static bool is_double(const struct gap__remote_url *urls, uint32_t count) {
  char name[GAP__REMOTE_NAME_BYTES], other[GAP__REMOTE_NAME_BYTES];
  gap__remote_url_name(&urls[count], name);
  for (uint32_t i = 0; i < count; i++) {
    gap__remote_url_name(&urls[i], other);
    if (strcmp(name, other) == 0) return true;
  }
  return false;
}

int gap__remote_url_parse(const char *list, struct gap__remote_url *out, uint32_t room, uint32_t *count, char *message,
                          size_t bytes) {
  struct part rest = {list, strlen(list)};
  const char *fault = NULL;
  uint32_t n = 0;
  for (const char *comma = list; comma && !fault; n++) {
    comma = find(rest, ',');
    if (n == room) {
      fault = "there are too many";
      continue;
    }
    memset(&out[n], 0, sizeof out[n]);
    if (n) out[n].tls = out[n - 1].tls;
    fault = read_one(comma ? until(rest, comma) : rest, n == 0, &out[n]);
    if (!fault && is_double(out, n)) fault = "it was named before";
    if (comma) rest = after(rest, comma);
  }
  if (fault) {
    snprintf(message, bytes, "server %u of the list: %s (redis://[user[:password]@]host[:port][/db],...)", n, fault);
    return GAP_EVALUE;
  }
  return *count = n, 0;
}

void gap__remote_url_name(const struct gap__remote_url *url, char out[GAP__REMOTE_NAME_BYTES]) {
  bool bare = strchr(url->host, ':') == NULL;
  snprintf(out, GAP__REMOTE_NAME_BYTES, "%s://%s%.*s%s:%u/%u", url->tls ? "rediss" : "redis", bare ? "" : "[", 255,
           url->host, bare ? "" : "]", url->port, url->database);
}
