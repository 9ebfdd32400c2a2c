/* The calls of gapless/remote.h: the plug-in does the work.  Whoever holds a store has loaded it. */
#include "gapless/remote.h"

#include <stdio.h>

#include "base/log.h"
#include "remote/plugin.h"

static const struct gap__remote_plugin *plugin(void) {
  const struct gap__remote_plugin *out;
  char message[8];
  return gap__remote_load(&out, message, sizeof message) ? NULL : out;
}

static void log_line(int level, const char *line) { gap__log(level, "%s", line); }

int gap_remote_open(const gap_remote_options *options, gap_remote **out, char *message, size_t bytes) {
  const struct gap__remote_plugin *p;
  char own[400] = "";
  if (!message || bytes == 0) message = own, bytes = sizeof own;
  message[0] = '\0';
  if (!options || !out || options->size != sizeof *options) {
    snprintf(message, bytes, "options of another size");
    return GAP_EINVAL;
  }
  int rc = gap__remote_load(&p, message, bytes);
  if (rc == 0) rc = p->open(options, log_line, out, message, bytes);
  if (rc) gap__log(GAP__LOG_ERROR, "remote: %s", message);
  return rc;
}

void gap_remote_close(gap_remote *remote) {
  if (remote) plugin()->close(remote);
}

static int usable(const gap_remote_item *items, uint32_t count, uint32_t timeout_ms) {
  if (!items || count < 1 || count > GAP_REMOTE_BATCH_MAX || timeout_ms < 1 || timeout_ms > 3600000) return 0;
  for (uint32_t i = 0; i < count; i++)
    if (!items[i].key || items[i].key_bytes < 1 || items[i].key_bytes > GAP_REMOTE_KEY_BYTES_MAX) return 0;
  return 1;
}

static int have_values(const gap_remote_item *items, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if ((!items[i].value && items[i].bytes) || items[i].bytes > GAP_REMOTE_VALUE_BYTES_MAX) return 0;
  return 1;
}

int gap_remote_put(gap_remote *remote, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                   gap_remote_ticket *ticket) {
  if (!remote || !usable(items, count, timeout_ms) || !have_values(items, count)) return GAP_EINVAL;
  return plugin()->put(remote, items, count, timeout_ms, ticket);
}

int gap_remote_get(gap_remote *remote, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                   gap_remote_ticket *ticket) {
  if (!remote || !ticket || !usable(items, count, timeout_ms) || !have_values(items, count)) return GAP_EINVAL;
  return plugin()->get(remote, items, count, timeout_ms, ticket);
}

int gap_remote_contains(gap_remote *remote, gap_remote_item *items, uint32_t count, uint32_t timeout_ms,
                        gap_remote_ticket *ticket) {
  if (!remote || !ticket || !usable(items, count, timeout_ms)) return GAP_EINVAL;
  return plugin()->contains(remote, items, count, timeout_ms, ticket);
}

uint32_t gap_remote_prefix(const gap_remote_item *items, uint32_t count) {
  uint32_t length = 0;
  while (items && length < count && items[length].outcome == GAP_REMOTE_DONE) length++;
  return length;
}

int gap_remote_poll(gap_remote *remote, gap_remote_ticket ticket) {
  return remote ? plugin()->poll(remote, ticket) : GAP_EINVAL;
}

int gap_remote_wait(gap_remote *remote, gap_remote_ticket ticket, uint32_t timeout_ms) {
  return remote ? plugin()->wait(remote, ticket, timeout_ms) : GAP_EINVAL;
}

int gap_remote_cancel(gap_remote *remote, gap_remote_ticket ticket) {
  return remote ? plugin()->cancel(remote, ticket) : GAP_EINVAL;
}

int gap_remote_drain(gap_remote *remote, uint32_t timeout_ms) {
  return remote ? plugin()->drain(remote, timeout_ms) : GAP_EINVAL;
}

int gap_remote_get_stats(gap_remote *remote, gap_remote_stats *out) {
  return remote && out && out->size == sizeof *out ? plugin()->stats(remote, out) : GAP_EINVAL;
}

int gap_remote_server_count(gap_remote *remote, uint32_t *out) {
  return remote && out ? plugin()->server_count(remote, out) : GAP_EINVAL;
}

int gap_remote_look(gap_remote *remote, uint32_t index, uint32_t timeout_ms, gap_remote_server *out) {
  return remote && out && out->size == sizeof *out ? plugin()->look(remote, index, timeout_ms, out) : GAP_EINVAL;
}
