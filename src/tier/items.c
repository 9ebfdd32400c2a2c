#include "tier/items.h"

#include <stdio.h>
#include <stdlib.h>

#include "tier/state.h"

enum { MISSES = 8, HOST_UNITS = 8 };             /* of a piece: small enough for several threads to add up one item */
static const uint64_t grow_bytes = 256ull << 20; /* at once: several processors pin */
static const uint64_t most_bytes = (uint64_t)1 << 50;

/* ---- records ---- */

static struct tier_item *at(const struct tier_items *items, uint32_t index) {
  return gap__slab_at(&items->records, index);
}
static gap_item name_of(const struct tier_items *items, const struct tier_item *item) {
  size_t index = (size_t)((const unsigned char *)item - items->records.base) / items->records.record_bytes;
  return (uint64_t)item->generation << 32 | index;
}

static struct tier_item *find(const struct tier_items *items, gap_item name) {
  uint32_t index = (uint32_t)name;
  if (!index || !items->records.base || index >= items->records.count) return NULL;
  struct tier_item *item = at(items, index);
  return item->named && item->generation == name >> 32 ? item : NULL;
}

static int make(struct tier_device *d, uint64_t bytes, struct tier_item **out) {
  gap__event event;
  int rc = gap__dev_event_create(d->dev, d->items.out, &event);
  if (rc) return rc;
  pthread_mutex_lock(&d->items.mutex);
  uint32_t index = gap__slab_take(&d->items.records);
  if (index) {
    *out = at(&d->items, index);
    **out = (struct tier_item){.generation = (*out)->generation + 1, .bytes = bytes, .event = event, .named = true};
    d->items.live++;
  }
  pthread_mutex_unlock(&d->items.mutex);
  if (!index) gap__dev_event_destroy(d->dev, event);
  return index ? 0 : GAP_ENOMETA;
}

/* Both mutexes are held; nothing of it is under way. */
static void forget_jobs(struct tier_item *item) {
  for (struct tier_job *next; item->ended; item->ended = next) {
    next = item->ended->next;
    gap__items_job_drop(item->ended);
  }
}

static void unmake(struct tier_device *d, struct tier_item *item) {
  for (uint32_t i = 0; i < item->kept.count && !item->stuck; i++) gap__piece_give(&d->image, &item->kept.pieces[i]);
  forget_jobs(item);
  gap__dev_event_destroy(d->dev, item->event);
  free(item->kept.pieces);
  free(item->words);
  item->bytes = 0;
  item->named = false;
  d->items.live--;
  gap__slab_give(&d->items.records, (uint32_t)name_of(&d->items, item));
}

/* An event that could not be put behind copies is put there now, if the driver works again. */
static int mark_again(struct tier_device *d, struct tier_item *item) {
  int rc = item->unmarked ? gap__dev_event_record(d->dev, item->event, item->unmarked) : 0;
  if (!rc) item->unmarked = 0;
  return rc;
}

static bool is_quiet(struct tier_device *d, struct tier_item *item) {
  if (item->jobs || item->stuck || mark_again(d, item)) return false;
  return gap__dev_event_query(d->dev, item->event) == 0;
}

/* It has no name from here on; both mutexes are held. */
static void leave(struct tier_items *items, struct tier_item *item) {
  uint32_t index = (uint32_t)name_of(items, item);
  item->named = false;
  item->next = 0;
  if (items->gone_last) at(items, items->gone_last)->next = index;
  else items->gone = index;
  items->gone_last = index;
}

/* Copies end in the order in which they were queued, more or less: when some in a row are not over yet, the rest is not asked. */
static void sweep(struct tier_device *d, uint32_t misses_most) {
  struct tier_items *items = &d->items;
  uint32_t misses = 0, last = 0, *link = &items->gone;
  while (*link && misses < misses_most) {
    struct tier_item *item = at(items, *link);
    if (!item->holders && is_quiet(d, item)) {
      *link = item->next;
      unmake(d, item);
      misses = 0;
    } else {
      last = *link;
      link = &item->next;
      misses++;
    }
  }
  if (!*link) items->gone_last = last;
}

