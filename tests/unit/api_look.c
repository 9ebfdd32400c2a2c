/* Usage, statistics, walk and texts of the C interface, and docs/statistics.md.
 *
 * The document is made from stats.def: with GAP_WRITE_DOCS set in the environment this program writes it. */
#include <time.h>

#include "base/text.h"
#include "core/heap.h"
#include "support/api_try.h"

#define DOCUMENT GAP_TEST_DATA "/../../docs/statistics.md"

/* ---- usage ---- */

static void usage_adds_up(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 2 * GIB, "reserve:0");
  gap_usage usage = {.size = sizeof usage - 8};
  assert_int_equal(gap_get_usage(heap, 0, &usage), GAP_EINVAL);
  usage.size = sizeof usage;
  assert_int_equal(gap_get_usage(heap, 2, &usage), GAP_EINVAL);
  gap_addr a = api_get(heap, 8, 10 * MIB), b = api_get(heap, 8, 3 * MIB + 5);
  usage = api_usage(heap, 0);
  assert_int_equal(usage.live_bytes, 13 * MIB + 512);
  assert_int_equal(usage.requested_bytes, 13 * MIB + 5);
  assert_int_equal(usage.held_bytes, 14 * MIB);
  assert_int_equal(usage.idle_stuck_bytes, MIB - 512);
  assert_int_equal(usage.card_total_bytes, 2 * GIB);
  assert_int_equal(usage.card_free_bytes, 2 * GIB - 14 * MIB);
  assert_int_equal(usage.largest_servable_bytes, 2 * GIB - 14 * MIB);
  api_give(heap, a);
  usage = api_usage(heap, 0);
  assert_int_equal(usage.idle_returnable_bytes, 10 * MIB);
  assert_int_equal(usage.peak_live_bytes, 13 * MIB + 512);
  assert_int_equal(usage.peak_held_bytes, 14 * MIB);
  assert_int_equal(usage.largest_servable_bytes, 2 * GIB - 4 * MIB);
  assert_int_equal(gap_trim(heap, 0, NONE, NULL), 0);
  assert_int_equal(gap_reset_peaks(heap, 0), 0);
  usage = api_usage(heap, 0);
  assert_int_equal(usage.peak_live_bytes, 3 * MIB + 512);
  assert_int_equal(usage.peak_held_bytes, 4 * MIB);
  api_give(heap, b);
  api_close(heap);
}

/* The page maker is at work when a program looks, and does not go on between two looks. */
static void looks_see_the_same(void **state) {
  (void)state;
  int64_t made = 0;
  for (int round = 0; round < 20; round++) {
    gap_heap *heap = api_open(GAP_BACKEND_HOST, 2 * GIB, "reserve:0");
    gap_addr a = api_get(heap, 8, 256 * MIB);
    nanosleep(&(struct timespec){.tv_nsec = round * 500000}, NULL);
    gap_usage first = api_usage(heap, 0);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    gap_usage second = api_usage(heap, 0);
    assert_int_equal(second.held_bytes, first.held_bytes);
    assert_int_equal(second.peak_held_bytes, first.peak_held_bytes);
    made += (int64_t)(first.held_bytes - 256 * MIB);
    api_give(heap, a);
    api_close(heap);
  }
  assert_true(made > 0);
}

/* ---- statistics ---- */

struct names {
  char names[512][64];
  int count, stop_at;
};

static int keep_name(void *arg, const char *name, int64_t value) {
  struct names *n = arg;
  (void)value;
  if (n->count < 512) snprintf(n->names[n->count++], sizeof n->names[0], "%s", name);
  return n->count == n->stop_at ? 77 : 0;
}

static bool has(const struct names *n, const char *name) {
  for (int i = 0; i < n->count; i++)
    if (strcmp(n->names[i], name) == 0) return true;
  return false;
}

static const char *const torch_metrics[] = {"allocation",      "segment",        "active",       "inactive_split",
                                            "allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes",
                                            "requested_bytes"};
