/* What the threads do for items. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sum.h"
#include "tier/crew.h"
#include "tier/state.h"

static struct tier_items *items_of(const struct tier_job *job) { return &job->d->items; }
static struct gap__piece *piece_of(const struct tier_job *job, uint32_t part) {
  return &job->item->kept.pieces[job->first + part];
}

/* ---- jobs ---- */

struct tier_job *gap__items_job_new(struct tier_device *d, struct tier_item *item, enum tier_job_kind kind,
                                    const gap_span *spans, uint32_t count) {
  struct tier_job *job = calloc(1, sizeof *job + count * sizeof *spans);
  if (!job) return NULL;
  job->d = d;
  job->item = item;
  job->kind = kind;
  job->count = item->kept.count;
  if (count) memcpy(job->copies, spans, count * sizeof *spans);
  job->spans = (struct gap__spans){.spans = job->copies, .count = count};
  return job;
}

void gap__items_job_drop(struct tier_job *job) {
  if (job && job->ready) gap__dev_event_destroy(job->d->dev, job->ready);
  free(job);
}

/* Somebody waits for a comparison, or will. */
static void send(struct tier_job *job) {
  struct tier_items *items = items_of(job);
  atomic_store(&job->left, job->count);
  switch (job->kind) {
    case TIER_JOB_SUM: gap__hands_give(&items->arrivals, &job->task, 1); break;
    case TIER_JOB_CHECK: gap__hands_give_first(&items->sums, &job->task, job->count); break;
    case TIER_JOB_WRITE:
    case TIER_JOB_READ: gap__hands_give(&items->disk, &job->task, 1); break;
  }
}

/* ---- their ends ---- */

const char gap__items_unreachable[] = "a span is no memory that the device reaches, or it sleeps";

static void note(struct tier_job *job, int rc, const char *words) {
  struct tier_item *item = job->item;
  bool out = job->kind == TIER_JOB_SUM || job->kind == TIER_JOB_WRITE;
  int *why = out ? &item->lost : &item->failed;
  if (*why) return;
  *why = rc;
  free(item->words);
  if (!*words && rc == GAP_EINVAL) words = gap__items_unreachable;
  item->words = *words ? strdup(words) : NULL;
}

static void end(struct tier_job *job, const char *words) {
  struct tier_items *items = items_of(job);
  pthread_mutex_lock(&items->mutex);
  int rc = atomic_load(&job->rc);
  if (rc) note(job, rc, words);
  if (job->kind == TIER_JOB_SUM) job->item->unsummed = false;
  else job->item->awaited--;
  job->item->stuck |= job->stuck;
  job->item->jobs--;
  job->next = job->item->ended;
  job->item->ended = job;
  pthread_cond_broadcast(&items->changed);
  pthread_mutex_unlock(&items->mutex);
}

void gap__items_job_start(struct tier_job *job) {
  struct tier_items *items = items_of(job);
  struct tier_item *item = job->item;
  pthread_mutex_lock(&items->mutex);
  item->jobs++;
  if (job->kind == TIER_JOB_SUM) item->unsummed = true;
  else item->awaited++;
  bool is_over = job->kind == TIER_JOB_CHECK && (item->unsummed || atomic_load(&job->rc));
  pthread_mutex_unlock(&items->mutex);
  if (is_over) end(job, "");
  else send(job);
}

/* ---- host memory ---- */

/* A part is done, well or not; with the last one so is the job. */
static void end_part(struct tier_job *job, int rc, const char *words) {
  int none = 0;
  struct tier_items *items = items_of(job);
  if (rc && atomic_compare_exchange_strong(&job->rc, &none, rc) && *words) {
    pthread_mutex_lock(&items->mutex);
    note(job, rc, words);
    pthread_mutex_unlock(&items->mutex);
  }
  if (atomic_fetch_sub(&job->left, 1) == 1) end(job, "");
}