static void sweep_locked(struct tier_device *d, uint32_t misses_most) {
  pthread_mutex_lock(&d->items.mutex);
  sweep(d, misses_most);
  bool idle = !d->items.live;
  pthread_mutex_unlock(&d->items.mutex);
  if (idle && d->items.ready_disk) gap__carrier_unstage(&d->items.carrier, &d->pinned);
}

void gap__items_sweep(struct tier_device *d) { sweep_locked(d, UINT32_MAX); }

/* ---- begin and end ---- */

void gap__items_init(struct tier_items *items) {
  pthread_mutex_init(&items->mutex, NULL);
  pthread_cond_init(&items->changed, NULL);
}

void gap__items_free(struct tier_items *items) {
  pthread_mutex_destroy(&items->mutex);
  pthread_cond_destroy(&items->changed);
}

static void end_streams(struct tier_device *d) {
  struct tier_items *items = &d->items;
  if (items->in) gap__dev_stream_destroy(d->dev, items->in);
  if (items->out) gap__dev_stream_destroy(d->dev, items->out);
  gap__carrier_free(&items->carrier);
}

void gap__items_end(struct tier_device *d) {
  struct tier_items *items = &d->items;
  gap__hands_end(&items->disk);
  gap__hands_end(&items->arrivals);
  gap__hands_end(&items->sums);
  for (uint32_t i = 1; i < items->records.count; i++) {
    struct tier_item *item = at(items, i);
    if (!item->bytes) continue;
    item->stuck |= mark_again(d, item) || gap__dev_event_wait(d->dev, item->event);
    unmake(d, item);
  }
  gap__carrier_unstage(&items->carrier, &d->pinned);
  if (items->ready_disk) gap__disk_shut(&items->door);
  end_streams(d);
  gap__slab_destroy(&items->records);
}

/* ---- room ---- */

struct putting {
  struct gap__tier *tier;
  struct tier_device *d;
  struct tier_item *item;
  unsigned flags;
  char words[TIER_WORDS];
};

static int say(struct putting *p, int rc, const char *words) {
  snprintf(p->words, sizeof p->words, "%s", words);
  return rc;
}

static uint32_t units_of(const struct tier_item *item) {
  return (uint32_t)((item->bytes + GAP__UNIT_PAGE - 1) / GAP__UNIT_PAGE);
}

/* One that has no name any more, and whose room in one of the places comes back when its copies are over; with our use noted. */
static struct tier_item *first_leaving(struct tier_device *d, bool on_disk) {
  struct tier_items *items = &d->items;
  pthread_mutex_lock(&items->mutex);
  uint32_t index = items->gone;
  while (index && (at(items, index)->on_disk != on_disk || at(items, index)->stuck || at(items, index)->unmarked))
    index = at(items, index)->next;
  struct tier_item *item = index ? at(items, index) : NULL;
  if (item) item->holders++;
  pthread_mutex_unlock(&items->mutex);
  return item;
}

/* Until nothing of it is under way. */
static int await_item(struct tier_device *d, struct tier_item *item) {
  pthread_mutex_lock(&d->items.mutex);
  while (item->jobs) pthread_cond_wait(&d->items.changed, &d->items.mutex);
  pthread_mutex_unlock(&d->items.mutex);
  return gap__dev_event_wait(d->dev, item->event);
}

static void let_go(struct tier_device *d, struct tier_item *item) {
  pthread_mutex_lock(&d->items.mutex);
  item->holders--;
  pthread_cond_broadcast(&d->items.changed);
  pthread_mutex_unlock(&d->items.mutex);
}

static uint64_t taken(const struct tier_device *d, bool on_disk) {
  return on_disk ? d->disk.units_used : d->pinned.used_bytes;
}

/* False: there is none, or the driver does not say.  The device's mutex is given up meanwhile. */
static bool await_leaving(struct tier_device *d, bool on_disk) {
  struct tier_item *item = first_leaving(d, on_disk);
  uint64_t before = taken(d, on_disk);
  if (!item) return false;
  gap__tier_leave(d);
  int rc = await_item(d, item);
  pthread_mutex_lock(&d->mutex);
  let_go(d, item);
  gap__items_sweep(d);
  return rc == 0 && taken(d, on_disk) < before; /* a driver that answers no question keeps it */
}

