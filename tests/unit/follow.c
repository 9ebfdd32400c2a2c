/* Following a plan: requests that come as foretold get its places, all others are served as ever, and the plan is found again. */
#include "core/follow.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "support/gapless_try.h"
#include "support/plan_maker.h"

enum { PERIOD = 60, NONE = -1 };
#define NOWHERE ((gap_addr)-1)

/* A program that repeats itself, and its plan.  No two sizes near each other are equal. */
struct play {
  struct try t;
  struct plan_maker m;
  gap_stream streams[4];    /* the real ones */
  gap_addr addr[PLAN_MOST]; /* of the period at hand; 0: not live */
  gap_addr base[4];         /* where the plan lies for a stream; NOWHERE: not known yet */
  int skip, alter, keep;    /* the request that is left out, that has another size, that is not freed; NONE */
  int before;               /* in front of this request there is another one */
  gap_addr extra, kept;
};

static uint64_t size_of(uint32_t i) { return (1 + i * 7919 % 8191) * 512 + (i % 5 == 0) * 6 * MIB; }

/* `streams` take turns; each request lives for `life` further ones. */
static void make_plan(struct play *p, uint32_t count, uint32_t streams, uint32_t life) {
  plan_begin(&p->m);
  for (uint32_t i = 0; i < count; i++) {
    if (i >= life) plan_free(&p->m, i - life);
    plan_alloc(&p->m, i % streams, size_of(i));
  }
  for (uint32_t i = count - life; i < count; i++) plan_free(&p->m, i);
  plan_finish(&p->m);
}

static void open_play(struct play *p, const char *conf) {
  p->t = try_sim(plan_conf(&p->m, conf));
  for (int i = 0; i < 4; i++) p->streams[i] = (gap_stream)(i + 1) * 1024, p->base[i] = NOWHERE;
  p->skip = p->alter = p->keep = p->before = NONE;
}

static struct play *begin(uint32_t count, uint32_t streams, uint32_t life, const char *conf) {
  static struct play p;
  p = (struct play){.extra = 0};
  make_plan(&p, count, streams, life);
  open_play(&p, conf);
  return &p;
}

static void end(struct play *p) {
  plan_remove(&p->m);
  try_end(&p->t);
}

static bool is_placed(const struct play *p, uint32_t i) {
  const struct gap__plan_entry *entry = &p->m.at[i];
  return p->addr[i] == p->base[entry->stream] + entry->offset;
}

/* The first request of a stream that is placed tells where its part of the plan lies. */
static void request(struct play *p, uint32_t i, uint64_t bytes) {
  uint32_t stream = p->m.at[i].stream;
  int64_t placed = try_stats(&p->t)->plan_placed;
  p->addr[i] = try_get(&p->t, p->streams[stream], bytes);
  bool is_now = try_stats(&p->t)->plan_placed > placed;
  if (is_now && p->base[stream] == NOWHERE) p->base[stream] = p->addr[i] - p->m.at[i].offset;
}

static void on_alloc(struct play *p, uint32_t i) {
  gap_stream stream = p->streams[p->m.at[i].stream];
  if ((int)i == p->before) p->extra = try_get(&p->t, stream, 77 * MIB);
  if ((int)i != p->skip) request(p, i, p->m.at[i].bytes + ((int)i == p->alter) * 99 * MIB);
}

static void on_free(struct play *p, uint32_t i) {
  if ((int)i == p->keep) p->kept = p->addr[i];
  else if (p->addr[i]) try_give(&p->t, p->addr[i]);
  p->addr[i] = 0;
}

/* One period; returns how many requests of it were placed. */
static int64_t period(struct play *p) {
  int64_t placed = try_stats(&p->t)->plan_placed;
  for (uint32_t moment = 0; moment < p->m.moments; moment++)
    for (uint32_t i = 0; i < p->m.count; i++) {
      if (p->m.at[i].from == moment) on_alloc(p, i);
      if (p->m.at[i].to == moment) on_free(p, i);
    }
  for (uint32_t i = 0; i < p->m.count; i++)
    if (p->m.at[i].to == p->m.moments) on_free(p, i);
  if (p->extra) try_give(&p->t, p->extra);
  p->extra = 0;
  p->skip = p->alter = p->keep = p->before = NONE;
  try_check(&p->t);
  return try_stats(&p->t)->plan_placed - placed;
}

/* ---- following ---- */

