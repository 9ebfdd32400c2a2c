/* The KV cache on the host's side: KV pages, decode steps, prompts that are cached, compaction.  The card is simulated, so driver calls cost their
 * bookkeeping only.  Wants no input; the figures asked for stand at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/kv.h"
#include "harness.h"

enum { SEQUENCES = 256, CONTEXT = 2000, PROMPT = 50000, BULK = 1000, ROUNDS = 2000, STEPS = 512 };
#define GIB ((uint64_t)1 << 30)

struct run {
  struct bench_options options;
  gap_heap *heap;
  json_t *results;
  bool met;
};

static void must(int rc, const char *what) {
  if (rc == 0) return;
  fprintf(stderr, "kv: %s: %s\n", what, gap_strerror(rc));
  exit(1);
}

static void put(struct run *run, const char *what, const char *unit, double asked, const double *values) {
  struct bench_spread spread = bench_spread_of(values, run->options.repeat);
  bool met = spread.median <= asked;
  run->met &= met;
  json_array_append_new(run->results, json_pack("{s:s s:s s:f s:o s:b}", "what", what, "unit", unit, "asked", asked,
                                                "reached", bench_spread_json(&spread), "met", met));
  if (!run->options.json)
    printf("%-62s %9.2f %9.2f %9.2f  %-6s %s\n", what, asked, spread.median, spread.least, unit,
           met ? "met" : "NOT MET");
}

static double *values_of(const struct run *run) { return bench_alloc(run->options.repeat * sizeof(double)); }

/* ---- caches ---- */

static gap_kv_options llama_8b(gap_kv_sharing sharing) {
  gap_kv_options o = GAP_KV_OPTIONS_INIT;
  o.layers = 32, o.heads = 8, o.head_size = 128;
  o.sequences = SEQUENCES + 8, o.tokens = 65536, o.bytes = 72 * GIB, o.sharing = sharing;
  return o;
}

static gap_kv *open_cache(struct run *run, const gap_kv_options *o) {
  gap_kv *kv;
  must(gap_kv_create(run->heap, o, &kv), "a cache");
  return kv;
}

/* ---- KV pages ---- */

static void one_page(struct run *run) {
  gap_kv_options o = llama_8b(GAP_KV_SHARING_OFF);
  gap_kv *kv = open_cache(run, &o);
  double *ns = values_of(run);
  int32_t id;
  for (unsigned r = 0; r < run->options.repeat; r++) {
    uint64_t start = bench_thread_ns();
    for (int i = 0; i < ROUNDS * 100; i++) {
      gap_kv_get_pages(kv, 1, &id);
      gap_kv_free_pages(kv, 1, &id);
    }
    ns[r] = (double)(bench_thread_ns() - start) / (ROUNDS * 100);
  }
  put(run, "get and free a KV page, one at a time", "ns", 20, ns);
  gap_kv_destroy(kv);
  free(ns);
}

static void bulk_pages(struct run *run) {
  gap_kv_options o = llama_8b(GAP_KV_SHARING_OFF);
  gap_kv *kv = open_cache(run, &o);
  double *ns = values_of(run);
  static int32_t ids[BULK];
  must(gap_kv_get_pages(kv, BULK, ids), "KV pages"); /* slabs stay */
  must(gap_kv_free_pages(kv, BULK / 2, ids), "KV pages");
  for (unsigned r = 0; r < run->options.repeat; r++) {
    uint64_t start = bench_thread_ns();
    for (int i = 0; i < ROUNDS; i++) {
      gap_kv_get_pages(kv, BULK, ids);
      gap_kv_free_pages(kv, BULK, ids);
    }
    ns[r] = (double)(bench_thread_ns() - start) / ((double)ROUNDS * BULK);
  }
  put(run, "get and free a KV page, 1,000 at a time", "ns", 5, ns);
  gap_kv_destroy(kv);
  free(ns);
}

/* ---- decode ---- */