static uint32_t count_leaving(struct tier_device *d) {
  uint32_t count = 0;
  pthread_mutex_lock(&d->items.mutex);
  for (uint32_t index = d->items.gone; index; index = at(&d->items, index)->next) count++;
  pthread_mutex_unlock(&d->items.mutex);
  return count;
}

/* As many as there are now: others may go on dropping. */
void gap__items_settle(struct tier_device *d) {
  gap__items_sweep(d);
  for (uint32_t left = count_leaving(d); left; left--)
    if (!await_leaving(d, false) && !await_leaving(d, true)) return;
}

/* So that as much is unused: what leaves is waited for, then the pool grows. */
static int ensure_host(struct putting *p, uint64_t bytes) {
  struct gap__pinned *pinned = &p->d->pinned;
  uint64_t reach = bytes;
  while (gap__pinned_unused(pinned) < bytes && (reach = gap__pinned_reach(pinned)) < bytes)
    if (!await_leaving(p->d, false)) break;
  if (gap__pinned_unused(pinned) >= bytes) return 0;
  uint64_t ahead = reach < grow_bytes ? reach : grow_bytes;
  int rc = gap__pinned_ensure(pinned, bytes > ahead ? bytes : ahead);
  return rc ? say(p, rc, pinned->refusal) : 0;
}

/* One piece of at most `units`, where the string's `done` units end. */
static int take_piece(struct putting *p, uint32_t done, uint32_t units) {
  struct tier_device *d = p->d;
  struct gap__piece piece = {.addr = done * GAP__UNIT_PAGE};
  int rc = 0;
  if (p->item->on_disk) rc = gap__disk_take(&d->disk, units, &piece.disk, &piece.units);
  else piece.units = gap__pinned_take(&d->pinned, units, &piece.host);
  if (rc) return say(p, rc, d->disk.refusal);
  rc = gap__pieces_add(&p->item->kept, &piece);
  if (rc) gap__piece_give(&d->image, &piece);
  return rc;
}

static int take_pieces(struct putting *p) {
  uint32_t most = p->item->on_disk ? GAP__CARRY_DISK_UNITS : HOST_UNITS;
  int rc = 0;
  for (uint32_t done = 0, left; (left = units_of(p->item) - done) && !rc;) {
    rc = take_piece(p, done, left < most ? left : most);
    if (!rc) done += p->item->kept.pieces[p->item->kept.count - 1].units;
  }
  return rc;
}

static int take_host(struct putting *p) {
  int rc = ensure_host(p, units_of(p->item) * GAP__UNIT_PAGE);
  return rc ? rc : take_pieces(p);
}

/* Buffers for the disk are taken before items have all of the host memory. */
static int ready_disk(struct putting *p) {
  struct tier_device *d = p->d;
  if (!*p->tier->conf.disk) return say(p, GAP_ELIMIT, "there is no disk in tiers");
  int rc = gap__tier_open_disk(p->tier, d, p->words);
  if (!rc) rc = gap__items_disk_begin(d);
  if (rc || d->items.carrier.stages[0]) return rc;
  rc = gap__carrier_stage(&d->items.carrier, &d->pinned);
  return rc ? say(p, rc, d->items.carrier.words) : 0;
}

static void give_pieces(struct putting *p) {
  struct tier_pieces *kept = &p->item->kept;
  while (kept->count) gap__piece_give(&p->d->image, &kept->pieces[--kept->count]);
}

static int take_disk(struct putting *p) {
  for (;;) {
    int rc = take_pieces(p);
    if (rc) give_pieces(p);
    if ((rc != GAP_ELIMIT && rc != GAP_EIO) || !await_leaving(p->d, true)) return rc;
  }
}

