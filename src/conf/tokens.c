#include "conf/tokens.h"

#include <string.h>

bool gap__conf_is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static struct gap__conf_span trim(struct gap__conf_span span) {
  while (span.length && gap__conf_is_blank(span.start[0])) span.start++, span.length--;
  while (span.length && gap__conf_is_blank(span.start[span.length - 1])) span.length--;
  return span;
}

struct gap__conf_span gap__conf_unquote(const char *string, bool *quoted) {
  struct gap__conf_span span = trim((struct gap__conf_span){string, strlen(string)});
  char first = span.length >= 2 ? span.start[0] : 0;
  *quoted = (first == '"' || first == '\'') && span.start[span.length - 1] == first;
  if (*quoted) span = trim((struct gap__conf_span){span.start + 1, span.length - 2});
  return span;
}

bool gap__conf_squeeze(struct gap__conf_span span, char *out, size_t bytes) {
  size_t length = 0;
  for (size_t i = 0; i < span.length; i++) {
    if (gap__conf_is_blank(span.start[i])) continue;
    if (length + 1 == bytes) {
      out[length] = 0;
      return false;
    }
    out[length++] = span.start[i];
  }
  out[length] = 0;
  return true;
}

/* The item runs to the next comma outside a bracket. Brackets do not nest in this grammar: one flag suffices. */
static struct gap__conf_span take_item(struct gap__conf_span *rest, bool *bracket_open) {
  size_t end = 0;
  *bracket_open = false;
  for (; end < rest->length && (*bracket_open || rest->start[end] != ','); end++) {
    if (rest->start[end] == '[') *bracket_open = true;
    if (rest->start[end] == ']') *bracket_open = false;
  }
  struct gap__conf_span item = {rest->start, end};
  size_t used = end < rest->length ? end + 1 : end;
  rest->start += used;
  rest->length -= used;
  return trim(item);
}

static bool begins_with(struct gap__conf_span span, const char *word) {
  size_t length = strlen(word);
  return span.length > length && memcmp(span.start, word, length) == 0;
}

/* A server's name has a dot, a scheme, or is an address in brackets: no key has. */
static bool is_server(struct gap__conf_span item) {
  const char *colon = memchr(item.start, ':', item.length);
  size_t name = colon ? (size_t)(colon - item.start) : item.length;
  return memchr(item.start, '.', name) || *item.start == '[' || memmem(item.start, item.length, "://", 3);
}

/* `tiers:host=64G,disk=/path:500G,remote=redis://a.b,c.d` is one item: what follows are places, and servers, not keys. */
static bool is_place(struct gap__conf_span item) {
  return begins_with(item, "host=") || begins_with(item, "disk=") || begins_with(item, "remote=");
}

static void take_places(struct gap__conf_span *rest, struct gap__conf_item *out) {
  struct gap__conf_span after = *rest, next;
  bool open;
  if (!begins_with(out->whole, "tiers:") && !begins_with(out->whole, "tiers=")) return;
  bool remote = memmem(out->whole.start, out->whole.length, "remote=", strlen("remote=")) != NULL;
  while (after.length && (next = take_item(&after, &open)).length && (is_place(next) || (remote && is_server(next)))) {
    out->whole.length = (size_t)(next.start + next.length - out->whole.start);
    remote |= begins_with(next, "remote=");
    *rest = after;
  }
}

static void split(struct gap__conf_item *item) {
  struct gap__conf_span whole = item->whole;
  size_t at = 0;
  while (at < whole.length && whole.start[at] != ':' && whole.start[at] != '=') at++;
  item->separator = at < whole.length ? whole.start[at] : 0;
  size_t value_at = item->separator ? at + 1 : at;
  item->raw_value = trim((struct gap__conf_span){whole.start + value_at, whole.length - value_at});
  (void)gap__conf_squeeze((struct gap__conf_span){whole.start, at}, item->key, sizeof item->key);
  item->value_too_long = !gap__conf_squeeze(item->raw_value, item->value, sizeof item->value);
}

bool gap__conf_next_item(struct gap__conf_span *rest, struct gap__conf_item *out) {
  while (rest->length) {
    out->whole = take_item(rest, &out->bracket_open);
    if (!out->whole.length) continue;
    take_places(rest, out);
    split(out);
    return true;
  }
  return false;
}