static int32_t random_token(void) {
  static uint64_t state = 88172645463325252u;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (int32_t)(state % 128000);
}

static void fill(int32_t *tokens, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) tokens[i] = random_token();
}

static void begin_all(gap_kv *kv, gap_kv_request *requests, int32_t *ids) {
  static int32_t prompt[CONTEXT + SEQUENCES];
  for (uint32_t i = 0; i < SEQUENCES; i++) {
    uint32_t count = CONTEXT - CONTEXT / 2 + i * 4; /* KV pages end at different steps */
    fill(prompt, count);
    must(gap_kv_open(kv, NULL, &requests[i].seq, NULL), "a sequence");
    requests[i].tokens = count;
    requests[i].ids = prompt;
    must(gap_kv_append(kv, &requests[i], 1), "its prompt");
    requests[i].tokens = 1;
    requests[i].ids = ids + i;
  }
}

static double decode(gap_kv *kv, gap_kv_request *requests, int32_t *ids) {
  uint64_t taken = 0;
  for (int step = 0; step < STEPS; step++) {
    gap_kv_delta delta = {.size = sizeof delta};
    fill(ids, SEQUENCES);
    uint64_t start = bench_thread_ns();
    must(gap_kv_append(kv, requests, SEQUENCES), "a step");
    must(gap_kv_take_delta(kv, &delta), "its delta");
    taken += bench_thread_ns() - start;
  }
  return (double)taken / STEPS / 1000;
}

static void decode_steps(struct run *run, gap_kv_sharing sharing, const char *what, double asked) {
  double *us = values_of(run);
  static gap_kv_request requests[SEQUENCES];
  static int32_t ids[SEQUENCES];
  for (unsigned r = 0; r < run->options.repeat; r++) {
    gap_kv_options o = llama_8b(sharing);
    gap_kv *kv = open_cache(run, &o);
    gap_kv_delta delta = {.size = sizeof delta};
    begin_all(kv, requests, ids);
    do must(gap_kv_take_delta(kv, &delta), "a delta");
    while (delta.more);
    us[r] = decode(kv, requests, ids);
    gap_kv_destroy(kv);
  }
  put(run, what, "us", asked, us);
  free(us);
}

/* ---- a cached prompt ---- */

static void warm_prompt(struct run *run, gap_kv_sharing sharing, const char *what, double asked_us) {
  gap_kv_options o = llama_8b(sharing);
  gap_kv *kv = open_cache(run, &o);
  double *us = values_of(run);
  int32_t *tokens = bench_alloc(PROMPT * sizeof *tokens);
  fill(tokens, PROMPT);
  gap_kv_prompt prompt = {.size = sizeof prompt, .tokens = tokens, .count = PROMPT};
  for (unsigned r = 0; r < run->options.repeat + 3; r++) { /* the first ones warm it */
    gap_kv_seq seq;
    uint32_t hit;
    uint64_t start = bench_thread_ns();
    must(gap_kv_open(kv, &prompt, &seq, &hit), "a prompt");
    uint64_t end = bench_thread_ns();
    gap_kv_request rest = {.seq = seq, .tokens = PROMPT - hit, .ids = tokens + hit};
    must(gap_kv_append(kv, &rest, 1), "the rest");
    must(gap_kv_close(kv, seq, 0), "closing");
    if (r < 3) continue;
    if (hit != PROMPT) must(GAP_EMISMATCH, "hits");
    us[r - 3] = (double)(end - start) / 1000;
  }
  put(run, what, "us", asked_us, us);
  gap_kv_destroy(kv);
  free(tokens);
  free(us);
}

/* ---- compaction ---- */

