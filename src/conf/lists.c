/* The two keys whose value may be a bracketed list. */
#include <string.h>

#include "conf/number.h"
#include "gapless/gapless.h"

/* Copies the next part of a list, up to `stop` or the list's end, and moves *at behind it (and behind the stop). */
static int take_part(const char **at, const char *stops, char part[64], char *stop, char *reason) {
  size_t length = strcspn(*at, stops);
  if (length >= 64) return gap__conf_refuse(reason, "a part of the list is too long");
  memcpy(part, *at, length);
  part[length] = 0;
  *at += length;
  *stop = **at;
  if (*stop) (*at)++;
  return 0;
}

static int read_divisions(const struct gap__conf_entry *entry, const char *text, bool zero_allowed, uint32_t *out,
                          char *reason) {
  uint64_t number;
  int result = gap__conf_read_count(text, &number, reason);
  if (result) return result;
  if (!gap__conf_is_power(number) && !(zero_allowed && number == 0))
    return gap__conf_refuse(reason, "the divisions '%.24s' are not a power of two", text);
  if ((double)number > entry->most) return gap__conf_refuse(reason, "the divisions are too large");
  *out = (uint32_t)number;
  return 0;
}

/* torch's rule.  The first boundary fills all slots below its own too; a later one sets its own slot only; > fills the slots
 * after the boundary before it (slot 0 where there is none).  Boundaries above the last slot fall onto it. */
struct roundup {
  uint32_t slots[GAP__CONF_SLOTS];
  int last_slot;
  bool first;
};

static void fill(struct roundup *roundup, int from, int to, uint32_t divisions) {
  for (int i = from; i < to; i++) roundup->slots[i] = divisions;
}

static int set_boundary(struct roundup *roundup, const char *text, uint32_t divisions, char *reason) {
  uint64_t mib;
  int result = gap__conf_read_count(text, &mib, reason);
  if (result) return result;
  if (!gap__conf_is_power(mib)) return gap__conf_refuse(reason, "the boundary '%.24s' is not a power of two", text);
  int slot = 63 - __builtin_clzll(mib);
  if (slot >= GAP__CONF_SLOTS) slot = GAP__CONF_SLOTS - 1;
  if (roundup->first) fill(roundup, 0, slot, divisions);
  roundup->slots[slot] = divisions;
  roundup->last_slot = slot;
  roundup->first = false;
  return 0;
}

/* One boundary:divisions of the list; *stop is the character that ended it. */
static int read_pair(const struct gap__conf_entry *entry, const char **at, struct roundup *roundup, char *stop,
                     char *reason) {
  char boundary[64], text[64];
  uint32_t divisions;
  int result = take_part(at, ":,]", boundary, stop, reason);
  if (result) return result;
  if (*stop != ':') return gap__conf_refuse(reason, "the part '%.24s' of the list is not boundary:divisions", boundary);
  if ((result = take_part(at, ":,]", text, stop, reason))) return result;
  if (*stop == ':') return gap__conf_refuse(reason, "a part of the list has two colons");
  if ((result = read_divisions(entry, text, true, &divisions, reason))) return result;
  if (strcmp(boundary, ">") != 0) return set_boundary(roundup, boundary, divisions, reason);
  fill(roundup, roundup->last_slot + 1, GAP__CONF_SLOTS, divisions);
  return 0;
}

static int read_pairs(const struct gap__conf_entry *entry, const char *at, struct roundup *roundup, char *reason) {
  char stop = ',';
  while (stop == ',' && *at != ']') {
    int result = read_pair(entry, &at, roundup, &stop, reason);
    if (result) return result;
  }
  if (stop == ',' && *at == ']') at++; /* an empty list, or a comma before the bracket */
  else if (stop != ']') return gap__conf_refuse(reason, "the list is not closed");
  return *at ? gap__conf_refuse(reason, "there is text after the list") : 0;
}

int gap__conf_read_roundup(const struct gap__conf_entry *entry, const char *value, uint32_t slots[GAP__CONF_SLOTS],
                           char reason[GAP__CONF_REASON_BYTES]) {
  struct roundup roundup = {.first = true};
  uint32_t divisions;
  int result;
  if (*value == '[') {
    result = read_pairs(entry, value + 1, &roundup, reason);
  } else {
    result = read_divisions(entry, value, false, &divisions, reason);
    if (!result) fill(&roundup, 0, GAP__CONF_SLOTS, divisions);
  }
  if (!result) memcpy(slots, roundup.slots, sizeof roundup.slots);
  return result;
}

static int add_size(const struct gap__conf_entry *entry, const char *text, struct gap__conf *out, char *reason) {
  uint64_t bytes;
  int result = gap__conf_read_size(text, 1, &bytes, reason);
  if (result) return result;
  uint32_t count = out->pool_size_count;
  if ((double)bytes < entry->least || bytes % 512)
    return gap__conf_refuse(reason, "the size '%.24s' is not a multiple of 512 bytes", text);
  if (count && bytes <= out->pool_sizes[count - 1])
    return gap__conf_refuse(reason, "the sizes do not ascend at '%.24s'", text);
  if (count == GAP__CONF_POOL_SIZES_MAX)
    return gap__conf_refuse(reason, "there are more than %d sizes", GAP__CONF_POOL_SIZES_MAX);
  out->pool_sizes[out->pool_size_count++] = bytes;
  return 0;
}

int gap__conf_read_sizes(const struct gap__conf_entry *entry, const char *value, struct gap__conf *out,
                         char reason[GAP__CONF_REASON_BYTES]) {
  bool list = *value == '[';
  const char *at = value + list;
  char stop = ',';
  memset(out->pool_sizes, 0, sizeof out->pool_sizes);
  out->pool_size_count = 0;
  while (stop == ',') {
    char part[64];
    int result = take_part(&at, ",]", part, &stop, reason);
    if (!result) result = add_size(entry, part, out, reason);
    if (result) return result;
  }
  if (list && stop != ']') return gap__conf_refuse(reason, "the list is not closed");
  if (*at || (!list && stop)) return gap__conf_refuse(reason, "there is text after the list");
  return 0;
}