static const char *const torch_kinds[] = {"all", "large_pool", "small_pool"};
static const char *const torch_figures[] = {"current", "peak", "allocated", "freed"};
static const char *const torch_scalars[] = {"num_alloc_retries", "num_ooms",        "num_sync_all_streams",
                                            "num_device_alloc",  "num_device_free", "max_split_size"};

/* All 122 keys of torch.cuda.memory_stats in torch 2.11. */
static void torch_names(void **state) {
  (void)state;
  static struct names all;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  char name[64];
  int count = 0;
  all = (struct names){0};
  assert_int_equal(gap_stats(heap, 0, keep_name, &all), 0);
  for (int m = 0; m < 9; m++)
    for (int k = 0; k < 3; k++)
      for (int f = 0; f < 4; f++, count++) {
        snprintf(name, sizeof name, "%s.%s.%s", torch_metrics[m], torch_kinds[k], torch_figures[f]);
        if (!has(&all, name)) fail_msg("%s", name);
      }
  for (int f = 0; f < 4; f++, count += 2) {
    snprintf(name, sizeof name, "oversize_allocations.%s", torch_figures[f]);
    assert_true(has(&all, name));
    snprintf(name, sizeof name, "oversize_segments.%s", torch_figures[f]);
    assert_true(has(&all, name));
  }
  for (int i = 0; i < 6; i++, count++) assert_true(has(&all, torch_scalars[i]));
  assert_int_equal(count, 122);
  for (int i = 0; i < all.count; i++)
    for (int j = i + 1; j < all.count; j++) assert_string_not_equal(all.names[i], all.names[j]);
  gap_heap_destroy(heap);
}

static void one_by_one(void **state) {
  (void)state;
  static struct names all;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, NULL);
  int64_t value = 5;
  all = (struct names){.stop_at = 10};
  assert_int_equal(gap_stats(heap, 0, keep_name, &all), 77);
  assert_int_equal(all.count, 10);
  assert_int_equal(gap_stats(heap, 3, keep_name, &all), GAP_EINVAL);
  assert_int_equal(gap_stat(heap, 0, "no_such_figure", &value), GAP_EKEY);
  assert_int_equal(gap_stat(heap, -1, "num_ooms", &value), GAP_EINVAL);
  assert_int_equal(value, 5);
  gap_addr addr;
  api_give(heap, api_get(heap, 0, 5 * MIB));
  assert_int_equal(gap_alloc(heap, 0, 0, 999 * GIB, &addr), GAP_ENOMEM);
  assert_int_equal(api_stat(heap, 0, "num_ooms"), 1);
  assert_int_equal(api_stat(heap, 0, "rung.grow.count"), 1);
  assert_int_equal(api_stat(heap, 0, "rung.fail.count"), 1);
  assert_int_equal(api_stat(heap, 0, "driver.chunk_create.calls"), 3);
  assert_true(api_stat(heap, 0, "driver.set_access.us") > 0);
  assert_int_equal(api_stat(heap, 0, "allocation.large_pool.allocated"), 1);
  assert_int_equal(api_stat(heap, 0, "max_split_size"), -1);
  assert_int_equal(gap_reset_accumulated(heap, 0), 0);
  assert_int_equal(gap_reset_accumulated(heap, 9), GAP_EINVAL);
  assert_int_equal(gap_reset_peaks(heap, 9), GAP_EINVAL);
  assert_int_equal(api_stat(heap, 0, "num_ooms"), 0);
  assert_int_equal(api_stat(heap, 0, "driver.chunk_create.calls"), 0);
  assert_int_equal(api_stat(heap, 0, "allocation.large_pool.allocated"), 0);
  assert_int_equal(api_stat(heap, 1, "driver_calls"), 0); /* nobody has opened it */
  gap_heap_destroy(heap);
}

/* ---- the document ---- */