static void half_leaves(gap_kv *kv, gap_kv_seq *seqs) {
  uint32_t left = SEQUENCES;
  for (uint32_t i = 0; i < SEQUENCES; i++) { /* all grow together, as in decoding */
    gap_kv_request r = {.seq = seqs[i], .tokens = 16};
    for (uint32_t n = 0; i == 0 && n < 128; n++)
      for (uint32_t k = 0; k < SEQUENCES; k++) r.seq = seqs[k], must(gap_kv_append(kv, &r, 1), "growth");
  }
  while (left > SEQUENCES / 2) {
    uint32_t i = (uint32_t)random_token() % SEQUENCES;
    if (!seqs[i]) continue;
    must(gap_kv_close(kv, seqs[i], 0), "closing");
    seqs[i] = 0;
    left--;
  }
}

static void compaction(struct run *run, uint32_t heads, const char *held_what, const char *time_what) {
  double *held = values_of(run), *ms = values_of(run);
  for (unsigned r = 0; r < run->options.repeat; r++) {
    gap_kv_options o = llama_8b(GAP_KV_SHARING_OFF);
    gap_kv_seq seqs[SEQUENCES];
    gap_kv_compaction c = {.size = sizeof c};
    gap_kv_stats stats = {.size = sizeof stats};
    gap_kv_shape shape = {.size = sizeof shape};
    o.heads = heads;
    gap_kv *kv = open_cache(run, &o);
    for (uint32_t i = 0; i < SEQUENCES; i++) must(gap_kv_open(kv, NULL, &seqs[i], NULL), "a sequence");
    half_leaves(kv, seqs);
    must(gap_kv_flush(kv), "tables");
    uint64_t start = bench_thread_ns();
    must(gap_kv_compact(kv, &c), "compaction");
    ms[r] = (double)(bench_thread_ns() - start) / 1e6 / ((double)c.bytes_moved / (double)GIB);
    must(gap_kv_get_stats(kv, &stats), "figures");
    must(gap_kv_get_shape(kv, &shape), "the shape");
    uint64_t live = (stats.bytes_live_tokens + stats.bytes_tail + (2 << 20) - 1) >> 21;
    held[r] = (double)(stats.slabs * shape.slab_bytes >> 21) / (double)live;
    gap_kv_destroy(kv);
  }
  put(run, held_what, "ratio", 1.10, held);
  put(run, time_what, "ms/GiB", 2, ms);
  free(held);
  free(ms);
}

int main(int argc, char **argv) {
  struct run run = {.options = bench_options_read(argc, argv, "The KV cache: host time of its calls.", 15, 3),
                    .met = true};
  gap_heap_options ho = GAP_HEAP_OPTIONS_INIT;
  ho.backend = GAP_BACKEND_SIM;
  ho.flags = GAP_HEAP_NO_ENVIRONMENT | GAP_HEAP_NO_THREAD;
  run.results = json_array();
  must(gap_heap_create(&ho, &run.heap), "a heap");
  bench_start_idle_thread();
  if (!run.options.json) {
    bench_where_print();
    printf("%-62s %9s %9s %9s\n", "", "asked", "median", "least");
  }
  one_page(&run);
  bulk_pages(&run);
  decode_steps(&run, GAP_KV_SHARING_OFF, "decode step of 256 sequences with its delta, no sharing", 10);
  decode_steps(&run, GAP_KV_SHARING_FAST, "decode step of 256 sequences with its delta, sharing", 30);
  warm_prompt(&run, GAP_KV_SHARING_FAST, "prompt of 50,000 tokens, all cached: fast hash, tokens compared", 100);
  warm_prompt(&run, GAP_KV_SHARING_SHA256, "prompt of 50,000 tokens, all cached: SHA-256", 1600);
  compaction(&run, 4, "compaction, 32 KiB a layer: pages held / pages of live tokens",
             "compaction, 32 KiB a layer: host time");
  compaction(&run, 8, "compaction, 64 KiB a layer: pages held / pages of live tokens",
             "compaction, 64 KiB a layer: host time");
  if (run.options.json) {
    json_t *all = json_pack("{s:o s:o}", "where", bench_where(), "figures", run.results);
    json_dumpf(all, stdout, JSON_INDENT(1));
    puts("");
  }
  gap_heap_destroy(run.heap);
  return run.met ? 0 : 1;
}
