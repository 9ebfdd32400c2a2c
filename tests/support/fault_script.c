/* See fault_script.h. */
#include "support/fault_script.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/heap_state.h"
#include "core/state.h"
#include "dev/host/host.h"
#include "dev/sim/sim.h"
#include "replay/checker.h"

enum { LAG_US = 20000, STREAMS = 8, POOLS = 8, SECONDS_MAX = 60, SAMPLE = 512 };

struct slot {
  gap_addr addr;
  uint64_t bytes, pattern;
  gap_stream stream;
  bool orphan; /* its stream was retired: nothing more is queued there */
};

struct play {
  const struct script *script;
  bool on_host;
  struct fault fault;
  struct gap__dev *dev;
  gap_heap *heap;
  struct gap__conf_set *conf;
  struct gap__checker *checker;
  struct slot slots[SCRIPT_SLOTS];
  struct slot *helping;
  unsigned retained[POOLS];
  unsigned captured[STREAMS]; /* in which capture, counted from 1; 0: in none */
  unsigned captures;
  uint64_t serial, hits_before;
  unsigned step;
  struct gap__stats stats;
};

static struct play *playing; /* for messages */
static bool apart;           /* this process plays one run only */

/* ---- what went wrong, and where ---- */

static const char *place(char *text, size_t bytes) {
  const struct play *p = playing;
  const struct fault_plan *plan = &p->fault.plan;
  const struct step *step = p->step < p->script->step_count ? &p->script->steps[p->step] : NULL;
  int used = snprintf(text, bytes, "GAP_TORTURE=%s:%s:%s:%llu:%d:%s, step %u", p->script->name,
                      p->on_host ? "host" : "sim", fault_kind_name(plan->kind), (unsigned long long)plan->nth,
                      plan->code, plan->lasting ? "lasting" : "once", p->step);
  if (step)
    snprintf(text + used, bytes - (size_t)used, ": kind %d slot %u stream %u pool %u bytes %llu", step->kind,
             step->slot, step->stream, step->pool, (unsigned long long)step->bytes);
  return text;
}

static void __attribute__((noreturn, format(printf, 1, 2))) wrong(const char *format, ...) {
  char what[1200], where[300];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  if (apart) {
    fprintf(stderr, "%s (%s)\n", what, place(where, sizeof where));
    _exit(1);
  }
  fail_msg("%s (%s)", what, place(where, sizeof where));
  abort();
}

static void too_long(int signal) {
  (void)signal;
  char where[300];
  fprintf(stderr, "no end (%s)\n", place(where, sizeof where));
  _exit(1);
}

/* ---- the heap and its device ---- */

static struct gap__dev *make_device(const struct play *p) {
  struct gap__dev *dev;
  if (p->on_host) {
    struct gap__host_params params = {
        .total_bytes = p->script->card_bytes, .window_max_bytes = 128 * MIB, .manual = true};
    assert_int_equal(gap__host_create(0, &params, &dev), 0);
  } else {
    struct gap__sim_params params = {
        .total_bytes = p->script->card_bytes, .lag_us = LAG_US, .window_max_bytes = 128 * MIB};
    assert_int_equal(gap__sim_create(0, &params, &dev), 0);
  }
  return dev;
}

static int walk(void *arg, gap__checker_visit *visit, void *visit_arg) {
  const struct play *p = arg;
  return p->on_host ? gap__host_walk(p->dev, visit, visit_arg) : gap__sim_walk(p->dev, visit, visit_arg);
}

static uint64_t device_bytes(struct play *p) {
  return p->on_host ? gap__host_chunk_bytes(p->dev) : gap__sim_chunk_bytes(p->dev);
}

static uint64_t host_bytes(struct play *p) {
  return p->on_host ? gap__host_host_bytes(p->dev) : gap__sim_host_bytes(p->dev);
}

/* Of the strategy that puts host memory behind addresses. */
static uint64_t overflow_bytes(const struct play *p) {
  const struct gap__policy_state *s = p->heap->devices[0].base.state[GAP__STRATEGY_GAPLESS];
  return s ? s->overflow.pages << GAP__PAGE_SHIFT : 0;
}

static uint64_t given_bytes(void *arg) { return device_bytes(arg); }