static void write_head(struct gap__text *out) {
  gap__text_add(
      out, "%s",
      "# Statistics\n"
      "\n"
      "<!-- Made by `GAP_WRITE_DOCS=1 unit_api_look`; change src/core/stats.def or tests/unit/api_look.c instead. -->\n"
      "\n"
      "What `gap_stats` and `gap_stat` report of one device, by name. The names that\n"
      "`torch.cuda.memory_stats` has are the same here, with the same meaning.\n"
      "\n"
      "## Current, peak, allocated, freed\n"
      "\n"
      "Each of these is twelve figures: `NAME.POOL.FIGURE`, where POOL is `all`, `small_pool` (blocks up to\n"
      "1 MiB) or `large_pool`, and FIGURE is `current`, `peak` (since `gap_reset_peaks`), `allocated` or `freed`\n"
      "(running totals since `gap_reset_accumulated`): `allocated_bytes.all.peak`.\n"
      "\n"
      "| name | what |\n"
      "|---|---|\n");
#define GAP_STAT_ARRAY(name, help) gap__text_add(out, "| `%s` | %s |\n", #name, help);
#include "core/stats.def"
}

static void write_scalar(struct gap__text *out, const char *name, const char *unit, const char *help) {
  const char *last = strrchr(name, '_');
  if (strncmp(name, "oversize_", 9) == 0) gap__text_add(out, "| `%.*s.%s` ", (int)(last - name), name, last + 1);
  else gap__text_add(out, "| `%s` ", name);
  gap__text_add(out, "| %s | %s |\n", unit, help);
}

static void write_scalars(struct gap__text *out) {
  gap__text_add(out, "%s",
                "\n"
                "## Single figures\n"
                "\n"
                "| name | unit | what |\n"
                "|---|---|---|\n");
#define GAP_STAT_SCALAR(name, unit, help) write_scalar(out, #name, #unit, help);
#include "core/stats.def"
}

static void write_work(struct gap__text *out) {
  gap__text_add(
      out, "%s",
      "\n"
      "## The reclaim ladder\n"
      "\n"
      "`rung.NAME.count`: requests that the rung served; `rung.NAME.us`: time spent in it, whether it served or\n"
      "not. The names, in the order in which they are climbed:");
  for (int i = 0; i < GAP__RUNG_COUNT; i++)
    gap__text_add(out, "%s\n`%s`", i ? "," : "", gap__rung_name((enum gap__rung)i));
  gap__text_add(out, "%s",
                ".\n"
                "\n"
                "## Driver calls\n"
                "\n"
                "`driver.NAME.calls` and `driver.NAME.us` are calls by allocating threads and their time,\n"
                "`driver.NAME.background_calls` and `driver.NAME.background_us` those of the page maker. The names:");
  for (int i = 0; i < GAP__CALL_COUNT; i++)
    gap__text_add(out, "%s\n`%s`", i ? "," : "", gap__dev_call_name((enum gap__dev_call)i));
  gap__text_add(out, ".\n");
}

static void read_document(struct gap__text *out) {
  FILE *file = fopen(DOCUMENT, "rb");
  char piece[4096];
  for (size_t n; file && (n = fread(piece, 1, sizeof piece, file)) > 0;) gap__text_add_bytes(out, piece, n);
  if (file) fclose(file);
}

static void document(void **state) {
  (void)state;
  struct gap__text made = {0}, found = {0};
  write_head(&made);
  write_scalars(&made);
  write_work(&made);
  if (getenv("GAP_WRITE_DOCS")) {
    FILE *file = fopen(DOCUMENT, "wb");
    assert_non_null(file);
    fputs(gap__text_str(&made), file);
    fclose(file);
  }
  read_document(&found);
  if (strcmp(gap__text_str(&made), gap__text_str(&found)) != 0)
    fail_msg("docs/statistics.md is out of date: run unit_api_look with GAP_WRITE_DOCS=1");
  gap__text_free(&made);
  gap__text_free(&found);
}

/* ---- the walk ---- */

struct seen {
  uint64_t live, pending, idle, requested;
  int blocks, idle_blocks, stop_at;
  gap_addr last;
};

static int see(void *arg, const gap_block *block) {
  struct seen *seen = arg;
  seen->blocks++;
  if (block->state == GAP_BLOCK_LIVE) seen->live += block->bytes;
  if (block->state == GAP_BLOCK_PENDING) seen->pending += block->bytes;
  if (block->state == GAP_BLOCK_IDLE) seen->idle += block->bytes, seen->idle_blocks++;
  seen->requested += block->requested;
  return seen->blocks == seen->stop_at ? 55 : 0;
}

