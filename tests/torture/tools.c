/* Readers, configuration, replay and report when the n-th piece of host memory is refused: an error that says so, or the same result;
 * nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conf/conf.h"
#include "gapless/convert.h"
#include "gapless/report.h"
#include "gapless/tools.h"
#include "support/fault.h"

enum { RUNS_MAX = 300 }; /* of one kind; larger counts are sampled evenly */

struct outcome {
  int rc;
  uint64_t figure; /* the same whenever rc is 0 */
  char message[512];
};

typedef void work_fn(const char *subject, struct outcome *);

static const char *path_of(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", GAP_TEST_DATA, name);
  return path;
}

static void read_history(const char *name, struct outcome *out) {
  gap_history *history = NULL;
  out->rc = gap_history_open(path_of(name), NULL, NULL, &history, out->message, sizeof out->message);
  for (uint32_t i = 0; !out->rc && i < gap_history_device_count(history); i++)
    out->figure += gap_history_event_count(history, i);
  gap_history_close(history);
}

static void replay_with(enum gap_policy policy, const char *name, struct outcome *out) {
  gap_history *history = NULL;
  gap_replay_options options;
  gap_replay_defaults(&options);
  options.policy = policy;
  out->rc = gap_history_open(path_of(name), NULL, NULL, &history, out->message, sizeof out->message);
  gap_replay_result result = {.size = sizeof result};
  if (!out->rc) out->rc = gap_replay(history, &options, &result, out->message, sizeof out->message);
  if (!out->rc) out->figure = result.peak_live_bytes;
  gap_history_close(history);
}

static void convert_to(const char *format, const char *name, struct outcome *out) {
  gap_convert_options options;
  gap_convert_result result;
  gap_convert_defaults(&options);
  options.to = format;
  out->rc = gap_convert(path_of(name), "/dev/null", &options, &result, out->message, sizeof out->message);
  if (!out->rc) out->figure = result.bytes;
}

static void to_pickle(const char *name, struct outcome *out) { convert_to("pickle", name, out); }
static void to_rmm(const char *name, struct outcome *out) { convert_to("rmm", name, out); }
static void to_minimalloc(const char *name, struct outcome *out) { convert_to("minimalloc", name, out); }
static void to_perfetto(const char *name, struct outcome *out) { convert_to("perfetto", name, out); }

static void replay_gapless(const char *name, struct outcome *out) { replay_with(GAP_POLICY_GAPLESS, name, out); }
static void replay_native(const char *name, struct outcome *out) { replay_with(GAP_POLICY_NATIVE, name, out); }

static void report(const char *name, struct outcome *out) {
  gap_report_options options;
  gap_report *report = NULL;
  gap_report_defaults(&options);
  options.no_what_if = 1;
  out->rc = gap_report_new(&options, &report);
  if (!out->rc) out->rc = gap_report_file(report, path_of(name), out->message, sizeof out->message);
  if (!out->rc) out->rc = gap_report_make(report, NULL, NULL);
  char *json = out->rc ? NULL : gap_report_json(report);
  if (!out->rc && !json) out->rc = GAP_ENOMETA;
  out->figure = json ? strlen(json) : 0;
  free(json);
  gap_report_free(report);
}

static void configure(const char *string, struct outcome *out) {
  struct gap__conf_set *set = gap__conf_new(), *copy = NULL;
  out->rc = set ? gap__conf_apply(set, GAP__CONF_RUNTIME, "test", string, NULL) : GAP_ENOMETA;
  if (!out->rc) copy = gap__conf_copy(set);
  if (!out->rc && !copy) out->rc = GAP_ENOMETA;
  if (copy) out->figure = gap__conf_values(copy)->max_memory.bytes;
  gap__conf_free(copy);
  gap__conf_free(set);
}

static struct outcome run(work_fn *work, const char *subject, struct fault *f, const struct fault_plan *plan) {
  struct outcome out = {0};
  *f = (struct fault){.plan = *plan};
  fault_watch(f);
  work(subject, &out);
  fault_watch(NULL);
  if (f->pages_mapped || f->pieces)
    fail_msg("%s, %s %llu: %lld mappings and %lld pieces leak", subject, fault_kind_name(plan->kind),
             (unsigned long long)plan->nth, (long long)f->pages_mapped, (long long)f->pieces);
  return out;
}

static void expect_clean(const char *subject, const struct fault_plan *plan, const struct outcome *got,
                         const struct outcome *clean) {
  bool same = got->rc == 0 && got->figure == clean->figure;
  bool says = got->rc == GAP_ENOMETA || got->rc == GAP_ELIMIT; /* "too many for the limit, or for the host" */
  if (!same && !says)
    fail_msg("%s, %s %llu %s: %s, %s", subject, fault_kind_name(plan->kind), (unsigned long long)plan->nth,
             plan->lasting ? "lasting" : "once", gap_strerror(got->rc), got->message);
}

static void torture(work_fn *work, const char *subject) {
  struct fault clean_run, f;
  struct outcome clean = run(work, subject, &clean_run, &(struct fault_plan){0});
  if (clean.rc) fail_msg("%s: %s", subject, clean.message);
  unsigned runs = 0;
  for (int kind = FAULT_PAGES; kind < FAULT_KINDS; kind++) {
    uint64_t count = clean_run.calls[kind], step = count / RUNS_MAX + 1;
    for (uint64_t n = 1; n <= count; n += step)
      for (int lasting = 0; lasting < 2; lasting++, runs++) {
        struct fault_plan plan = {.kind = kind, .nth = n, .lasting = lasting != 0};
        struct outcome got = run(work, subject, &f, &plan);
        assert_true(f.hits > 0);
        expect_clean(subject, &plan, &got, &clean);
      }
  }
  print_message("%s: %u runs with a fault\n", subject, runs);
}

static void readers(void **state) {
  (void)state;
  static const char *const names[] = {"made/small.5.pickle", "made/small.pickle.zst",  "made/small.pickle.xz",
                                      "made/policy.json.gz", "made/old_layout.pickle", "flexgen_oom_snapshot.pickle.xz",
                                      "ring.pickle.xz",      "made/small.rmm.csv",     "minimalloc/input.12.csv"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) torture(read_history, names[i]);
}

static void conversions(void **state) {
  (void)state;
  torture(to_pickle, "made/small.5.pickle");
  torture(to_pickle, "made/small.rmm.csv");
  torture(to_rmm, "made/small.5.pickle");
  torture(to_minimalloc, "made/small.5.pickle");
  torture(to_perfetto, "made/small.5.pickle");
}

static void replays(void **state) {
  (void)state;
  torture(replay_gapless, "made/small.5.pickle");
  torture(replay_native, "made/small.5.pickle");
}

static void reports(void **state) {
  (void)state;
  torture(report, "made/small.5.pickle");
  torture(report, "ring.pickle.xz");
}

static void configurations(void **state) {
  (void)state;
  torture(configure, "max_memory:3GiB,roundup_power2_divisions:[256:1,512:2,>:8],strategy:gapless,unknown_key:5");
  torture(configure, "strategy:pooled,pool_sizes:[2MiB,8MiB,64MiB]");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(readers), cmocka_unit_test(conversions),
                                     cmocka_unit_test(replays), cmocka_unit_test(reports),
                                     cmocka_unit_test(configurations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
