/* gapless kv replay: continuous batching of a trace of requests over a KV cache on a simulated card.
 *
 * Every step each running sequence computes the tokens that it knows and has not computed, as far as step_tokens go;
 * who has computed all it knows gets one token more.  Requests enter in the order of their arrival while nobody waits
 * for memory.  The clock is a roofline: a step takes as long as reading the weights and the live KV once, or as its
 * arithmetic, whichever is longer. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gapless/kv_replay.h"
#include "serving/models.h"
#include "serving/requests.h"
#include "trace/message.h"

enum { STALLED_STEPS = 10000, COMPACT_EVERY = 32, ELEMENT_BYTES = 2 };
#define BYTES_A_SECOND 3.0e12
#define OPERATIONS_A_SECOND 5.0e14
#define STEP_SECONDS 2.0e-4 /* what every step takes besides */

struct job {
  gap_kv_seq seq;
  uint64_t request;
  uint32_t have, generated;
  bool waits;
};

struct samples {
  double *at;
  uint64_t count, room;
};

struct simulation {
  const gap_kv_replay_options *options;
  gap_kv_replay_result *out;
  struct gap__requests requests;
  struct gap__model model;
  gap_heap *heap;
  gap_kv *kv;
  struct job *jobs; /* by age */
  gap_kv_request *asked;
  uint32_t job_count;
  uint64_t next; /* request */
  int32_t *ids, *prompt;
  uint64_t weights_bytes, live_bytes, free_pages, done, stalled, since_compaction;
  struct samples waste, running, host_ns;
  char **message;
};

/* ---- figures ---- */

