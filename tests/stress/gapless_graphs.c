/* CUDA graphs beside a KV cache that fills the card: what was measured without the cache is enough with it, the graphs' addresses and
 * pages stay theirs, and what they write nobody else gets.  On a real card the graphs are the driver's. */
#include "support/pattern.h"

#define STREAM_GRAPH ((gap_stream)4096)
enum { GRAPHS = 10, LAYERS = 36, EAGER = 24 };

/* Three blocks of a capture: one that lives as long as the graph, one that is freed inside it, one that is freed after it; the
 * graph uses them all in each replay. */
struct graph {
  gap_pool_id pool;
  struct piece kept, inner, after;
  bool was_replayed;
  void *driver_graph; /* NULL: what it does is queued at each replay */
};

struct server {
  struct world w;
  struct graph graphs[GRAPHS];
  struct piece kv[LAYERS];
};

/* Nothing runs while a stream is captured: no contents yet. */
static struct piece plan(struct world *w, gap_pool_id pool, uint64_t bytes) {
  gap_stream stream = here(w, STREAM_GRAPH);
  return (struct piece){.at = try_get_pool(&w->t, stream, pool, bytes), .bytes = bytes, .stream = stream};
}

static void queue_work(struct server *s, struct graph *g) {
  stamp(&s->w, &g->inner);
  stamp(&s->w, &g->kept);
  look(&s->w, &g->inner);
  stamp(&s->w, &g->after);
  look(&s->w, &g->kept);
}

static void end_capture(struct server *s, struct graph *g) {
  const struct pattern_device *device = s->w.device;
  if (!device->take) {
    device->capture(&s->w, g->kept.stream, false);
    return;
  }
  queue_work(s, g);
  g->driver_graph = device->take(&s->w, g->kept.stream);
}

/* 20 MiB for batch 1 to 136 MiB for batch 512. */
static void capture(struct server *s, int i) {
  struct graph *g = &s->graphs[i];
  uint64_t bytes = scaled(&s->w, (20 + 116 * (uint64_t)i / (GRAPHS - 1)) * MIB);
  g->pool = (gap_pool_id){0, (uint64_t)i + 1};
  assert_int_equal(gap__heap_pool_retain(s->w.t.heap, 0, g->pool), 0);
  s->w.device->capture(&s->w, here(&s->w, STREAM_GRAPH), true);
  g->inner = plan(&s->w, g->pool, bytes / 2);
  g->kept = plan(&s->w, g->pool, bytes / 4);
  try_give(&s->w.t, g->inner.at);
  g->after = plan(&s->w, g->pool, bytes / 3); /* may lie where `inner` was */
  end_capture(s, g);
  try_give(&s->w.t, g->after.at);
}

static void replay(struct server *s, struct graph *g) {
  if (g->driver_graph) s->w.device->launch(&s->w, g->driver_graph, g->kept.stream);
  else queue_work(s, g);
  g->was_replayed = true;
}

static void look_at_outputs(struct server *s) {
  for (int i = 0; i < GRAPHS; i++) {
    if (!s->graphs[i].was_replayed) continue;
    look(&s->w, &s->graphs[i].kept);
    look(&s->w, &s->graphs[i].after);
  }
}

static void drop_graph(struct server *s, struct graph *g) {
  settle(&s->w);
  if (g->driver_graph) s->w.device->drop(&s->w, g->driver_graph);
  if (!g->was_replayed) try_give(&s->w.t, g->kept.at);
  else drop(&s->w, &g->kept);
}

/* A batch of 8 without a graph. */
static void eager_phase(struct server *s) {
  struct piece at[EAGER];
  uint64_t seed = 8; /* the same shapes each time */
  for (int i = 0; i < EAGER; i++) at[i] = put(&s->w, STREAM_A, scaled(&s->w, (1 + try_random(&seed, 16)) * MIB));
  for (int i = 0; i < EAGER; i++) drop(&s->w, &at[i]);
}

/* ---- what is reported ---- */

static uint64_t pool_total(struct world *w, gap_pool_id pool) {
  struct gap__usage usage[64];
  uint32_t count;
  uint64_t total = 0, all = 0;
  assert_int_equal(gap__heap_usage(w->t.heap, 0, usage, 64, &count), 0);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t bytes = usage[i].live_bytes + usage[i].pending_bytes + usage[i].idle_bytes;
    all += bytes;
    if (usage[i].pool.first == pool.first && usage[i].pool.second == pool.second) total += bytes;
  }
  assert_int_equal(all, held_now(w));
  return total;
}