/* Mappings change only by these calls. */
static uint64_t version(void *arg) {
  const _Atomic uint64_t *done = ((const struct play *)arg)->fault.done;
  return done[GAP__CALL_map] + done[GAP__CALL_unmap] + done[GAP__CALL_set_access] + done[GAP__CALL_segment_alloc] +
         done[GAP__CALL_segment_free] + done[GAP__CALL_chunk_release];
}

static uint64_t held_bytes(const struct play *p) { return p->heap->devices[0].base.held_bytes; }

/* A call into the heap is written left(gap__heap_...(enter(p), ...)): only inside it host memory is watched. */
static gap_heap *enter(struct play *p) {
  fault_watch(&p->fault);
  return p->heap;
}
static int left(int rc) {
  fault_watch(NULL);
  return rc;
}

static gap_stream stream_of(unsigned number) { return (gap_stream)number * 1024; }
static gap_pool_id pool_of(unsigned number) { return (gap_pool_id){number, 0}; }

static void time_passes(struct play *p) {
  for (unsigned i = 0; i < STREAMS && !p->on_host; i++) gap__sim_stream_release(p->dev, stream_of(i));
  if (p->on_host) gap__host_run_all(p->dev);
  else gap__sim_clock_advance(p->dev, 3ull * LAG_US * 1000);
}

/* ---- contents: the ends of each page stand for the whole ---- */

typedef int touch_fn(struct gap__dev *, gap_addr, uint64_t bytes, uint64_t pattern, gap_stream);

static void touch(struct play *p, const struct slot *slot, gap_stream stream, touch_fn *how) {
  if (!p->on_host) return;
  for (uint64_t at = 0; at < slot->bytes; at += GAP__PAGE) {
    uint64_t bytes = slot->bytes - at < SAMPLE ? slot->bytes - at : SAMPLE;
    if (how(p->dev, slot->addr + at, bytes, slot->pattern, stream)) wrong("a live block cannot be used");
  }
  uint64_t tail = slot->bytes < SAMPLE ? slot->bytes : SAMPLE;
  tail &= ~(uint64_t)7;
  if (tail && how(p->dev, slot->addr + (slot->bytes - tail) / 8 * 8, tail, slot->pattern, stream))
    wrong("a live block's end cannot be used");
}

/* What `later` is given from now on runs after what `first` was given so far. */
static void order_behind(struct play *p, gap_stream later, gap_stream first) {
  const struct gap__dev_ops *ops = p->fault.inner;
  gap__event event;
  assert_int_equal(ops->event_create(p->dev, first, &event), 0);
  assert_int_equal(ops->event_record(p->dev, event, first), 0);
  assert_int_equal(ops->stream_wait(p->dev, later, event), 0);
  /* not destroyed: a destroyed event holds nobody up */
}

/* ---- checks ---- */

static void check(struct play *p) {
  char text[400];
  if (gap__heap_check(p->heap, 0, text, sizeof text)) wrong("heap: %s", text);
  if (gap__checker_check(p->checker, 0, text, sizeof text)) wrong("device: %s", text);
  if (held_bytes(p) != device_bytes(p))
    wrong("held %llu, the device gave %llu", (unsigned long long)held_bytes(p), (unsigned long long)device_bytes(p));
  if (overflow_bytes(p) != host_bytes(p))
    wrong("%llu in host memory, %llu were given", (unsigned long long)overflow_bytes(p),
          (unsigned long long)host_bytes(p));
  if (p->on_host && gap__host_faults(p->dev)) wrong("the device was misused");
}

/* Which codes a step may end with: success always; while nothing has failed yet nothing else than the script says. */
static void judge(const struct play *p, int rc, bool may_be_refused) {
  if (rc == 0) return;
  if (may_be_refused && rc == GAP_ENOMEM) return;
  bool now = p->fault.hits != p->hits_before;
  if (now && (rc == GAP_ENOMETA || rc == p->fault.plan.code)) return;
  wrong("a call returned %s%s", gap_strerror(rc), now ? "" : " though nothing failed under it");
}

/* ---- steps ---- */

