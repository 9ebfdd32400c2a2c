#include "conf/tiers.h"

#include <string.h>

#include "base/text.h"

enum { LEAST_BYTES = 2 << 20 };

struct part {
  const char *start;
  size_t length;
};

static struct part next_part(const char **rest) {
  struct part part = {*rest, strcspn(*rest, ",")};
  *rest += part.length + ((*rest)[part.length] == ',');
  while (part.length && *part.start == ' ') part.start++, part.length--;
  while (part.length && part.start[part.length - 1] == ' ') part.length--;
  return part;
}

/* What stands behind `word` and its separator; length 0: nothing does.  False: it is another word, or one with a separator and nothing behind. */
static bool after(struct part part, const char *word, struct part *out) {
  size_t length = strlen(word);
  if (part.length < length || memcmp(part.start, word, length) != 0) return false;
  *out = (struct part){part.start + length, part.length - length};
  if (!out->length) return true;
  if (*out->start != '=' && *out->start != ':') return false;
  out->start++;
  out->length--;
  return out->length != 0;
}

static const char *read_size(struct part part, uint64_t *out) {
  if (gap__text_parse_size(part.start, part.length, out))
    return "a size in it is no number of bytes, such as 64G or 512M";
  return *out < LEAST_BYTES ? "a size in it is below 2 MiB" : NULL;
}

static const char *read_host(struct part part, struct gap__conf_tiers *out) {
  if (out->host) return "it names host twice";
  out->host = true;
  return part.length ? read_size(part, &out->host_bytes) : NULL;
}

/* The folder, and behind its last colon a size. */
static const char *read_disk(struct part part, struct gap__conf_tiers *out) {
  size_t at = part.length;
  if (*out->disk) return "it names disk twice";
  if (!part.length || *part.start != '/') return "the folder of disk does not begin with /: disk=/folder:SIZE";
  while (at && part.start[at - 1] != ':') at--;
  size_t length = at ? at - 1 : part.length;
  if (!length || length >= sizeof out->disk) return "the folder of disk is too long";
  memcpy(out->disk, part.start, length);
  return at ? read_size((struct part){part.start + at, part.length - at}, &out->disk_bytes) : NULL;
}

/* ---- servers: redis://host:port,host,rediss://host ---- */

static bool begins(struct part part, const char *word) {
  return part.length >= strlen(word) && memcmp(part.start, word, strlen(word)) == 0;
}

/* The configuration is shown and logged: a password has no place in it. */
static bool has_password(struct part part) {
  const char *slashes = memmem(part.start, part.length, "://", 3), *at = memrchr(part.start, '@', part.length);
  const char *user = slashes ? slashes + 3 : part.start;
  return at && at > user && memchr(user, ':', (size_t)(at - user));
}

static const char *add_server(struct part part, struct gap__conf_tiers *out) {
  size_t had = strlen(out->remote), comma = had != 0;
  if (!part.length) return "a server in it has no name";
  if (has_password(part)) return "a password does not belong into it: GAPLESS_REMOTE_PASSWORD holds it";
  if (had + comma + part.length >= sizeof out->remote) return "it is too long";
  if (comma) out->remote[had++] = ',';
  memcpy(out->remote + had, part.start, part.length);
  out->remote[had + part.length] = '\0';
  return NULL;
}

static const char *read_remote(struct part part, struct gap__conf_tiers *out) {
  if (*out->remote) return "it names remote twice";
  if (!begins(part, "redis://") && !begins(part, "rediss://"))
    return "remote does not begin with redis:// or rediss://";
  return add_server(part, out);
}

/* What is no place behind remote is one more server. */
static const char *read_part(struct part part, struct gap__conf_tiers *out) {
  struct part value;
  if (after(part, "host", &value)) return read_host(value, out);
  if (after(part, "disk", &value)) return read_disk(value, out);
  if (after(part, "remote", &value)) return read_remote(value, out);
  if (part.length && strchr("=:", part.start[part.length - 1])) return "a part of it ends where a value should stand";
  return *out->remote ? add_server(part, out) : "a part of it is neither host nor disk nor remote";
}

const char *gap__conf_tiers_read(const char *value, struct gap__conf_tiers *out) {
  char inner[GAP__CONF_TIERS_BYTES];
  size_t length = strlen(value);
  const char *wrong = NULL, *rest = inner;
  bool bracketed = length >= 2 && value[0] == '[' && value[length - 1] == ']';
  memset(out, 0, sizeof *out);
  if (length >= sizeof inner) return "it is too long";
  memcpy(inner, value + bracketed, length - 2 * bracketed);
  inner[length - 2 * bracketed] = '\0';
  while (*rest && !wrong) wrong = read_part(next_part(&rest), out);
  return wrong;
}