/* Which chunk lies behind each page of the graphs' blocks. */
struct pages {
  const struct graph *graphs;
  uint64_t count, hash;
};

static bool covers(const struct piece *p, gap_addr addr) { return addr + PAGE > p->at && addr < p->at + p->bytes; }

static int add_page(void *arg, const struct gap__dev_mapping *m) {
  struct pages *pages = arg;
  for (int i = 0; i < GRAPHS; i++) {
    const struct graph *g = &pages->graphs[i];
    for (gap_addr at = m->addr; at < m->addr + m->bytes; at += PAGE)
      if (covers(&g->kept, at) || covers(&g->inner, at) || covers(&g->after, at)) {
        pages->count++;
        pages->hash = (pages->hash ^ at ^ m->chunk << 48) * 0x9E3779B97F4A7C15ull;
      }
  }
  return 0;
}

static struct pages pages_of(struct server *s) {
  struct pages pages = {.graphs = s->graphs};
  if (s->w.device->walk) assert_int_equal(s->w.device->walk(&s->w, add_page, &pages), 0);
  return pages;
}

/* ---- the pattern ---- */

/* What a server needs beside its cache: all graphs, and batches without. */
static uint64_t measured(const struct pattern_card *card) {
  struct server s = {.w = world_begin(card, 10 * GIB, "max_memory:100%")};
  uint64_t sum = 0;
  eager_phase(&s);
  for (int i = 0; i < GRAPHS; i++) capture(&s, i);
  eager_phase(&s);
  for (int i = 0; i < GRAPHS; i++) {
    uint64_t total = pool_total(&s.w, s.graphs[i].pool);
    assert_true(total >= s.graphs[i].kept.bytes + s.graphs[i].after.bytes);
    sum += total;
    replay(&s, &s.graphs[i]);
  }
  uint64_t held = held_now(&s.w);
  assert_true(sum < held);
  for (int i = 0; i < GRAPHS; i++) drop_graph(&s, &s.graphs[i]);
  world_end(&s.w);
  return held;
}

static void fill_cache(struct server *s, uint64_t bytes) {
  for (int i = 0; i < LAYERS; i++) s->kv[i] = put(&s->w, STREAM_A, bytes / LAYERS / PAGE * PAGE);
}

static void graphs_beside_a_full_card(void **state) {
  uint64_t need = measured(*state);
  struct server s = {.w = world_begin(*state, 10 * GIB, "max_memory:100%")};
  uint64_t card = scaled(&s.w, 10 * GIB), cache = card - need;
  assert_true(cache < card &&
              cache >= card / 100 * (s.w.card->addresses ? 50 : 85)); /* driver allocations are coarse */
  fill_cache(&s, cache);
  eager_phase(&s);
  for (int i = 0; i < GRAPHS; i++) capture(&s, i);
  struct pages before = pages_of(&s);
  assert_true(before.count > 0 || !s.w.device->walk);
  for (int round = 0; round < 200; round++) {
    replay(&s, &s.graphs[try_random(&s.w.seed, GRAPHS)]);
    if (round % 4 == 0) eager_phase(&s);
    look_at_outputs(&s);
    if (round % 50 == 0) settle(&s.w), try_trim(&s.w.t); /* empty_cache must not touch them either */
  }
  struct pages after = pages_of(&s);
  assert_true(after.count == before.count && after.hash == before.hash);
  for (int i = 0; i < GRAPHS; i++) {
    drop_graph(&s, &s.graphs[i]);
    assert_int_equal(gap__heap_pool_release(s.w.t.heap, 0, s.graphs[i].pool), 0);
  }
  for (int i = 0; i < LAYERS; i++) drop(&s.w, &s.kv[i]);
  settle(&s.w);
  struct piece all = put(&s.w, STREAM_A, scaled(&s.w, 9 * GIB)); /* what the graphs had serves everybody again */
  drop(&s.w, &all);
  world_end(&s.w);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {ON_EACH_CARD(graphs_beside_a_full_card)};
  return RUN_PATTERNS(tests, argc, argv);
}