static int call_free(struct play *p, struct slot *slot) {
  if (!slot->addr) return 0;
  if (!slot->orphan) touch(p, slot, slot->stream, gap__host_expect);
  int rc = left(gap__heap_free(enter(p), slot->addr));
  judge(p, rc, false);
  if (rc) return rc;
  gap__checker_free(p->checker, slot->addr);
  slot->addr = 0;
  return 0;
}

static void wrong_refusal(const struct play *p, int rc) {
  char text[1024] = "";
  if (rc) gap__heap_diagnosis(p->heap, 0, text, sizeof text);
  wrong("a request was%s refused: %s", rc ? "" : " not", text);
}

static int get(struct play *p, const struct step *step) {
  struct slot *slot = &p->slots[step->slot];
  if (call_free(p, slot)) return 0; /* later */
  if (step->pool && !p->retained[step->pool]) return 0;
  *slot = (struct slot){
      .bytes = step->bytes, .stream = stream_of(step->stream), .pattern = 0x9E3779B97F4A7C15ull * ++p->serial};
  int rc = left(gap__heap_alloc(enter(p), 0, slot->stream, pool_of(step->pool), step->bytes, &slot->addr));
  if (rc) slot->addr = 0;
  bool touched = p->fault.hits > 0 || p->script->open;
  judge(p, rc, true);
  if (!touched && (rc == GAP_ENOMEM) != step->refused) wrong_refusal(p, rc);
  if (rc) return 0;
  gap__checker_alloc(p->checker, slot->addr, slot->bytes);
  touch(p, slot, slot->stream, gap__host_fill);
  return 0;
}

static int use(struct play *p, const struct step *step) {
  struct slot *slot = &p->slots[step->slot];
  gap_stream other = stream_of(step->stream);
  if (!slot->addr) return 0;
  int rc = left(gap__heap_record_stream(enter(p), slot->addr, other));
  unsigned capture = p->captured[step->stream];
  if (rc || capture != p->captured[slot->stream / 1024]) return rc; /* nothing can be ordered then */
  if (!p->on_host && !capture) return rc;
  order_behind(p, other, slot->stream);
  touch(p, slot, other, gap__host_expect);
  if (!p->on_host) assert_int_equal(p->fault.inner->copy(p->dev, slot->addr, slot->addr, 8, other), 0); /* some work */
  return 0;
}

static bool help(void *arg, int device, gap_stream stream, uint64_t bytes) {
  struct play *p = arg;
  (void)device, (void)stream, (void)bytes;
  struct slot *slot = p->helping;
  p->helping = NULL;
  bool freed = slot && slot->addr && call_free(p, slot) == 0;
  enter(p); /* we are inside another call */
  return freed;
}

static int hint(struct play *p, const struct step *step) {
  gap_addr addr = p->slots[step->slot].addr;
  return addr ? left(gap__heap_hint(enter(p), addr, !step->bytes)) : 0;
}

/* From now on the handle names a new stream. */
static int retire(struct play *p, gap_stream stream) {
  for (unsigned i = 0; i < SCRIPT_SLOTS; i++) p->slots[i].orphan |= p->slots[i].stream == stream;
  return left(gap__heap_retire_stream(enter(p), 0, stream));
}

static void capture(struct play *p, unsigned stream, bool on) {
  unsigned ends = on ? 0 : p->captured[stream];
  for (unsigned i = 0; i < STREAMS && ends; i++)
    if (p->captured[i] == ends) p->captured[i] = 0;
  if (on && !p->captured[stream]) p->captured[stream] = ++p->captures;
  if (p->on_host) gap__host_stream_capture(p->dev, stream_of(stream), on);
  else gap__sim_stream_capture(p->dev, stream_of(stream), on);
}

static void order(struct play *p, unsigned later, unsigned first) {
  if (p->captured[later] && p->captured[later] != p->captured[first]) return; /* the driver refuses that */
  order_behind(p, stream_of(later), stream_of(first));
  p->captured[later] = p->captured[first];
}

static int retain(struct play *p, unsigned pool) {
  int rc = left(gap__heap_pool_retain(enter(p), 0, pool_of(pool)));
  p->retained[pool] += rc == 0;
  return rc;
}

