/* Statistics by name: torch.cuda.memory_stats' for its figures, ours for the rest.  docs/statistics.md lists them. */
#include <stdio.h>
#include <string.h>

#include "api/client.h"

struct teller {
  gap_stat_fn fn;
  void *arg;
  int stop; /* what fn returned other than 0 */
};

static void tell(struct teller *t, const char *name, int64_t value) {
  if (!t->stop) t->stop = t->fn(t->arg, name, value);
}

static void tell_part(struct teller *t, const char *name, const char *part, const char *which, int64_t value) {
  char full[96];
  snprintf(full, sizeof full, "%s.%s%s%s", name, part, *part ? "." : "", which);
  tell(t, full, value);
}

static void tell_stat(struct teller *t, const char *name, const char *part, const struct gap__stat *stat) {
  tell_part(t, name, part, "current", stat->current);
  tell_part(t, name, part, "peak", stat->peak);
  tell_part(t, name, part, "allocated", stat->allocated);
  tell_part(t, name, part, "freed", stat->freed);
}

static void tell_array(struct teller *t, const char *name, const struct gap__stat stat[GAP__KIND_COUNT]) {
  tell_stat(t, name, "all", &stat[GAP__KIND_ALL]);
  tell_stat(t, name, "small_pool", &stat[GAP__KIND_SMALL]);
  tell_stat(t, name, "large_pool", &stat[GAP__KIND_LARGE]);
}

/* "oversize_allocations_current" is torch's "oversize_allocations.current". */
static void tell_scalar(struct teller *t, const char *name, int64_t value) {
  char full[96];
  const char *last = strrchr(name, '_');
  if (strncmp(name, "oversize_", 9) != 0 || !last) {
    tell(t, name, value);
    return;
  }
  snprintf(full, sizeof full, "%.*s.%s", (int)(last - name), name, last + 1);
  tell(t, full, value);
}

static void tell_rungs(struct teller *t, const struct gap__stats *s) {
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++) {
    tell_part(t, "rung", gap__rung_name((enum gap__rung)rung), "count", s->rung_count[rung]);
    tell_part(t, "rung", gap__rung_name((enum gap__rung)rung), "us", s->rung_us[rung]);
  }
}

static void tell_driver(struct teller *t, const struct gap__stats *s) {
  for (int call = 0; call < GAP__CALL_COUNT; call++) {
    const struct gap__driver_figure *figure = &s->driver[call];
    const char *name = gap__dev_call_name((enum gap__dev_call)call);
    tell_part(t, "driver", name, "calls", figure->calls);
    tell_part(t, "driver", name, "us", figure->ns / 1000);
    tell_part(t, "driver", name, "background_calls", figure->background_calls);
    tell_part(t, "driver", name, "background_us", figure->background_ns / 1000);
  }
}

int gap__stats_tell(const struct gap__stats *s, gap_stat_fn fn, void *arg) {
  struct teller t = {fn, arg, 0};
#define GAP_STAT_ARRAY(name, help) tell_array(&t, #name, s->name);
#define GAP_STAT_SCALAR(name, unit, help) tell_scalar(&t, #name, s->name);
#include "core/stats.def"
  tell_rungs(&t, s);
  tell_driver(&t, s);
  return t.stop;
}

int gap_stats(gap_heap *heap, int device, gap_stat_fn fn, void *arg) {
  struct gap__stats s;
  gap__heap_rest(heap, device);
  int rc = gap__heap_stats(heap, device, &s);
  return rc ? rc : gap__stats_tell(&s, fn, arg);
}

struct wanted {
  const char *name;
  int64_t value;
};

static int compare(void *arg, const char *name, int64_t value) {
  struct wanted *wanted = arg;
  if (strcmp(name, wanted->name) != 0) return 0;
  wanted->value = value;
  return 1;
}

int gap_stat(gap_heap *heap, int device, const char *name, int64_t *out) {
  struct wanted wanted = {.name = name};
  int rc = gap_stats(heap, device, compare, &wanted);
  if (rc == 1) *out = wanted.value;
  return rc < 0 ? rc : rc == 1 ? 0 : GAP_EKEY;
}

int gap_reset_peaks(gap_heap *heap, int device) {
  gap__heap_rest(heap, device);
  return gap__heap_reset_peaks(heap, device);
}

int gap_reset_accumulated(gap_heap *heap, int device) { return gap__heap_reset_accumulated(heap, device); }