static void all_places_are_those_of_the_plan(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  for (uint32_t i = 0; i < PERIOD; i++) { /* all live at once would overlap: free as planned */
    if (i >= 9) on_free(p, i - 9);
    on_alloc(p, i);
    assert_true(is_placed(p, i));
  }
  for (uint32_t i = PERIOD - 9; i < PERIOD; i++) on_free(p, i);
  for (int again = 0; again < 5; again++) assert_int_equal(period(p), PERIOD);
  const struct gap__stats *s = try_stats(&p->t);
  assert_int_equal(s->plan_periods, 6);
  assert_int_equal(s->plan_found, 1);
  assert_int_equal(s->plan_requests, PERIOD);
  assert_int_equal(s->plan_unexpected + s->plan_taken + s->plan_unbacked, 0);
  uint64_t pages = ((uint64_t)s->plan_bytes + PAGE - 1) / PAGE;
  assert_int_equal(try_held(&p->t), pages * PAGE);
  end(p);
}

/* From the second period on the driver is not called. */
static void a_followed_plan_needs_no_driver(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  period(p), period(p);
  uint64_t created = try_calls(&p->t, GAP__CALL_chunk_create), mapped = try_calls(&p->t, GAP__CALL_map);
  for (int again = 0; again < 10; again++) assert_int_equal(period(p), PERIOD);
  assert_int_equal(try_calls(&p->t, GAP__CALL_chunk_create), created);
  assert_int_equal(try_calls(&p->t, GAP__CALL_map), mapped);
  end(p);
}

/* A program that has done something else before gets in at the second beginning at the latest. */
static void found_in_the_middle_of_a_program(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  gap_addr weights[20];
  for (int i = 0; i < 20; i++) weights[i] = try_get(&p->t, p->streams[0], (uint64_t)(3 + i) * MIB + 512);
  assert_int_equal(try_stats(&p->t)->plan_placed, 0);
  assert_int_equal(period(p), PERIOD - 7); /* eight in a row are the beginning, the eighth is placed */
  assert_int_equal(period(p), PERIOD);
  assert_int_equal(try_stats(&p->t)->plan_unexpected, 20 + 7);
  for (int i = 0; i < 20; i++) try_give(&p->t, weights[i]);
  end(p);
}

static void in_another_order_of_frees(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  for (int again = 0; again < 3; again++) {
    for (uint32_t i = 0; i < PERIOD; i++) {
      if (i % 9 == 0)
        for (uint32_t k = 9; k > 0; k--)
          if (i >= k) on_free(p, i - k); /* sooner than planned, the last one first */
      on_alloc(p, i);
      assert_true(is_placed(p, i));
    }
    for (uint32_t i = PERIOD; i-- > 0;)
      if (p->addr[i]) on_free(p, i);
  }
  end(p);
}

/* ---- deviating ---- */

static void one_request_more(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  period(p);
  for (int at = 0; at < PERIOD; at += 7) {
    p->before = at;
    assert_int_equal(period(p), PERIOD);
  }
  assert_int_equal(try_stats(&p->t)->plan_unexpected, 9);
  assert_int_equal(try_stats(&p->t)->plan_found, 1 + 9);
  end(p);
}

static void another_size(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  period(p);
  for (int at = 0; at < PERIOD; at += 7) {
    p->alter = at;
    assert_int_equal(period(p), PERIOD - 1);
  }
  assert_int_equal(period(p), PERIOD);
  end(p);
}

/* Four lengths in a row tell where the program is. */
static void one_request_less(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  period(p);
  p->skip = 20;
  int64_t placed = period(p);
  assert_true(placed >= PERIOD - 1 - 4 && placed < PERIOD);
  assert_int_equal(period(p), PERIOD);
  end(p);
}

static void a_part_left_out(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  period(p);
  for (uint32_t i = 0; i < PERIOD; i++) {
    if (i >= 10 && i < 40) continue;
    on_alloc(p, i);
    on_free(p, i);
  }
  assert_in_range(try_stats(&p->t)->plan_unexpected, 1, 4);
  assert_int_equal(period(p), PERIOD);
  end(p);
}

/* What lives longer than planned keeps its place; who should have had it is served elsewhere. */
static void a_place_in_use(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  period(p);
  p->keep = 30;
  period(p);
  int64_t before = try_stats(&p->t)->plan_taken;
  int64_t placed = period(p), taken = try_stats(&p->t)->plan_taken - before;
  assert_true(taken >= 1);
  assert_int_equal(placed + taken, PERIOD);
  try_give(&p->t, p->kept);
  assert_int_equal(period(p), PERIOD);
  end(p);
}