static int release(struct play *p, unsigned pool) {
  if (!p->retained[pool]) return 0;
  int rc = left(gap__heap_pool_release(enter(p), 0, pool_of(pool)));
  p->retained[pool] -= rc == 0;
  return rc;
}

static int configure(struct play *p, const char *text) {
  assert_int_equal(gap__conf_apply(p->conf, GAP__CONF_RUNTIME, "script", text, NULL), 0);
  return left(gap__heap_configure(enter(p), gap__conf_values(p->conf)));
}

static int simple_step(struct play *p, const struct step *step) {
  gap_stream stream = stream_of(step->stream);
  uint64_t bytes;
  switch (step->kind) {
    case STEP_PASS: time_passes(p); return 0;
    case STEP_HOLD:
      if (!p->on_host) gap__sim_stream_hold(p->dev, stream);
      return 0;
    case STEP_CAPTURE: capture(p, step->stream, true); return 0;
    case STEP_CAPTURED: capture(p, step->stream, false); return 0;
    case STEP_ORDER: order(p, step->stream, step->slot); return 0;
    case STEP_RECYCLE:
      if (!p->on_host) gap__sim_stream_recycle(p->dev, stream);
      return 0;
    case STEP_RETIRE: return retire(p, stream);
    case STEP_TRIM: return left(gap__heap_trim(enter(p), 0, pool_of(step->pool), &bytes));
    case STEP_CAP: return left(gap__heap_set_cap(enter(p), 0, step->bytes));
    case STEP_DEFRAGMENT: return left(gap__heap_defragment(enter(p), 0, &bytes));
    case STEP_TICK: gap__heap_tick(enter(p), 0); return left(0);
    default: wrong("unknown step");
  }
}

static int take_step(struct play *p, const struct step *step) {
  switch (step->kind) {
    case STEP_GET: return get(p, step);
    case STEP_GIVE: call_free(p, &p->slots[step->slot]); return 0; /* judged there */
    case STEP_USE: return use(p, step);
    case STEP_COLD: return hint(p, step);
    case STEP_RETAIN: return retain(p, step->pool);
    case STEP_RELEASE: return release(p, step->pool);
    case STEP_CONF: return configure(p, step->conf);
    case STEP_HELP: p->helping = &p->slots[step->slot]; return 0;
    default: return simple_step(p, step);
  }
}

/* ---- a whole run ---- */

/* False: the heap could not be made, which the fault must explain. */
static bool begin(struct play *p, const struct fault_plan *plan) {
  playing = p;
  alarm(SECONDS_MAX);
  p->dev = make_device(p);
  fault_attach(&p->fault, p->dev, plan);
  p->conf = gap__conf_new();
  assert_non_null(p->conf);
  assert_int_equal(gap__conf_apply(p->conf, GAP__CONF_RUNTIME, "script", p->script->conf, NULL), 0);
  struct gap__heap_params params = {
      .devs = &p->dev, .dev_count = 1, .conf = gap__conf_values(p->conf), .maker = p->script->maker};
  fault_watch(&p->fault);
  int rc = gap__heap_create(&params, &p->heap);
  fault_watch(NULL);
  judge(p, rc, false);
  if (rc) return false;
  gap__heap_set_oom_callback(p->heap, help, p);
  struct gap__checker_source seen = {.arg = p, .walk = walk, .held_bytes = given_bytes, .version = version};
  assert_int_equal(gap__checker_create(&seen, &p->checker), 0);
  return true;
}

static void play_steps(struct play *p) {
  for (p->step = 0; p->step < p->script->step_count; p->step++) {
    p->hits_before = p->fault.hits;
    int rc = take_step(p, &p->script->steps[p->step]);
    judge(p, rc, false);
    bool struck = p->fault.hits != p->hits_before;
    if (struck || !p->fault.plan.nth || (p->fault.hits && p->step % 4 == 0)) check(p);
  }
}

/* Something failed for which the fault at hand accounts; without one it is a failure of the test. */
static bool excused(const struct play *p, const char *what) {
  if (p->fault.hits == p->hits_before) wrong("%s", what);
  return false;
}