static void walk(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 0, NULL);
  struct seen seen = {0};
  assert_int_equal(gap_walk(heap, 0, see, &seen), 0); /* not open yet */
  assert_int_equal(seen.blocks, 0);
  assert_int_equal(gap_walk(heap, 2, see, &seen), GAP_EINVAL);
  gap_addr a = api_get(heap, 8, 3 * MIB - 7), b = api_get(heap, 8, 2 * MIB);
  api_get(heap, 8, 100);
  assert_int_equal(gap_record_stream(heap, b, 16), 0);
  api_give(heap, b);
  assert_int_equal(gap_walk(heap, 0, see, &seen), 0);
  gap_usage usage = api_usage(heap, 0);
  assert_int_equal(seen.live, 3 * MIB + 512);
  assert_int_equal(seen.pending, 2 * MIB);
  assert_int_equal(seen.requested, 5 * MIB - 7 + 100);
  assert_int_equal(seen.live + seen.pending + seen.idle, usage.held_bytes);
  seen = (struct seen){.stop_at = 2};
  assert_int_equal(gap_walk(heap, 0, see, &seen), 55);
  assert_int_equal(seen.blocks, 2);
  api_give(heap, a);
  api_close(heap);
}

/* Small blocks that were freed are kept apart for the next request; who looks sees what lies idle side by side as one. */
static void walk_merges(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 0, NULL);
  gap_addr small[11];
  for (int i = 0; i < 11; i++) small[i] = api_get(heap, 8, 512);
  for (int i = 0; i < 11; i++)
    if (i != 5) api_give(heap, small[i]);
  struct seen seen = {0};
  assert_int_equal(gap_walk(heap, 0, see, &seen), 0);
  assert_int_equal(seen.idle_blocks, 2); /* before the live one, and behind it */
  assert_int_equal(seen.live, 512);
  api_close(heap);
}

/* ---- texts ---- */

typedef int text_fn(gap_heap *, int, char *, size_t, size_t *);

static void is_cut_well(gap_heap *heap, text_fn *write) {
  static char whole[20000], part[40];
  size_t needed = 0, again = 0;
  assert_int_equal(write(heap, 0, whole, sizeof whole, &needed), 0);
  assert_true(needed > 40);
  assert_int_equal(strlen(whole), needed);
  memset(part, '#', sizeof part);
  assert_int_equal(write(heap, 0, part, sizeof part - 1, &again), 0);
  assert_int_equal(strlen(part), sizeof part - 2);
  assert_int_equal(part[sizeof part - 1], '#');
  assert_memory_equal(part, whole, sizeof part - 2);
  assert_int_equal(write(heap, 0, NULL, 0, &again), 0);
  assert_int_equal(write(heap, 0, part, sizeof part, NULL), 0);
  assert_int_equal(write(heap, 4, part, sizeof part, &again), GAP_EINVAL);
}

static void texts(void **state) {
  (void)state;
  gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, "max_memory:30MiB");
  char text[2000] = "x";
  size_t needed = 9;
  gap_addr addr;
  assert_int_equal(gap_explain(heap, 0, text, sizeof text, &needed), 0);
  assert_string_equal(text, "");
  assert_int_equal(needed, 0);
  api_get(heap, 8, 20 * MIB);
  assert_int_equal(gap_alloc(heap, 0, 8, 12 * MIB, &addr), GAP_ENOMEM);
  assert_int_equal(gap_explain(heap, 0, text, sizeof text, NULL), 0);
  assert_non_null(strstr(text, "12 MiB"));
  assert_non_null(strstr(text, "30 MiB"));
  is_cut_well(heap, gap_explain);
  is_cut_well(heap, gap_summary);
  assert_int_equal(gap_check(heap, 0, text, sizeof text), 0);
  assert_string_equal(text, "");
  assert_int_equal(gap_check(heap, 5, text, sizeof text), GAP_EINVAL);
  gap_heap_destroy(heap);
}