/* Who asks for quite other things loses the plan, and finds it when it begins anew. */
static void lost_and_found(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  period(p);
  for (int i = 0; i < 300; i++) try_give(&p->t, try_get(&p->t, p->streams[0], (uint64_t)(i % 50 + 10) * MIB + 1024));
  assert_int_equal(try_stats(&p->t)->plan_placed, PERIOD);
  assert_int_equal(period(p), PERIOD - 7);
  assert_int_equal(period(p), PERIOD);
  end(p);
}

/* ---- streams, pools, limits ---- */

static bool live_overlap(const struct play *p) {
  for (uint32_t i = 0; i < p->m.count; i++)
    for (uint32_t k = 0; k < i; k++)
      if (p->addr[i] && p->addr[k] && p->addr[i] < p->addr[k] + p->m.at[k].bytes &&
          p->addr[k] < p->addr[i] + p->m.at[i].bytes)
        return true;
  return false;
}

/* Each stream follows its own part, whatever the order of the two, and never gets the other's addresses. */
static void streams_have_places_of_their_own(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 2, 9, "");
  assert_int_equal(period(p), PERIOD);
  for (uint32_t half = 0; half < 2; half++) /* first all of one stream, then all of the other */
    for (uint32_t i = half; i < PERIOD; i += 2) {
      if (i >= 10) on_free(p, i - 10);
      on_alloc(p, i);
      assert_true(is_placed(p, i));
      assert_false(live_overlap(p));
    }
  for (uint32_t i = 0; i < PERIOD; i++) on_free(p, i);
  uint64_t span = (uint64_t)try_stats(&p->t)->plan_bytes;
  assert_true(p->base[0] + span <= p->base[1] || p->base[1] + span <= p->base[0]);
  assert_int_equal(period(p), PERIOD);
  end(p);
}

/* The plan's streams have no names: whoever makes their requests follows them. */
static void any_stream_may_follow(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 2, 9, "");
  p->streams[0] = 0, p->streams[1] = 77;
  assert_int_equal(period(p), PERIOD);
  assert_int_equal(gap__heap_retire_stream(p->t.heap, 0, 77), 0);
  p->streams[1] = 88;
  p->base[1] = NOWHERE;
  assert_true(period(p) >= PERIOD - 7);
  assert_int_equal(period(p), PERIOD);
  end(p);
}

/* A block that another stream uses has its place until that has ended. */
static void a_place_that_another_stream_uses(void **state) {
  (void)state;
  static struct play p;
  p = (struct play){.extra = 0};
  make_plan(&p, PERIOD, 1, 9);
  struct gap__host_params host = {.total_bytes = GIB, .manual = true};
  p.t = try_host(&host, plan_conf(&p.m, ""), GAP__MAKER_OFF);
  gap_addr a = 0, b;
  for (uint32_t i = 0; i < PERIOD; i++) { /* one at a time, each is freed at once */
    a = try_get(&p.t, STREAM_A, p.m.at[i].bytes);
    if (i + 1 == PERIOD) break;
    try_give(&p.t, a);
  }
  assert_int_equal(gap__host_fill(p.t.dev, a, 8, 1, STREAM_B), 0);
  assert_int_equal(gap__heap_record_stream(p.t.heap, a, STREAM_B), 0);
  try_give(&p.t, a);
  int64_t taken = try_stats(&p.t)->plan_taken;
  for (uint32_t i = 0; i < PERIOD; i++) {
    b = try_get(&p.t, STREAM_A, p.m.at[i].bytes);
    assert_true(b >= a + p.m.at[PERIOD - 1].bytes || a >= b + p.m.at[i].bytes);
    try_give(&p.t, b);
  }
  assert_true(try_stats(&p.t)->plan_taken > taken);
  gap__host_run_all(p.t.dev);
  taken = try_stats(&p.t)->plan_taken;
  for (uint32_t i = 0; i < PERIOD; i++) try_give(&p.t, try_get(&p.t, STREAM_A, p.m.at[i].bytes));
  assert_int_equal(try_stats(&p.t)->plan_taken, taken);
  plan_remove(&p.m);
  try_end(&p.t);
}

static void private_pools_have_no_part_in_it(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  gap_pool_id pool = {5, 0};
  assert_int_equal(gap__heap_pool_retain(p->t.heap, 0, pool), 0);
  for (uint32_t i = 0; i < PERIOD; i++) {
    if (i >= 9) on_free(p, i - 9);
    try_give(&p->t, try_get_pool(&p->t, p->streams[0], pool, 3 * MIB));
    on_alloc(p, i);
    assert_true(is_placed(p, i));
  }
  for (uint32_t i = PERIOD - 9; i < PERIOD; i++) on_free(p, i);
  assert_int_equal(try_stats(&p->t)->plan_unexpected, 0);
  assert_int_equal(gap__heap_pool_release(p->t.heap, 0, pool), 0);
  end(p);
}

