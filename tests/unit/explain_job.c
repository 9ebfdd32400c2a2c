/* Which rank of a job limits it: recorded files whose difference is known, and a heap of two devices that writes its own history. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gapless/explain.h"
#include "support/api_try.h"

enum { RANKS_MAX = 4 };

struct job {
  gap_explain_rank ranks[RANKS_MAX];
  uint32_t count;
  gap_explain_job *job;
};

static gap_explanation *open_file(const char *path, int64_t device) {
  gap_explain_options options;
  gap_explanation *out;
  char message[512];
  gap_explain_defaults(&options);
  options.device = device;
  if (gap_explain_open(path, &options, &out, message, sizeof message)) fail_msg("%s: %s", path, message);
  return out;
}

static const char *data(const char *name) {
  static char path[RANKS_MAX][512];
  static unsigned turn;
  char *out = path[turn++ % RANKS_MAX];
  snprintf(out, sizeof path[0], "%s/%s", GAP_TEST_DATA, name);
  return out;
}

static void add(struct job *job, gap_explanation *explanation, const char *name) {
  assert_true(job->count < RANKS_MAX);
  job->ranks[job->count++] = (gap_explain_rank){.explanation = explanation, .file = name};
}

static void begin(struct job *job) { assert_int_equal(gap_explain_job_open(job->ranks, job->count, &job->job), 0); }

static void end(struct job *job) {
  gap_explain_job_close(job->job);
  for (uint32_t i = 0; i < job->count; i++) gap_explain_close(job->ranks[i].explanation);
}

static void says(const struct job *job, const char *words) {
  char *text = gap_explain_job_words(job->job, 0), *json = gap_explain_job_json(job->job);
  assert_non_null(text);
  assert_non_null(json);
  if (!strstr(text, words)) fail_msg("\"%s\" is not in \"%s\"", words, text);
  assert_non_null(strstr(json, words));
  free(text);
  free(json);
}

/* The second one's batches are larger by 2 in four layers of 4 MiB. */
static void files_of_two_ranks(void **state) {
  (void)state;
  struct job job = {0};
  add(&job, open_file(data("made/rank1.pickle.xz"), -1), "one");
  add(&job, open_file(data("made/rank0.pickle.xz"), -1), "zero");
  begin(&job);
  assert_int_equal(gap_explain_job_limits(job.job), 0);
  assert_int_equal(gap_explain_device(job.ranks[0].explanation), 1);
  assert_int_equal(job.ranks[0].need_bytes - job.ranks[1].need_bytes, 32 * MIB);
  says(&job, "one, device 1, limits the job");
  says(&job,
       "32 MiB (14 %) more than the other. It has activations 32 MiB more. Most of it is from model.py:20 forward");
  end(&job);
}

static void devices_of_one_file(void **state) {
  (void)state;
  struct job job = {0};
  gap_explanation *first = open_file(data("made/ranks.pickle.xz"), 0), *second, *none;
  assert_int_equal(gap_explain_device_count(first), 2);
  assert_int_equal(gap_explain_other_device(first, 1, &second), 0);
  assert_int_equal(gap_explain_other_device(first, 2, &none), GAP_EINVAL);
  assert_null(none);
  add(&job, first, "file");
  add(&job, second, "file");
  begin(&job);
  assert_int_equal(gap_explain_job_limits(job.job), 1);
  says(&job, "file, device 1, limits the job");
  end(&job);
}

/* Nothing is asked of devices that have no memory. */
static void a_device_without_memory(void **state) {
  (void)state;
  gap_explanation *first = open_file(data("made/rank1.pickle.xz"), -1), *other;
  assert_int_equal(gap_explain_device_count(first), 2);
  assert_int_equal(gap_explain_other_device(first, 0, &other), GAP_EINVAL);
  gap_explain_close(first);
}

static void equal_ranks_and_a_refused_one(void **state) {
  (void)state;
  struct job job = {0};
  add(&job, open_file(data("made/rank1.pickle.xz"), -1), "a");
  add(&job, open_file(data("made/rank1.pickle.xz"), -1), "b");
  assert_int_equal(gap_explain_job_open(job.ranks, 1, &job.job), GAP_EINVAL);
  begin(&job);
  says(&job, "No rank limits the job by itself");
  gap_explain_job_close(job.job);
  add(&job, open_file(data("made/small.3.pickle"), 0), "small"); /* needs little, but was refused 4 GiB */
  begin(&job);
  assert_int_equal(gap_explain_job_limits(job.job), 2);
  assert_int_equal(job.ranks[2].refusals, 1);
  says(&job, "small, device 0, limits the job: 4 GiB were refused there (once: full)");
  end(&job);
}

/* A heap of two devices; the second one has more at a time, the first one more in all. */
static void write_trace(const char *path) {
  char conf[256];
  gap_addr blocks[2];
  snprintf(conf, sizeof conf, "trace:%s,page_maker:False", path);
  gap_heap *heap = api_open(GAP_BACKEND_HOST, 256 * MIB, conf);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(gap_alloc(heap, 0, 8, 30 * MIB, &blocks[0]), 0);
    assert_int_equal(gap_free(heap, blocks[0]), 0);
  }
  for (int i = 0; i < 2; i++) assert_int_equal(gap_alloc(heap, 1, 8, 20 * MIB, &blocks[i]), 0);
  for (int i = 0; i < 2; i++) assert_int_equal(gap_free(heap, blocks[i]), 0);
  api_close(heap);
}

static void a_trace_of_two_devices(void **state) {
  (void)state;
  char path[] = "/tmp/gapless-job-XXXXXX";
  struct job job = {0};
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  write_trace(path);
  gap_explanation *first = open_file(path, 0), *second;
  assert_int_equal(gap_explain_other_device(first, 1, &second), 0);
  add(&job, first, "trace");
  add(&job, second, "trace");
  begin(&job);
  assert_int_equal(job.ranks[0].need_bytes, 30 * MIB);
  assert_int_equal(job.ranks[1].need_bytes, 40 * MIB);
  says(&job, "trace, device 1, limits the job: nobody was refused, and it needs most, 40 MiB live at its peak, 10 MiB "
             "(33 %) more");
  end(&job);
  assert_int_equal(unlink(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_of_two_ranks),      cmocka_unit_test(devices_of_one_file),
      cmocka_unit_test(a_device_without_memory), cmocka_unit_test(equal_ranks_and_a_refused_one),
      cmocka_unit_test(a_trace_of_two_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