static int take_room(struct putting *p) {
  const struct gap__conf_tiers *conf = &p->tier->conf;
  bool has_disk = *conf->disk, only_host = p->flags & GAP_PUT_HOST || !has_disk;
  bool only_disk = p->flags & GAP_PUT_DISK || (!only_host && !conf->host);
  if (has_disk) (void)ready_disk(p); /* or it says why when there is need of it */
  if (!only_disk) {
    int rc = take_host(p);
    if (!rc || only_host) return rc;
    give_pieces(p);
  }
  int rc = ready_disk(p);
  p->item->on_disk = !rc;
  return rc ? rc : take_disk(p);
}

/* ---- put ---- */

/* The copies of the job's pieces, and an event behind them. */
static int copy(struct tier_job *job, struct gap__spans spans, bool out, gap_stream way) {
  struct gap__dev *dev = job->d->dev;
  struct tier_item *item = job->item;
  int rc = out ? 0 : mark_again(job->d, item);
  if (!rc && !out) rc = gap__dev_stream_wait(dev, way, item->event); /* the bytes have arrived */
  if (!rc) rc = gap__dev_stream_wait(dev, way, job->ready);
  for (uint32_t i = job->first; i < job->first + job->count && !rc; i++) {
    const struct gap__piece *piece = &item->kept.pieces[i];
    rc = gap__spans_copy(dev, spans, piece->addr, gap__piece_bytes(piece), piece->host, out, way);
  }
  int marked = gap__dev_event_record(dev, item->event, way);
  if (marked) item->unmarked = way;
  return rc ? rc : marked;
}

/* An event behind what the stream was given up to now. */
static int mark(struct tier_job *job, gap_stream stream) {
  int rc = gap__dev_event_create(job->d->dev, stream, &job->ready);
  if (rc) job->ready = 0;
  return rc ? rc : gap__dev_event_record(job->d->dev, job->ready, stream);
}

static int send_out(struct putting *p, struct gap__spans spans, gap_stream stream) {
  bool disk = p->item->on_disk;
  struct tier_job *job =
      gap__items_job_new(p->d, p->item, disk ? TIER_JOB_WRITE : TIER_JOB_SUM, spans.spans, disk ? spans.count : 0);
  int rc = job ? mark(job, stream) : GAP_ENOMETA;
  if (!rc && !disk) rc = copy(job, spans, true, p->d->items.out);
  if (rc == GAP_EINVAL) say(p, rc, gap__items_unreachable);
  if (rc) gap__items_job_drop(job);
  else gap__items_job_start(job);
  return rc;
}

static int put(struct putting *p, struct gap__spans spans, gap_stream stream) {
  struct tier_device *d = p->d;
  sweep_locked(d, MISSES);
  int rc = gap__items_work_begin(d);
  if (!rc && !gap__dev_recordable(d->dev, stream)) rc = say(p, GAP_ESTATE, "the stream captures a graph");
  if (!rc) rc = make(d, gap__spans_bytes(spans), &p->item);
  if (rc) return rc;
  rc = take_room(p);
  if (!rc) rc = send_out(p, spans, stream);
  if (!rc) return 0;
  pthread_mutex_lock(&d->items.mutex);
  leave(&d->items, p->item);
  pthread_mutex_unlock(&d->items.mutex);
  sweep_locked(d, UINT32_MAX);
  return rc;
}

static const char *wrong_spans(struct gap__spans spans) {
  if (!spans.count) return "no spans were given";
  if (gap__spans_bytes(spans) > most_bytes)
    return "a span has no address or no bytes, or they have more than 2^50 together";
  return NULL;
}

int gap__tier_put(struct gap__tier *tier, int device, const gap_span *spans, uint32_t count, gap_stream stream,
                  unsigned flags, gap_item *out) {
  struct gap__spans string = {spans, count, 0};
  struct putting p = {.tier = tier, .flags = flags};
  int rc = gap__tier_enter(tier, device, &p.d);
  if (rc) return rc;
  const char *wrong = flags > GAP_PUT_DISK ? "it goes to host memory or to the disk, not to both" : wrong_spans(string);
  rc = wrong ? say(&p, GAP_EINVAL, wrong) : put(&p, string, stream);
  if (!rc) *out = name_of(&p.d->items, p.item);
  if (!rc) p.d->figures.bytes_out += p.item->bytes;
  gap__tier_explain(tier, p.d, rc, "put", p.words);
  gap__tier_leave(p.d);
  return rc;
}