/* Idle pages serve the plan, and the plan's idle pages serve everybody else. */
static void within_the_cap(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  uint64_t cap = ((uint64_t)try_stats(&p->t)->plan_bytes + 2 * PAGE - 1) / PAGE * PAGE;
  try_cap(&p->t, cap);
  gap_addr all = try_get(&p->t, STREAM_B, cap);
  try_give(&p->t, all);
  period(p);
  assert_int_equal(period(p), PERIOD);
  all = try_get(&p->t, STREAM_B, cap);
  assert_int_equal(try_held(&p->t), cap);
  try_give(&p->t, all);
  assert_int_equal(period(p), PERIOD);
  assert_true(try_held(&p->t) <= cap);
  end(p);
}

/* Below what the plan needs requests still do not fail while there is memory for what is live. */
static void below_the_plan(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  gap_addr half = try_get(&p->t, STREAM_B, 24 * MIB);
  try_cap(&p->t, (uint64_t)try_stats(&p->t)->plan_bytes + 28 * MIB);
  for (int i = 0; i < 4; i++) period(p);
  try_give(&p->t, half);
  end(p);
}

/* ---- plans come and go ---- */

static int configure(struct try *t, const char *conf) {
  struct gap__conf_set *set = gap__conf_new();
  assert_int_equal(gap__conf_apply(set, GAP__CONF_RUNTIME, "test", conf, NULL), 0);
  int rc = gap__heap_configure(t->heap, gap__conf_values(set));
  gap__conf_free(set);
  return rc;
}

static void changed_while_the_program_runs(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  static struct play larger;
  larger = (struct play){.extra = 0};
  for (uint32_t i = 0; i < 5; i++) on_alloc(p, i);
  make_plan(&larger, 3 * PERIOD, 1, 40);
  assert_int_equal(configure(&p->t, plan_conf(&larger.m, "")), 0);
  assert_int_equal(try_stats(&p->t)->plan_requests, 3 * PERIOD);
  larger.t = p->t;
  larger.streams[0] = p->streams[0];
  larger.base[0] = NOWHERE;
  larger.skip = larger.alter = larger.keep = larger.before = NONE;
  period(&larger);
  assert_int_equal(period(&larger), 3 * PERIOD);
  assert_int_equal(configure(&p->t, ""), 0);
  assert_int_equal(try_stats(&p->t)->plan_requests, 0);
  int64_t unexpected = try_stats(&p->t)->plan_unexpected;
  assert_int_equal(period(&larger), 0);
  assert_int_equal(try_stats(&p->t)->plan_unexpected, unexpected);
  for (uint32_t i = 0; i < 5; i++) on_free(p, i); /* from the first plan */
  assert_int_equal(configure(&p->t, plan_conf(&p->m, "")), 0);
  period(p);
  p->base[0] = NOWHERE;
  assert_int_equal(period(p), PERIOD);
  plan_remove(&larger.m);
  end(p);
}

static void figures_are_reset(void **state) {
  (void)state;
  struct play *p = begin(PERIOD, 1, 9, "");
  p->alter = 20;
  period(p);
  const struct gap__stats *s = try_stats(&p->t);
  assert_int_equal(s->plan_placed, PERIOD - 1);
  assert_int_equal(s->plan_unexpected, 1);
  assert_int_equal(s->plan_placed_bytes + s->plan_unexpected_bytes, s->allocated_bytes[0].allocated);
  struct gap__text text = {0};
  assert_int_equal(gap__heap_summary(p->t.heap, 0, &text), 0);
  assert_non_null(strstr(gap__text_str(&text), "plan: 59 of 60 requests placed as planned"));
  gap__text_free(&text);
  assert_int_equal(gap__heap_reset_accumulated(p->t.heap, 0), 0);
  s = try_stats(&p->t);
  assert_int_equal(s->plan_placed + s->plan_placed_bytes + s->plan_unexpected + s->plan_found + s->plan_periods, 0);
  end(p);
}

/* ---- files ---- */

static char said[600];
static int lines;

static void listen(void *arg, int level, const char *line) {
  (void)arg;
  if (level > GAP__LOG_WARNING) return;
  lines++;
  snprintf(said, sizeof said, "%s", line);
}