/* What is free now is enough for this. */
static bool serves(struct play *p) {
  static const struct step again[] = {GET(0, 0, 4 * MIB), GET(1, 1, 700), USE(0, 2), GET(2, 2, 6 * MIB + 512)};
  for (unsigned i = 0; i < sizeof again / sizeof *again; i++) {
    if (take_step(p, &again[i])) return excused(p, "the heap does not go on");
    if (again[i].kind == STEP_GET && !p->slots[again[i].slot].addr) return excused(p, "the heap does not serve again");
    check(p);
  }
  return true;
}

static bool give_all(struct play *p) {
  for (unsigned i = 0; i < SCRIPT_SLOTS; i++)
    if (call_free(p, &p->slots[i])) return excused(p, "a block cannot be freed");
  for (unsigned i = 0; i < POOLS; i++)
    while (p->retained[i])
      if (release(p, i)) return excused(p, "a pool cannot be released");
  return true;
}

/* Everything is freed and given back; the heap serves as if nothing had happened; and all is given back once more. */
static bool close_down(struct play *p) {
  uint64_t bytes;
  p->hits_before = p->fault.hits;
  if (left(gap__heap_set_cap(enter(p), 0, 0))) return excused(p, "the cap cannot be lifted");
  for (unsigned round = 0; round < 2; round++) {
    if (round == 1 && !serves(p)) return false;
    if (!give_all(p)) return false;
    time_passes(p);
    if (left(gap__heap_trim(enter(p), 0, pool_of(0), &bytes))) return excused(p, "a trim failed");
    time_passes(p); /* events that could not be recorded were recorded just now */
    if (left(gap__heap_trim(enter(p), 0, pool_of(0), &bytes))) return excused(p, "a trim failed");
    check(p);
    if (device_bytes(p)) return excused(p, "memory cannot be given back");
  }
  return true;
}

static void end_steps(struct play *p) {
  p->step = p->script->step_count;
  p->helping = NULL;
  for (unsigned i = 0; i < STREAMS; i++) capture(p, i, false);
  if (p->fault.hits) fault_clear(&p->fault);
  if (close_down(p)) return;
  fault_clear(&p->fault); /* it has struck just now */
  check(p);
  close_down(p);
}

/* What the driver was given and what came back, but for what the fault itself refused. */
static void balance(const struct play *p, int made, int gone, const char *what) {
  const struct fault *f = &p->fault;
  uint64_t refused = f->plan.kind == gone ? f->hits : 0;
  if (f->done[made] > f->done[gone] + refused || f->done[made] < f->done[gone])
    wrong("%llu %s made, %llu ended", (unsigned long long)f->done[made], what, (unsigned long long)f->done[gone]);
}

static void end(struct play *p) {
  fault_watch(&p->fault);
  if (p->heap) gap__heap_destroy(p->heap);
  fault_watch(NULL);
  gap__checker_destroy(p->checker);
  gap__conf_free(p->conf);
  if (!p->fault.destroyed) wrong("the device was not ended with its heap");
  balance(p, GAP__CALL_event_create, GAP__CALL_event_destroy, "events");
  balance(p, GAP__CALL_segment_alloc, GAP__CALL_segment_free, "segments");
  if (p->fault.plan.kind != GAP__CALL_unmap || !p->fault.hits) { /* what stays mapped keeps its window */
    balance(p, GAP__CALL_map, GAP__CALL_unmap, "mappings");
    balance(p, GAP__CALL_reserve, GAP__CALL_unreserve, "windows");
    balance(p, GAP__CALL_chunk_create, GAP__CALL_chunk_release, "chunks");
  }
  if (p->fault.pages_mapped || p->fault.pieces)
    wrong("host memory leaks: %lld mappings, %lld pieces", (long long)p->fault.pages_mapped,
          (long long)p->fault.pieces);
  alarm(0);
}

static void run(struct play *p, const struct fault_plan *plan) {
  if (begin(p, plan)) {
    play_steps(p);
    assert_int_equal(left(gap__heap_stats(enter(p), 0, &p->stats)), 0);
    end_steps(p);
  }
  end(p);
}

/* ---- all runs ---- */

static void show_all(const struct gap__stats *s) {
#define GAP_STAT_SCALAR(name, unit, help) \
  if (s->name) print_message("%s %lld\n", #name, (long long)s->name);
#include "core/stats.def"
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++)
    print_message("%s %lld\n", gap__rung_name(rung), (long long)s->rung_count[rung]);
}