/* ---- get ---- */

/* The pieces that the job's spans come from. */
static void choose_pieces(struct tier_job *job, uint64_t bytes) {
  const struct tier_pieces *kept = &job->item->kept;
  uint64_t from = job->spans.from;
  while (kept->pieces[job->first].addr + gap__piece_bytes(&kept->pieces[job->first]) <= from) job->first++;
  for (job->count = 0; job->first + job->count < kept->count; job->count++)
    if (kept->pieces[job->first + job->count].addr >= from + bytes) break;
}

static int no_such_part(const struct tier_item *item, uint64_t from, uint64_t bytes, char *words) {
  snprintf(words, TIER_WORDS, "the item has %llu bytes, and %llu from %llu on were asked for",
           (unsigned long long)item->bytes, (unsigned long long)bytes, (unsigned long long)from);
  return GAP_EINVAL;
}

static int refused(int rc, const char *why, char *words) {
  snprintf(words, TIER_WORDS, "%s", why);
  return rc;
}

static int get(struct tier_device *d, struct tier_item *item, struct gap__spans spans, gap_stream stream, char *words) {
  const char *wrong = wrong_spans(spans);
  if (wrong) return refused(GAP_EINVAL, wrong, words);
  uint64_t bytes = gap__spans_bytes(spans);
  if (bytes > item->bytes || spans.from > item->bytes - bytes) return no_such_part(item, spans.from, bytes, words);
  if (!gap__dev_recordable(d->dev, stream)) return refused(GAP_ESTATE, "the stream captures a graph", words);
  struct tier_job *job =
      gap__items_job_new(d, item, item->on_disk ? TIER_JOB_READ : TIER_JOB_CHECK, spans.spans, spans.count);
  int rc = job ? mark(job, stream) : GAP_ENOMETA;
  if (rc) {
    gap__items_job_drop(job);
    return rc;
  }
  job->spans.from = spans.from;
  choose_pieces(job, bytes);
  pthread_mutex_lock(&d->items.mutex);
  if (is_quiet(d, item)) forget_jobs(item);
  pthread_mutex_unlock(&d->items.mutex);
  if (!item->on_disk)
    atomic_store(&job->rc, copy(job, job->spans, false, d->items.in)); /* a join says so: some may be under way */
  gap__items_job_start(job);
  d->figures.bytes_in += bytes;
  return 0;
}

static int no_such_item(struct gap__tier *tier, const struct tier_device *d, const char *what) {
  gap__tier_explain(tier, d, GAP_EINVAL, what, "there is no such item: it was never put, or was dropped");
  return GAP_EINVAL;
}

/* The item by name, with the device's mutex held: nobody drops it meanwhile.  GAP_EINVAL: there is none. */
static int enter(struct gap__tier *tier, int device, gap_item name, const char *what, struct tier_device **d,
                 struct tier_item **item) {
  int rc = gap__tier_enter(tier, device, d);
  if (rc) return rc;
  pthread_mutex_lock(&(*d)->items.mutex);
  *item = find(&(*d)->items, name);
  pthread_mutex_unlock(&(*d)->items.mutex);
  if (*item) return 0;
  rc = no_such_item(tier, *d, what);
  gap__tier_leave(*d);
  return rc;
}

int gap__tier_get(struct gap__tier *tier, int device, gap_item name, uint64_t from, const gap_span *spans,
                  uint32_t count, gap_stream stream) {
  struct tier_device *d;
  struct tier_item *item;
  char words[TIER_WORDS] = "";
  int rc = enter(tier, device, name, "get", &d, &item);
  if (rc) return rc;
  rc = get(d, item, (struct gap__spans){spans, count, from}, stream, words);
  gap__tier_explain(tier, d, rc, "get", words);
  gap__tier_leave(d);
  return rc;
}

/* ---- waiting ---- */