/* One line says why, and the heap does without. */
static void is_refused(const struct plan_maker *m, const char *why) {
  gap_set_log(listen, NULL);
  lines = 0;
  struct try t = try_sim(plan_conf(m, ""));
  assert_int_equal(lines, 1);
  if (!strstr(said, why)) fail_msg("\"%s\" does not say \"%s\"", said, why);
  assert_int_equal(try_stats(&t)->plan_requests, 0);
  try_give(&t, try_get(&t, STREAM_A, 5 * MIB));
  gap_set_log(NULL, NULL);
  try_end(&t);
}

static void make_small(struct plan_maker *m) {
  plan_begin(m);
  for (uint32_t i = 0; i < 20; i++) plan_alloc(m, 0, 512 * (i + 1));
  plan_finish(m);
}

static void no_file(void **state) {
  (void)state;
  static struct plan_maker m;
  make_small(&m);
  plan_remove(&m);
  is_refused(&m, "No such file");
  assert_int_equal(mkdir(m.path, 0700), 0);
  is_refused(&m, "not a file");
  assert_int_equal(rmdir(m.path), 0);
  assert_int_equal(mkfifo(m.path, 0600), 0); /* must not wait for a writer */
  is_refused(&m, "not a file");
  plan_remove(&m);
  make_small(&m);
  if (geteuid() != 0) {
    assert_int_equal(chmod(m.path, 0), 0);
    is_refused(&m, "Permission denied");
  }
  plan_write_bytes(&m, "", 0);
  is_refused(&m, "not a plan file");
  plan_write_bytes(&m, "GAPPLAN", 8);
  is_refused(&m, "not a plan file");
  assert_int_equal(truncate(m.path, ((off_t)64 << 20) + 1), 0);
  is_refused(&m, "larger than a plan may be");
  plan_remove(&m);
}

static void plans_that_do_not_hold(void **state) {
  (void)state;
  static struct plan_maker m, good;
  make_small(&good);
  plan_remove(&good);
  m = good;
  m.at[7].offset = m.at[6].offset + 512;
  plan_write(&m);
  is_refused(&m, "overlaps");
  m = good;
  for (uint32_t i = 0; i < m.count; i++) m.at[i].offset += (uint64_t)2 << 40;
  plan_write(&m);
  is_refused(&m, "more addresses than any card");
  m = good;
  m.at[19].offset += 7;
  plan_write(&m);
  is_refused(&m, "512 bytes");
  m = good;
  m.count = 0;
  m.moments = 0;
  plan_write(&m);
  is_refused(&m, "no requests");
  m = good;
  m.at[19].to = m.moments + 1;
  plan_write(&m);
  is_refused(&m, "malformed");
  plan_remove(&m);
}

/* A file whose bytes were altered is never followed, wherever. */
static void damaged_files(void **state) {
  (void)state;
  static struct plan_maker m;
  unsigned char data[1 << 12];
  make_small(&m);
  FILE *file = fopen(m.path, "rb");
  size_t bytes = fread(data, 1, sizeof data, file);
  fclose(file);
  for (size_t i = 0; i < bytes; i += 5) {
    data[i] ^= 0x21;
    plan_write_bytes(&m, data, bytes);
    is_refused(&m, "is not followed");
    data[i] ^= 0x21;
    plan_write_bytes(&m, data, i);
    is_refused(&m, "is not followed");
  }
  plan_remove(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_places_are_those_of_the_plan),
      cmocka_unit_test(a_followed_plan_needs_no_driver),
      cmocka_unit_test(found_in_the_middle_of_a_program),
      cmocka_unit_test(in_another_order_of_frees),
      cmocka_unit_test(one_request_more),
      cmocka_unit_test(another_size),
      cmocka_unit_test(one_request_less),
      cmocka_unit_test(a_part_left_out),
      cmocka_unit_test(a_place_in_use),
      cmocka_unit_test(lost_and_found),
      cmocka_unit_test(streams_have_places_of_their_own),
      cmocka_unit_test(any_stream_may_follow),
      cmocka_unit_test(a_place_that_another_stream_uses),
      cmocka_unit_test(private_pools_have_no_part_in_it),
      cmocka_unit_test(within_the_cap),
      cmocka_unit_test(below_the_plan),
      cmocka_unit_test(changed_while_the_program_runs),
      cmocka_unit_test(figures_are_reset),
      cmocka_unit_test(no_file),
      cmocka_unit_test(plans_that_do_not_hold),
      cmocka_unit_test(damaged_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