static void show_reached(const struct script *script, const struct gap__stats *stats) {
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++)
    if (script->rungs >> rung & 1 && !stats->rung_count[rung])
      wrong("the script never reached '%s'", gap__rung_name(rung));
  if (script->reached && !script->reached(stats)) show_all(stats);
  if (script->reached && !script->reached(stats)) wrong("the script does not reach what it is for");
}

/* The codes that calls of a kind fail with in real drivers. */
static unsigned codes_of(int kind, int out[2]) {
  bool takes_memory = kind == GAP__CALL_chunk_create || kind == GAP__CALL_segment_alloc || kind == GAP__CALL_reserve ||
                      kind == GAP__CALL_map || kind == GAP__CALL_set_access;
  out[0] = kind < GAP__CALL_COUNT ? GAP_EDEVICE : GAP_ENOMETA;
  out[1] = GAP_ENOMEM;
  return takes_memory ? 2 : 1;
}

/* GAP_TORTURE=script:backend:kind:n:code:once|lasting plays that one run only; GAP_TORTURE=each plays all, each in a process of
 * its own, and lists every one that fails. */
static bool chosen(const struct script *script, bool on_host, const struct fault_plan *plan) {
  const char *only = getenv("GAP_TORTURE");
  char name[200];
  if (!only || strcmp(only, "each") == 0) return true;
  snprintf(name, sizeof name, "%s:%s:%s:%llu:%d:%s", script->name, on_host ? "host" : "sim",
           fault_kind_name(plan->kind), (unsigned long long)plan->nth, plan->code, plan->lasting ? "lasting" : "once");
  return strcmp(only, name) == 0;
}

static void run_faulted(struct play *p, const struct fault_plan *plan) {
  run(p, plan);
  if (!p->fault.hits) wrong("the fault never struck");
}

static unsigned failed_runs; /* of those in a process of their own */

static void run_apart(struct play *p, const struct fault_plan *plan) {
  const char *only = getenv("GAP_TORTURE");
  if (!only || strcmp(only, "each") != 0) {
    run_faulted(p, plan);
    return;
  }
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    apart = true;
    signal(SIGSEGV, SIG_DFL);
    run_faulted(p, plan);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status == 0) return;
  failed_runs++;
  if (!WIFSIGNALED(status)) return;
  p->fault.plan = *plan;
  playing = p;
  char where[300];
  fprintf(stderr, "signal %d (%s)\n", WTERMSIG(status), place(where, sizeof where));
}

static unsigned torture_kind(const struct script *script, bool on_host, int kind, uint64_t count) {
  int codes[2];
  unsigned runs = 0, code_count = codes_of(kind, codes);
  static unsigned turn;
  unsigned share = script->share ? script->share : 1;
  for (uint64_t n = 1 + turn++ % share; n <= count; n += share)
    for (unsigned way = 0; way < 2 * code_count; way++) {
      struct fault_plan plan = {.kind = kind, .nth = n, .code = codes[way / 2], .lasting = way % 2};
      if (plan.lasting && (script->once >> kind & 1)) continue;
      if (!chosen(script, on_host, &plan)) continue;
      struct play p = {.script = script, .on_host = on_host};
      run_apart(&p, &plan);
      runs++;
    }
  return runs;
}

static void torture_on(const struct script *script, bool on_host) {
  signal(SIGALRM, too_long);
  struct play clean = {.script = script, .on_host = on_host};
  run(&clean, &(struct fault_plan){0});
  show_reached(script, &clean.stats);
  unsigned runs = 0, kinds = 0;
  for (int kind = 0; kind < FAULT_KINDS; kind++) {
    if (script->spared >> kind & 1) continue;
    runs += torture_kind(script, on_host, kind, clean.fault.calls[kind]);
    kinds += clean.fault.calls[kind] > 0;
  }
  print_message("%s on %s: %u kinds of calls, %u runs with a fault\n", script->name, on_host ? "host" : "sim", kinds,
                runs);
}

void script_torture(const struct script *script) {
  failed_runs = 0;
  torture_on(script, false);
  torture_on(script, true);
  assert_int_equal(failed_runs, 0);
}
