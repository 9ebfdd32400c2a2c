/* gapless kv replay as one JSON object. */
#include <jansson.h>

#include "gapless/kv_replay.h"
#include "trace/json_text.h"

static json_t *spread(const gap_kv_spread *s) {
  return json_pack("{s:f s:f s:f}", "median", s->median, "p90", s->p90, "most", s->most);
}

static double share(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 0; }

static json_t *counters(const gap_kv_stats *stats) {
  json_t *all = json_object();
#define X(name) json_object_set_new(all, #name, json_integer((json_int_t)stats->name));
  GAP_KV_STATS(X)
#undef X
  return all;
}

static json_t *waste(const gap_kv_replay_result *r) {
  return json_pack("{s:o s:f s:f s:f s:f s:f}", "held_to_live", spread(&r->waste), "tail", r->tail, "window", r->window,
                   "free", r->free, "spare", r->spare, "tables", r->tables);
}

static json_t *hits(const gap_kv_replay_options *o, const gap_kv_replay_result *r) {
  const gap_kv_stats *s = &r->stats;
  uint64_t pages_hit = (s->tokens_hit - s->tokens_hit_partial) / o->page_tokens;
  return json_pack("{s:I s:I s:I s:I s:f s:f s:f}", "tokens_asked", (json_int_t)s->tokens_asked, "tokens_hit",
                   (json_int_t)s->tokens_hit, "kv_pages_asked", (json_int_t)s->kv_pages_asked, "kv_pages_hit",
                   (json_int_t)pages_hit, "rate", share(s->tokens_hit, r->tokens_in), "rate_kv_pages",
                   share(pages_hit, s->kv_pages_asked), "ceiling_kv_pages",
                   share(s->kv_pages_ceiling, s->kv_pages_asked));
}

static json_t *rate(const gap_kv_rate *r) {
  return json_pack("{s:I s:I}", "latency_ns", (json_int_t)r->latency_ns, "bytes_s", (json_int_t)r->bytes_s);
}

static json_t *tiers(const gap_kv_replay_result *r) {
  json_t *all = json_pack("{s:o s:o s:o s:I s:f}", "host", rate(&r->tiers.rates.host), "disk",
                          rate(&r->tiers.rates.disk), "remote", rate(&r->tiers.rates.remote), "token_ns",
                          (json_int_t)r->tiers.rates.token_ns, "fetch_seconds", r->fetch_seconds);
#define X(name) json_object_set_new(all, #name, json_integer((json_int_t)r->tiers.name));
  GAP_KV_TIER_STATS(X)
#undef X
  return all;
}

char *gap_kv_replay_json(const char *path, const gap_kv_replay_options *o, const gap_kv_replay_result *r) {
  json_t *json = json_pack(
      "{s:o s:s s:I s:I s:I s:s s:I s:I s:I s:I s:I s:I s:I s:f s:o s:o s:I s:I s:I s:o s:o s:o}", "file",
      gap__json_text(path), "model", o->model, "card_bytes", (json_int_t)r->card_bytes, "kv_bytes",
      (json_int_t)r->kv_bytes, "page_tokens", (json_int_t)o->page_tokens, "layout",
      o->layout == GAP_KV_PER_LAYER ? "per-layer" : "block-major", "kv_pages", (json_int_t)r->kv_pages, "requests",
      (json_int_t)r->requests, "refused", (json_int_t)r->refused, "steps", (json_int_t)r->steps, "tokens_in",
      (json_int_t)r->tokens_in, "tokens_out", (json_int_t)r->tokens_out, "tokens_computed", (json_int_t)r->computed,
      "seconds", r->seconds, "waste", waste(r), "hits", hits(o, r), "evictions", (json_int_t)r->stats.evicted,
      "preemptions", (json_int_t)r->stats.preempted, "peak_sequences", (json_int_t)r->stats.sequences_peak, "running",
      spread(&r->running), "host_ns_per_step", spread(&r->host_ns), "counters", counters(&r->stats));
  if (json && r->tiers.size) json_object_set_new(json, "tiers", tiers(r));
  char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return text;
}