static int sample(struct samples *s, double value) {
  if (s->count == s->room) {
    uint64_t room = s->room ? 2 * s->room : 4096;
    double *grown = realloc(s->at, room * sizeof *grown);
    if (!grown) return GAP_ENOMETA;
    s->at = grown;
    s->room = room;
  }
  s->at[s->count++] = value;
  return 0;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static gap_kv_spread spread_of(struct samples *s) {
  if (!s->count) return (gap_kv_spread){0, 0, 0};
  qsort(s->at, s->count, sizeof *s->at, by_value);
  return (gap_kv_spread){s->at[s->count / 2], s->at[s->count * 9 / 10], s->at[s->count - 1]};
}

static int look(struct simulation *sim) {
  gap_kv_stats stats = {.size = sizeof stats};
  gap_kv_replay_result *out = sim->out;
  int rc = gap_kv_get_stats(sim->kv, &stats);
  if (rc) return rc;
  double held = (double)(stats.bytes_held - stats.bytes_cached);
  sim->live_bytes = stats.bytes_live_tokens;
  sim->free_pages = stats.kv_pages_free + stats.kv_pages_cached;
  if (stats.bytes_held > out->held_bytes_peak) out->held_bytes_peak = stats.bytes_held;
  if (!stats.bytes_live_tokens) return 0;
  out->tail += (double)stats.bytes_tail / held;
  out->window += (double)stats.bytes_window / held;
  out->free += (double)(stats.bytes_free + stats.bytes_leaving) / held;
  out->spare += (double)stats.bytes_spare / held;
  out->tables += (double)stats.bytes_tables / held;
  double gaps = (double)stats.bytes_free / held;
  if (sim->options->compact_above > 0 && gaps > sim->options->compact_above &&
      ++sim->since_compaction >= COMPACT_EVERY) {
    gap_kv_compaction c = {.size = sizeof c};
    sim->since_compaction = 0;
    rc = gap_kv_compact(sim->kv, &c);
  }
  return rc ? rc : sample(&sim->waste, held / (double)stats.bytes_live_tokens);
}

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- tiers ---- */

static bool has_tiers(const gap_kv_replay_options *o) {
  return o->tier_host_bytes || o->tier_disk_bytes || o->tier_remote_bytes;
}

static int open_tiers(struct simulation *sim) {
  const gap_kv_replay_options *o = sim->options;
  gap_kv_tiers_options t = GAP_KV_TIERS_OPTIONS_INIT;
  gap_kv_rates rates = o->rates;
  char words[200];
  if (!has_tiers(o)) return 0;
  if (!rates.token_ns) rates.token_ns = (uint64_t)(2.0 * (double)sim->model.parameters / OPERATIONS_A_SECOND * 1e9);
  t.model = o->model, t.rates = &rates;
  t.host_bytes = o->tier_host_bytes, t.disk_bytes = o->tier_disk_bytes, t.remote_bytes = o->tier_remote_bytes;
  int rc = gap_kv_tiers_open(sim->kv, &t, words, sizeof words);
  return rc ? gap__message_set(sim->message, rc, "the tiers cannot be made: %s", words) : 0;
}

/* What of the prompt is below comes up before the request begins: time is simulated, so at once. */
static int fetch(struct simulation *sim, const gap_kv_prompt *prompt) {
  gap_kv_ticket ticket;
  if (!has_tiers(sim->options)) return 0;
  int rc = gap_kv_fetch(sim->kv, prompt, &ticket);
  return rc ? rc : gap_kv_fetch_wait(sim->kv, ticket, UINT32_MAX, NULL);
}

static int settle(struct simulation *sim) {
  return has_tiers(sim->options) ? gap_kv_tiers_drain(sim->kv, UINT32_MAX) : 0;
}

static double seconds_for(const gap_kv_rate *rate, uint64_t pages, uint64_t bytes) {
  return rate->bytes_s ? (double)(pages * bytes) / (double)rate->bytes_s : 0;
}

static void conclude_tiers(struct simulation *sim) {
  gap_kv_tier_stats *t = &sim->out->tiers;
  if (!has_tiers(sim->options)) return;
  t->size = sizeof *t;
  gap_kv_get_tier_stats(sim->kv, t);
  sim->out->fetch_seconds = seconds_for(&t->rates.host, t->host_fetched, t->page_bytes) +
                            seconds_for(&t->rates.disk, t->disk_fetched, t->page_bytes) +
                            seconds_for(&t->rates.remote, t->remote_fetched, t->page_bytes);
}

/* ---- requests ---- */

static bool is_too_long(const struct simulation *sim, const struct gap__request_line *line) {
  return (line->input + (uint64_t)line->output + sim->options->page_tokens - 1) / sim->options->page_tokens >
         sim->out->kv_pages;
}

static int open_request(struct simulation *sim, uint64_t index, uint32_t share, gap_kv_seq *seq, uint32_t *hit) {
  const struct gap__request_line *line = &sim->requests.at[index];
  for (uint32_t i = 0; i < line->input; i++) sim->prompt[i] = gap__request_token(&sim->requests, index, i);
  gap_kv_prompt prompt = {.size = sizeof prompt, .tokens = sim->prompt, .count = share};
  sim->out->requests++;
  sim->out->tokens_in += line->input;
  int rc = fetch(sim, &prompt);
  return rc ? rc : gap_kv_open(sim->kv, &prompt, seq, hit);
}

static void tell(struct simulation *sim) {
  if (sim->options->progress) sim->options->progress(sim->options->progress_arg, sim->done, sim->requests.count);
}

static bool somebody_waits(const struct simulation *sim) {
  for (uint32_t i = 0; i < sim->job_count; i++)
    if (sim->jobs[i].waits) return true;
  return false;
}

static uint32_t known(const struct simulation *sim, const struct job *job) {
  return sim->requests.at[job->request].input + job->generated;
}

static uint64_t pages_for(const struct simulation *sim, uint32_t tokens) {
  return (tokens + sim->options->page_tokens - 1) / sim->options->page_tokens;
}

/* Is there room for the whole prompt, besides what those that run are about to take? */
static bool has_room(const struct simulation *sim, const struct gap__request_line *line) {
  uint64_t taken = pages_for(sim, line->input) + 1;
  for (uint32_t i = 0; i < sim->job_count; i++)
    taken += 1 + pages_for(sim, known(sim, &sim->jobs[i])) - pages_for(sim, sim->jobs[i].have);
  return !sim->job_count || taken <= sim->free_pages;
}

static int admit(struct simulation *sim) {
  int rc = 0;
  while (!rc && sim->next < sim->requests.count && sim->job_count < sim->options->sequences) {
    const struct gap__request_line *line = &sim->requests.at[sim->next];
    if (is_too_long(sim, line)) {
      sim->out->refused++;
      sim->next++;
      sim->done++;
      continue;
    }
    if (!sim->job_count && (double)line->arrival_us / 1e6 > sim->out->seconds)
      sim->out->seconds = (double)line->arrival_us / 1e6;
    if ((double)line->arrival_us / 1e6 > sim->out->seconds || somebody_waits(sim) || !has_room(sim, line)) break;
    struct job *job = &sim->jobs[sim->job_count];
    *job = (struct job){.request = sim->next};
    rc = open_request(sim, sim->next, line->input - 1, &job->seq, &job->have);
    if (!rc) sim->job_count++, sim->next++;
  }
  return rc;
}

/* ---- steps ---- */

/* What each running one computes. */
static void ask(struct simulation *sim) {
  uint32_t left = sim->options->step_tokens;
  int32_t *ids = sim->ids;
  for (uint32_t i = 0; i < sim->job_count; i++) {
    const struct job *job = &sim->jobs[i];
    uint32_t wanted = known(sim, job) - job->have, count = wanted < left ? wanted : left;
    if (!count && wanted) count = 1; /* everybody gets on */
    sim->asked[i] = (gap_kv_request){.seq = job->seq, .tokens = count, .ids = ids};
    for (uint32_t k = 0; k < count; k++) ids[k] = gap__request_token(&sim->requests, job->request, job->have + k);
    ids += count;
    left -= count < left ? count : left;
  }
}

/* As a program with a kernel of its own for the tables would do it. */
static int take_delta(struct simulation *sim) {
  gap_kv_delta delta = {.size = sizeof delta};
  int rc;
  do rc = gap_kv_take_delta(sim->kv, &delta);
  while (!rc && delta.more);
  return rc;
}

static int step(struct simulation *sim) {
  double start = now_ns();
  int rc = gap_kv_step(sim->kv, sim->asked, sim->job_count);
  if (!rc) rc = take_delta(sim);
  double end = now_ns();
  if (!rc) rc = settle(sim);
  if (!rc) rc = sample(&sim->host_ns, end - start);
  return rc ? rc : sample(&sim->running, sim->job_count);
}

static int follow_up(struct simulation *sim, struct job *job, const gap_kv_request *asked, uint64_t *computed) {
  gap_kv_about about = {.size = sizeof about};
  job->waits = asked->outcome != GAP_KV_GRANTED;
  if (asked->outcome == GAP_KV_WAITING) return 0;
  if (asked->outcome == GAP_KV_PREEMPTED) {
    int rc = gap_kv_get_about(sim->kv, job->seq, &about);
    job->have = about.tokens;
    return rc;
  }
  *computed += asked->tokens;
  job->have += asked->tokens;
  if (job->have < known(sim, job)) return 0;
  if (job->generated < sim->requests.at[job->request].output) job->generated++, sim->out->tokens_out++;
  return 0;
}

static bool has_ended(const struct simulation *sim, const struct job *job) {
  const struct gap__request_line *line = &sim->requests.at[job->request];
  return job->generated == line->output && job->have >= line->input + (line->output ? line->output - 1 : 0);
}

static int finish(struct simulation *sim) {
  uint32_t left = 0;
  int rc = 0;
  for (uint32_t i = 0; i < sim->job_count; i++) {
    struct job *job = &sim->jobs[i];
    if (!has_ended(sim, job)) {
      sim->jobs[left++] = *job;
      continue;
    }
    if (!rc) rc = gap_kv_close(sim->kv, job->seq, 0);
    if ((++sim->done & 63) == 0) tell(sim);
  }
  sim->job_count = left;
  return rc;
}

static void advance(struct simulation *sim, uint64_t computed) {
  double bytes = (double)(sim->weights_bytes + sim->live_bytes) / BYTES_A_SECOND;
  double arithmetic = 2.0 * (double)sim->model.parameters * (double)computed / OPERATIONS_A_SECOND;
  sim->out->seconds += STEP_SECONDS + (bytes > arithmetic ? bytes : arithmetic);
  sim->out->computed += computed;
  sim->out->steps++;
  sim->stalled = computed ? 0 : sim->stalled + 1;
}

static int run_step(struct simulation *sim) {
  uint64_t computed = 0;
  ask(sim);
  int rc = step(sim);
  for (uint32_t i = 0; !rc && i < sim->job_count; i++) rc = follow_up(sim, &sim->jobs[i], &sim->asked[i], &computed);
  if (!rc) rc = look(sim);
  if (rc) return rc;
  advance(sim, computed);
  if (sim->stalled > STALLED_STEPS)
    return gap__message_set(sim->message, GAP_ESTATE, "no sequence gets on: %" PRIu64 " of %" PRIu64 " requests done",
                            sim->done, sim->requests.count);
  return finish(sim);
}

static int run_schedule(struct simulation *sim) {
  int rc = 0;
  while (!rc && sim->done < sim->requests.count) {
    rc = admit(sim);
    if (!rc && sim->job_count) rc = run_step(sim);
  }
  return rc;
}

/* ---- one request after the other ---- */

static int run_alone(struct simulation *sim, uint64_t index) {
  const struct gap__request_line *line = &sim->requests.at[index];
  uint32_t hit;
  gap_kv_seq seq;
  int rc = open_request(sim, index, line->input, &seq, &hit);
  if (rc) return rc;
  gap_kv_request rest = {.seq = seq, .tokens = line->input - hit, .ids = sim->prompt + hit};
  rc = gap_kv_append(sim->kv, &rest, 1);
  if (rc == GAP_ENOMEM) sim->out->refused++;
  sim->out->computed += rc ? 0 : rest.tokens;
  if (rc && rc != GAP_ENOMEM) return rc;
  rc = gap_kv_close(sim->kv, seq, 0);
  if (!rc) rc = take_delta(sim);
  return rc ? rc : settle(sim);
}

static int run_one_by_one(struct simulation *sim) {
  int rc = 0;
  for (uint64_t i = 0; !rc && i < sim->requests.count; i++) {
    rc = run_alone(sim, i);
    if ((++sim->done & 63) == 0) tell(sim);
  }
  return rc;
}

/* ---- the whole ---- */

static int size_cache(struct simulation *sim) {
  const gap_kv_replay_options *o = sim->options;
  gap_kv_replay_result *out = sim->out;
  if (gap__model_find(o->model, &sim->model))
    return gap__message_set(sim->message, GAP_EVALUE,
                            "model \"%s\" is not known; LAYERSxHEADSxSIZE says it too (32x8x128)", o->model);
  sim->weights_bytes = sim->model.parameters * ELEMENT_BYTES;
  uint64_t room = o->card_bytes / 10 * 9;
  if (!o->kv_bytes && !sim->weights_bytes)
    return gap__message_set(sim->message, GAP_EVALUE,
                            "the weights of %s are not known: say how much the cache may have", o->model);
  if (!o->kv_bytes && room <= sim->weights_bytes)
    return gap__message_set(sim->message, GAP_EVALUE, "the weights of %s leave nothing of the card to the cache",
                            o->model);
  out->card_bytes = o->card_bytes;
  out->kv_bytes = o->kv_bytes ? o->kv_bytes : room - sim->weights_bytes;
  return 0;
}

static int open_cache(struct simulation *sim) {
  const gap_kv_replay_options *o = sim->options;
  gap_kv_options k = GAP_KV_OPTIONS_INIT;
  gap_kv_shape shape = {.size = sizeof shape};
  gap_addr weights;
  k.layers = sim->model.layers, k.heads = sim->model.heads, k.head_size = sim->model.head_size;
  k.page_tokens = o->page_tokens, k.layout = o->layout, k.sharing = o->sharing, k.flags = o->flags;
  k.sequences = o->sequences, k.tokens = sim->requests.longest + 1, k.bytes = sim->out->kv_bytes;
  k.host_bytes = o->host_bytes, k.seed = 1; /* the same run, every time */
  int rc = gap_alloc(sim->heap, 0, 0, o->kv_bytes ? 0 : sim->weights_bytes, &weights);
  if (!rc) rc = gap_kv_create(sim->heap, &k, &sim->kv);
  if (!rc) rc = gap_kv_get_shape(sim->kv, &shape);
  sim->out->kv_pages = sim->free_pages = shape.kv_pages;
  sim->out->kv_page_bytes = shape.kv_page_bytes;
  if (rc) return gap__message_set(sim->message, rc, "the cache cannot be made: %s", gap_strerror(rc));
  return open_tiers(sim);
}

static int open_card(struct simulation *sim) {
  gap_heap_options o = GAP_HEAP_OPTIONS_INIT;
  o.backend = GAP_BACKEND_SIM;
  o.flags = GAP_HEAP_NO_ENVIRONMENT | GAP_HEAP_NO_THREAD;
  o.device_bytes =
      sim->options->kv_bytes > sim->options->card_bytes / 2 ? 2 * sim->options->kv_bytes : sim->options->card_bytes;
  return gap_heap_create(&o, &sim->heap);
}

static int open_records(struct simulation *sim) {
  const gap_kv_replay_options *o = sim->options;
  sim->jobs = calloc(o->sequences, sizeof *sim->jobs);
  sim->asked = calloc(o->sequences, sizeof *sim->asked);
  sim->ids = calloc((size_t)o->step_tokens + o->sequences, sizeof *sim->ids);
  sim->prompt = calloc((size_t)sim->requests.longest + 1, sizeof *sim->prompt);
  return sim->jobs && sim->asked && sim->ids && sim->prompt ? 0 : GAP_ENOMETA;
}

static void conclude(struct simulation *sim) {
  gap_kv_replay_result *out = sim->out;
  double steps = sim->waste.count ? (double)sim->waste.count : 1;
  out->tail /= steps, out->window /= steps, out->free /= steps, out->spare /= steps, out->tables /= steps;
  out->waste = spread_of(&sim->waste);
  out->running = spread_of(&sim->running);
  out->host_ns = spread_of(&sim->host_ns);
  out->stats.size = sizeof out->stats;
  gap_kv_get_stats(sim->kv, &out->stats);
  conclude_tiers(sim);
}

static void close_all(struct simulation *sim) {
  gap_kv_destroy(sim->kv);
  gap_heap_destroy(sim->heap);
  gap__requests_free(&sim->requests);
  free(sim->jobs);
  free(sim->asked);
  free(sim->ids);
  free(sim->prompt);
  free(sim->waste.at);
  free(sim->running.at);
  free(sim->host_ns.at);
}

void gap_kv_replay_defaults(gap_kv_replay_options *o) {
  *o = (gap_kv_replay_options){.size = sizeof *o,
                               .model = "llama-3.1-8b",
                               .card_bytes = (uint64_t)80 << 30,
                               .page_tokens = 16,
                               .layout = GAP_KV_BLOCK_MAJOR,
                               .sharing = GAP_KV_SHARING_FAST,
                               .sequences = 256,
                               .step_tokens = 8192,
                               .compact_above = 0.005,
                               .rates = {.size = sizeof o->rates,
                                         .host = {.latency_ns = 20000, .bytes_s = 55400000000},
                                         .disk = {.latency_ns = 200000, .bytes_s = 1600000000},
                                         .remote = {.latency_ns = 500000, .bytes_s = 1000000000}}};
}

static int replay(struct simulation *sim, const char *path) {
  int rc = size_cache(sim);
  if (!rc) rc = gap__requests_read(path, sim->options->requests, &sim->requests, sim->message);
  if (!rc) rc = open_records(sim);
  if (!rc) rc = open_card(sim);
  if (!rc) rc = open_cache(sim);
  if (!rc) rc = sim->options->one_by_one ? run_one_by_one(sim) : run_schedule(sim);
  if (!rc) conclude(sim);
  return rc;
}

int gap_kv_replay(const char *path, const gap_kv_replay_options *options, gap_kv_replay_result *out, char *message,
                  size_t bytes) {
  char *text = NULL;
  struct simulation sim = {.options = options, .out = out, .message = &text};
  *out = (gap_kv_replay_result){.size = sizeof *out};
  if (options->size != sizeof *options || !options->sequences || !options->step_tokens) return GAP_EINVAL;
  int rc = replay(&sim, path);
  if (rc) snprintf(message, bytes, "%s", text ? text : gap_strerror(rc));
  close_all(&sim);
  free(text);
  return rc;
}
