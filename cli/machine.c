#include "machine.h"

#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "dev/cuda/cuda.h"
#include "gapless/gapless.h"

/* What a card may lack, and what is lost then. */
static const struct ability {
  const char *key, *name, *lost;
  size_t at;
} abilities[] = {
    {"vmm", "virtual memory management", "idle memory cannot move, as with PyTorch's own allocator",
     offsetof(struct gap__cuda_info, vmm)},
    {"exportable", "sharing with processes by handle", "CUDA IPC of PyTorch tensors goes through a copy",
     offsetof(struct gap__cuda_info, exportable)},
    {"host_chunks", "pages of host memory at device addresses", "nothing in this version",
     offsetof(struct gap__cuda_info, host_chunks)},
    {"wait_values", "waiting for a value in stream order", "nothing in this version",
     offsetof(struct gap__cuda_info, wait_values)},
    {"stream_ids", "numbers of streams", "a stream that takes the handle of a destroyed one is not told from it",
     offsetof(struct gap__cuda_info, stream_ids)},
};
enum { ABILITY_COUNT = sizeof abilities / sizeof abilities[0] };

static bool has(const struct gap__cuda_info *info, const struct ability *ability) {
  bool value;
  memcpy(&value, (const char *)info + ability->at, sizeof value);
  return value;
}

/* ---- words ---- */

static void print_card(int ordinal, struct gap__dev *dev) {
  const struct gap__cuda_info *info = gap__cuda_info(dev);
  char text[GAP__TEXT_BYTES];
  printf("  GPU %d: %s, %s, compute capability %d.%d, driver for CUDA %d.%d\n", ordinal, info->name,
         gap__text_size(dev->caps.total_bytes, text), info->capability_major, info->capability_minor,
         info->driver_version / 1000, info->driver_version % 1000 / 10);
  for (int i = 0; i < ABILITY_COUNT; i++) {
    bool yes = has(info, &abilities[i]);
    printf("    %-42s %s%s\n", abilities[i].name, yes ? "yes" : "no; ", yes ? "" : abilities[i].lost);
  }
  if (*info->missing) printf("    the driver lacks: %s\n", info->missing);
  if (*info->fallback) printf("    given up: %s\n", info->fallback);
}

void machine_print(void) {
  int count = 0, rc = gap__cuda_device_count(NULL, &count);
  if (rc || !count) { /* the log has said why */
    puts("this machine: no NVIDIA card that can be used");
    return;
  }
  puts("this machine:");
  for (int i = 0; i < count; i++) {
    struct gap__dev *dev;
    if ((rc = gap__cuda_create(i, NULL, &dev)) != 0) printf("  GPU %d: %s\n", i, gap_strerror(rc));
    else print_card(i, dev), gap__dev_destroy(dev);
  }
}

/* ---- JSON ---- */

static json_t *card_json(int ordinal) {
  struct gap__dev *dev;
  int rc = gap__cuda_create(ordinal, NULL, &dev);
  if (rc) return json_pack("{s:i, s:s}", "gpu", ordinal, "error", gap_strerror(rc));
  const struct gap__cuda_info *info = gap__cuda_info(dev);
  json_t *card =
      json_pack("{s:i, s:s, s:I, s:i, s:[i,i], s:s, s:s}", "gpu", ordinal, "name", info->name, "bytes",
                (json_int_t)dev->caps.total_bytes, "driver", info->driver_version, "capability", info->capability_major,
                info->capability_minor, "missing", info->missing, "given_up", info->fallback);
  for (int i = 0; i < ABILITY_COUNT && card; i++)
    json_object_set_new(card, abilities[i].key, json_boolean(has(info, &abilities[i])));
  gap__dev_destroy(dev);
  return card;
}

char *machine_json(void) {
  int count = 0, rc = gap__cuda_device_count(NULL, &count);
  json_t *cards = json_array(), *all;
  for (int i = 0; i < count && !rc; i++) json_array_append_new(cards, card_json(i));
  all = json_pack("{s:s, s:s?, s:o}", "version", gap_version(), "error", rc ? gap_strerror(rc) : NULL, "cards", cards);
  char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
  json_decref(all);
  return text;
}