/* Why it failed: of a get that is told once, of a put each time.  The items' mutex is held. */
static int take_failure(struct tier_item *item, char *words) {
  int rc = item->lost ? item->lost : item->failed;
  if (rc && item->words) snprintf(words, TIER_WORDS, "%s", item->words);
  item->failed = 0;
  return rc;
}

static int await_ends(struct tier_device *d, struct tier_item *item, char *words) {
  pthread_mutex_lock(&d->items.mutex);
  while (item->awaited) pthread_cond_wait(&d->items.changed, &d->items.mutex);
  int rc = take_failure(item, words);
  pthread_mutex_unlock(&d->items.mutex);
  return rc;
}

static int await_all(struct tier_device *d, struct tier_item *item, char *words) {
  int over = await_item(d, item);
  pthread_mutex_lock(&d->items.mutex);
  int rc = take_failure(item, words);
  pthread_mutex_unlock(&d->items.mutex);
  return rc ? rc : over;
}

/* Holds the item without the device's mutex. */
static int hold(struct gap__tier *tier, int device, gap_item name, const char *what, struct tier_device **d,
                struct tier_item **item) {
  int rc = enter(tier, device, name, what, d, item);
  if (rc) return rc;
  pthread_mutex_lock(&(*d)->items.mutex);
  (*item)->holders++;
  pthread_mutex_unlock(&(*d)->items.mutex);
  gap__tier_leave(*d);
  return 0;
}

int gap__tier_join(struct gap__tier *tier, int device, gap_item name, gap_stream stream) {
  char words[TIER_WORDS] = "";
  struct tier_device *d;
  struct tier_item *item;
  int rc = hold(tier, device, name, "join", &d, &item);
  if (rc) return rc;
  rc = await_ends(d, item, words);
  if (!rc && !gap__dev_recordable(d->dev, stream)) rc = refused(GAP_ESTATE, "the stream captures a graph", words);
  if (!rc && !item->on_disk)
    rc = gap__dev_stream_wait(d->dev, stream, item->event); /* what is carried was waited for */
  let_go(d, item);
  gap__tier_explain(tier, d, rc, "join", words);
  return rc;
}

int gap__tier_wait(struct gap__tier *tier, int device, gap_item name) {
  char words[TIER_WORDS] = "";
  struct tier_device *d;
  struct tier_item *item;
  int rc = hold(tier, device, name, "wait", &d, &item);
  if (rc) return rc;
  rc = await_all(d, item, words);
  let_go(d, item);
  gap__tier_explain(tier, d, rc, "wait", words);
  return rc;
}

int gap__tier_look(struct gap__tier *tier, int device, gap_item name, gap_item_info *out) {
  if (out->size != sizeof *out || device < 0 || device >= tier->count) return GAP_EINVAL;
  if (gap__heap_forked(tier->heap)) return GAP_EFORKED;
  struct tier_device *d = &tier->devices[device];
  pthread_mutex_lock(&d->items.mutex);
  const struct tier_item *item = find(&d->items, name);
  if (item) {
    uint64_t room = units_of(item) * GAP__UNIT_PAGE;
    bool copying = item->awaited || gap__dev_event_query(d->dev, item->event) == GAP_EAGAIN;
    *out = (gap_item_info){.size = sizeof *out,
                           .bytes = item->bytes,
                           .host_bytes = item->on_disk ? 0 : room,
                           .disk_bytes = item->on_disk ? room : 0,
                           .copying = copying,
                           .busy = copying || item->jobs,
                           .error = item->lost ? item->lost : item->failed};
  }
  pthread_mutex_unlock(&d->items.mutex);
  return item ? 0 : no_such_item(tier, d, "look");
}

int gap__tier_drop(struct gap__tier *tier, int device, gap_item name) {
  struct tier_device *d;
  struct tier_item *item;
  int rc = enter(tier, device, name, "drop", &d, &item);
  if (rc) return rc;
  pthread_mutex_lock(&d->items.mutex);
  leave(&d->items, item);
  pthread_mutex_unlock(&d->items.mutex);
  sweep_locked(d, MISSES);
  gap__tier_leave(d);
  return 0;
}