/* ---- out of memory ---- */

struct giver {
  gap_heap *heap;
  gap_addr blocks[4];
  int count, calls, device;
  uint64_t bytes;
};

static int give_one(void *arg, int device, gap_stream stream, uint64_t bytes) {
  struct giver *giver = arg;
  (void)stream;
  giver->calls++;
  giver->device = device;
  giver->bytes = bytes;
  if (!giver->count) return 0;
  api_give(giver->heap, giver->blocks[--giver->count]);
  assert_int_equal(gap_trim(giver->heap, device, NONE, NULL), 0); /* it may */
  return 1;
}

static void out_of_memory(void **state) {
  (void)state;
  const char *strategies[] = {"max_memory:60MiB", "max_memory:60MiB,strategy:caching_allocator"};
  for (int i = 0; i < 2; i++) {
    gap_heap *heap = api_open(GAP_BACKEND_SIM, 0, strategies[i]);
    struct giver giver = {.heap = heap};
    gap_addr addr;
    assert_int_equal(gap_set_oom(heap, give_one, &giver), 0);
    for (giver.count = 0; giver.count < 3; giver.count++) giver.blocks[giver.count] = api_get(heap, 8, 20 * MIB);
    api_get(heap, 16, 20 * MIB);
    assert_int_equal(giver.calls, 1);
    assert_int_equal(giver.bytes, 20 * MIB);
    assert_int_equal(gap_alloc(heap, 0, 8, 40 * MIB, &addr), GAP_ENOMEM); /* one is not enough */
    assert_int_equal(giver.calls, 2);
    giver.count = 0;
    assert_int_equal(gap_alloc(heap, 0, 8, 40 * MIB, &addr), GAP_ENOMEM);
    assert_int_equal(giver.calls, 3);
    assert_int_equal(gap_set_oom(heap, NULL, NULL), 0);
    assert_int_equal(gap_alloc(heap, 0, 8, 40 * MIB, &addr), GAP_ENOMEM);
    assert_int_equal(giver.calls, 3);
    api_close(heap);
  }
}

struct asker {
  gap_heap *heaps[2];
  int calls[2];
};

/* Asks the heap that is out of memory, and the other one, whose callback is this one too. */
static int ask_for_more(void *arg, int device, gap_stream stream, uint64_t bytes) {
  struct asker *asker = arg;
  gap_addr addr;
  int which = bytes == 80 * MIB;
  (void)device;
  assert_true(asker->calls[which]++ < 2);
  for (int i = 0; i < 2; i++)
    assert_int_equal(gap_alloc(asker->heaps[i], 0, stream, i ? 80 * MIB : 70 * MIB, &addr), GAP_ENOMEM);
  return 0;
}

/* Requests made inside a callback do not lead into it again. */
static void out_of_memory_inside(void **state) {
  (void)state;
  struct asker asker = {.calls = {0, 0}};
  gap_addr addr;
  for (int i = 0; i < 2; i++) {
    asker.heaps[i] = api_open(GAP_BACKEND_SIM, 0, "max_memory:60MiB");
    assert_int_equal(gap_set_oom(asker.heaps[i], ask_for_more, &asker), 0);
  }
  for (int i = 1; i <= 2; i++) {
    assert_int_equal(gap_alloc(asker.heaps[0], 0, 8, 70 * MIB, &addr), GAP_ENOMEM);
    assert_int_equal(asker.calls[0], i);
    assert_int_equal(asker.calls[1], i);
  }
  for (int i = 0; i < 2; i++) api_close(asker.heaps[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(usage_adds_up), cmocka_unit_test(looks_see_the_same),
      cmocka_unit_test(torch_names),   cmocka_unit_test(one_by_one),
      cmocka_unit_test(document),      cmocka_unit_test(walk),
      cmocka_unit_test(walk_merges),   cmocka_unit_test(texts),
      cmocka_unit_test(out_of_memory), cmocka_unit_test(out_of_memory_inside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