static void await_arrival(void *arg, struct gap__task *task, uint32_t part) {
  struct tier_job *job = (struct tier_job *)task;
  (void)arg, (void)part;
  int rc = gap__dev_event_wait(job->d->dev, job->item->event);
  atomic_store(&job->rc, rc);
  if (rc) end(job, "");
  else gap__hands_give(&items_of(job)->sums, &job->task, job->count);
}

/* Of what was dropped meanwhile nobody will ask. */
static bool has_name(struct tier_job *job) {
  pthread_mutex_lock(&items_of(job)->mutex);
  bool named = job->item->named;
  pthread_mutex_unlock(&items_of(job)->mutex);
  return named;
}

static void sum_part(void *arg, struct gap__task *task, uint32_t part) {
  struct tier_job *job = (struct tier_job *)task;
  struct gap__piece *piece = piece_of(job, part);
  bool makes = job->kind == TIER_JOB_SUM;
  char words[200] = "";
  (void)arg;
  int rc = job->item->lost;
  uint64_t sum = rc || (makes && !has_name(job)) ? 0 : gap__sum(piece->host, gap__piece_bytes(piece));
  if (makes) piece->sum = sum;
  if (!makes && !rc && sum != piece->sum) {
    rc = GAP_EIO;
    snprintf(words, sizeof words,
             "what was put of %llu bytes has changed in host memory: its checksum is not what it was",
             (unsigned long long)gap__piece_bytes(piece));
  }
  end_part(job, rc, words);
}

/* ---- the disk ---- */

static int nothing(void *arg, const struct gap__piece *piece) {
  (void)arg, (void)piece;
  return 0;
}

static int carry(struct tier_job *job) {
  struct tier_items *items = items_of(job);
  struct gap__carrier *c = &items->carrier;
  struct gap__piece *pieces = piece_of(job, 0);
  int rc = job->item->lost;
  for (int i = 0; i < 2 && !rc; i++) rc = gap__dev_stream_wait(job->d->dev, c->streams[i], job->ready);
  if (rc) return rc;
  if (job->kind == TIER_JOB_WRITE) return gap__carry_out_disk(c, &items->door, pieces, job->count, nothing, NULL);
  return gap__carry_in_disk(c, &items->door, pieces, job->count, nothing, NULL);
}

static void carry_disk(void *arg, struct gap__task *task, uint32_t part) {
  struct tier_job *job = (struct tier_job *)task;
  struct gap__carrier *c = &items_of(job)->carrier;
  (void)arg, (void)part;
  c->words[0] = '\0';
  c->spans = job->spans;
  atomic_store(&job->rc, carry(job));
  job->stuck = c->lost;
  end(job, c->words);
}

/* ---- threads ---- */

static uint32_t sum_threads(void) {
  uint32_t most = gap__crew_size(GAP__HANDS_MAX);
  return most ? most : 1;
}

int gap__items_work_begin(struct tier_device *d) {
  struct tier_items *items = &d->items;
  int rc = 0;
  if (!items->records.base) rc = gap__slab_init_fitting(&items->records, sizeof(struct tier_item), 1u << 20);
  if (!rc && !items->out) rc = gap__dev_stream_create(d->dev, &items->out);
  if (!rc && !items->in) rc = gap__dev_stream_create(d->dev, &items->in);
  if (!rc && !items->sums.thread_count) rc = gap__hands_start(&items->sums, sum_threads(), sum_part, items);
  if (!rc && !items->arrivals.thread_count) rc = gap__hands_start(&items->arrivals, 1, await_arrival, items);
  return rc;
}

int gap__items_disk_begin(struct tier_device *d) {
  struct tier_items *items = &d->items;
  int rc = gap__carrier_ready(&items->carrier);
  if (!rc && !items->disk.thread_count) rc = gap__hands_start(&items->disk, 1, carry_disk, items);
  if (!rc && !items->ready_disk) gap__disk_door(&d->disk, &items->door);
  items->ready_disk |= !rc;
  return rc;
}
