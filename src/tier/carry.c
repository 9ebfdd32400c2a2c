#include "tier/carry.h"

#include <stdio.h>
#include <string.h>

#include "base/sum.h"
#include "base/text.h"
#include "conf/tiers.h"
#include "tier/crew.h"

static const uint64_t stages_bytes = GAP__CARRY_STAGES * GAP__CARRY_DISK_UNITS * GAP__UNIT_PAGE;
_Static_assert(GAP__CARRY_STAGES *GAP__CARRY_DISK_UNITS *GAP__UNIT_PAGE == GAP__CONF_TIERS_PASSAGE,
               "what is said of it");

/* ---- what is needed ---- */

int gap__carrier_ready(struct gap__carrier *c) {
  int rc = 0;
  for (int i = 0; i < 2 && !rc; i++)
    if (!c->streams[i]) rc = gap__dev_stream_create(c->dev, &c->streams[i]);
  for (int i = 0; i < GAP__CARRY_WINDOW && !rc; i++)
    if (!c->events[i]) rc = gap__dev_event_create(c->dev, c->streams[i % 2], &c->events[i]);
  return rc;
}

void gap__carrier_free(struct gap__carrier *c) {
  gap__card_sums_free(&c->sums, c->dev);
  for (int i = 0; i < GAP__CARRY_WINDOW; i++)
    if (c->events[i]) gap__dev_event_destroy(c->dev, c->events[i]);
  for (int i = 0; i < 2; i++)
    if (c->streams[i]) gap__dev_stream_destroy(c->dev, c->streams[i]);
}

int gap__carrier_stage(struct gap__carrier *c, struct gap__pinned *pinned) {
  char asked[GAP__TEXT_BYTES];
  int rc = gap__pinned_ensure(pinned, stages_bytes);
  for (int i = 0; i < GAP__CARRY_STAGES && !rc; i++)
    rc = gap__pinned_take_run(pinned, GAP__CARRY_DISK_UNITS, &c->stages[i]);
  if (rc)
    snprintf(c->words, sizeof c->words, "what goes over the disk or to servers passes through %s of host memory: %s",
             gap__text_size(stages_bytes, asked), pinned->refusal);
  if (rc) gap__carrier_unstage(c, pinned);
  return rc;
}

void gap__carrier_unstage(struct gap__carrier *c, struct gap__pinned *pinned) {
  for (int i = 0; i < GAP__CARRY_STAGES; i++) {
    if (c->stages[i] && !c->lost) gap__pinned_give(pinned, c->stages[i], GAP__CARRY_DISK_UNITS);
    c->stages[i] = NULL;
  }
}

/* ---- copies ---- */

static gap_addr host_addr(const void *memory) { return (gap_addr)(uintptr_t)memory; }

static int copy_bytes(struct gap__carrier *c, const struct gap__piece *p, unsigned char *memory, bool out,
                      gap_stream stream) {
  uint64_t bytes = gap__piece_bytes(p);
  gap_addr host = host_addr(memory);
  if (c->spans.count) return gap__spans_copy(c->dev, c->spans, p->addr, bytes, memory, out, stream);
  return gap__dev_copy(c->dev, out ? host : p->addr, out ? p->addr : host, bytes, stream);
}

/* The copy of piece `i`, out to `memory` or from there, and an event behind it. */
static int copy(struct gap__carrier *c, uint32_t i, const struct gap__piece *p, unsigned char *memory, bool out) {
  gap_stream stream = c->streams[i % 2];
  int rc = copy_bytes(c, p, memory, out, stream);
  return rc ? rc : gap__dev_event_record(c->dev, c->events[i % GAP__CARRY_WINDOW], stream);
}

static int await(struct gap__carrier *c, uint32_t i) {
  return gap__dev_event_wait(c->dev, c->events[i % GAP__CARRY_WINDOW]);
}

/* All that was queued on our streams has ended. */
static int settle(struct gap__carrier *c) {
  int rc = 0;
  for (uint32_t i = 0; i < 2; i++) {
    int here = gap__dev_event_record(c->dev, c->events[i], c->streams[i]);
    if (!here) here = gap__dev_event_wait(c->dev, c->events[i]);
    if (here) rc = here;
  }
  return rc;
}

/* Freeing a segment waits for all work on the device. */
static int drain(struct gap__carrier *c) {
  gap_addr segment;
  int rc = gap__dev_segment_alloc(c->dev, GAP__IO_BLOCK, &segment);
  return rc ? rc : gap__dev_segment_free(c->dev, segment);
}

/* After an error a copy that is under way may write to memory that will serve others: by one way or the other it is waited for. */
static int abandon(struct gap__carrier *c, int rc) {
  if (settle(c) && drain(c)) c->lost = true;
  return rc;
}

/* ---- checksums ---- */

static uint64_t sum_of(const struct gap__piece *p, const unsigned char *at) {
  return p->by_card ? gap__card_sum_here(at, gap__piece_bytes(p)) : gap__sum(at, gap__piece_bytes(p));
}

static int add_up(void *arg, uint32_t i) {
  struct gap__piece *piece = (struct gap__piece *)arg + i;
  piece->sum = sum_of(piece, piece->host);
  return 0;
}

static int differs(struct gap__carrier *c, const struct gap__piece *p, const char *where) {
  snprintf(c->words, sizeof c->words,
           "what was saved of %llu bytes at %#llx has changed in %s: its checksum is not what it was. Nothing was %s",
           (unsigned long long)gap__piece_bytes(p), (unsigned long long)p->addr, where,
           c->spans.count ? "brought back" : "woken");
  return GAP_EIO;
}

struct checking {
  struct gap__carrier *carrier;
  const struct gap__piece *pieces;
  _Atomic uint32_t wrong; /* 1 + a piece */
};

/* The card adds this one up where it will lie. */
static bool is_for_card(const struct gap__carrier *c, const struct gap__piece *p) {
  return p->by_card && c->sums.function;
}

static int check(void *arg, uint32_t i) {
  struct checking *checking = arg;
  const struct gap__piece *piece = &checking->pieces[i];
  if (is_for_card(checking->carrier, piece) || sum_of(piece, piece->host) == piece->sum) return 0;
  atomic_store(&checking->wrong, i + 1);
  return GAP_EIO;
}

/* ---- host memory ---- */

static uint32_t slot_of(uint32_t i) { return i % GAP__CARRY_WINDOW; }

/* Piece `i` with its sum by the card: of what goes before its copy, of what comes behind it. */
static int copy_and_sum(struct gap__carrier *c, uint32_t i, const struct gap__piece *p, bool out) {
  gap_stream stream = c->streams[i % 2];
  uint64_t bytes = gap__piece_bytes(p);
  int rc = out ? gap__card_sums_queue(&c->sums, c->dev, slot_of(i), p->addr, bytes, stream) : 0;
  if (!rc) rc = copy_bytes(c, p, p->host, out, stream);
  if (!rc && !out) rc = gap__card_sums_queue(&c->sums, c->dev, slot_of(i), p->addr, bytes, stream);
  return rc ? rc : gap__dev_event_record(c->dev, c->events[slot_of(i)], stream);
}

/* A copy that has ended: its sum is there, or a crew adds it up; the caller may take the memory away. */
static int leave(struct gap__carrier *c, struct gap__crew *crew, struct gap__piece *p, uint32_t i, gap__carry_fn *done,
                 void *arg) {
  int rc = await(c, i);
  if (rc) return rc;
  if (p[i].by_card) p[i].sum = gap__card_sums_take(&c->sums, slot_of(i));
  else gap__crew_let(crew, i + 1);
  return done(arg, &p[i]);
}

int gap__carry_out_host(struct gap__carrier *c, struct gap__piece *p, uint32_t count, gap__carry_fn *done, void *arg) {
  bool card = count && gap__card_sums_ready(&c->sums, c->dev, GAP__CARRY_WINDOW);
  struct gap__crew crew;
  int rc = 0;
  gap__crew_start(&crew, card ? 0 : gap__crew_size(count), add_up, p);
  for (uint32_t i = 0, end = count + GAP__CARRY_WINDOW - 1; i < end && !rc; i++) {
    if (i < count) p[i].by_card = card;
    if (i < count) rc = card ? copy_and_sum(c, i, &p[i], true) : copy(c, i, &p[i], p[i].host, true);
    if (!rc && i + 1 >= GAP__CARRY_WINDOW && i + 1 - GAP__CARRY_WINDOW < count)
      rc = leave(c, &crew, p, i + 1 - GAP__CARRY_WINDOW, done, arg);
  }
  if (rc) rc = abandon(c, rc);
  int summed = gap__crew_end(&crew);
  return rc ? rc : summed;
}

/* Piece `i` has come, and is what it was. */
static int arrive(struct gap__carrier *c, const struct gap__piece *p, uint32_t i) {
  int rc = await(c, i);
  if (rc || !is_for_card(c, &p[i]) || gap__card_sums_take(&c->sums, slot_of(i)) == p[i].sum) return rc;
  return differs(c, &p[i], "host memory");
}

static uint32_t processors_sum(const struct gap__carrier *c, const struct gap__piece *p, uint32_t count) {
  uint32_t theirs = 0;
  for (uint32_t i = 0; i < count; i++) theirs += !is_for_card(c, &p[i]);
  return theirs;
}

int gap__carry_in_host(struct gap__carrier *c, const struct gap__piece *p, uint32_t count, gap__carry_fn *before,
                       void *arg) {
  struct checking checking = {.carrier = c, .pieces = p};
  struct gap__crew crew;
  int rc = 0;
  if (count) (void)gap__card_sums_ready(&c->sums, c->dev, GAP__CARRY_WINDOW);
  gap__crew_start(&crew, gap__crew_size(processors_sum(c, p, count)), check, &checking);
  if (crew.thread_count) gap__crew_let(&crew, count);
  for (uint32_t i = 0; i < count + GAP__CARRY_WINDOW && !rc; i++) {
    if (i >= GAP__CARRY_WINDOW)
      rc = arrive(c, p, i - GAP__CARRY_WINDOW); /* who drains the device waits for a few only */
    if (rc || i >= count) continue;
    rc = before(arg, &p[i]);
    if (!rc) rc = is_for_card(c, &p[i]) ? copy_and_sum(c, i, &p[i], false) : copy(c, i, &p[i], p[i].host, false);
  }
  gap__crew_let(&crew, count); /* where there are no threads, behind the copies */
  if (rc) rc = abandon(c, rc);
  int checked = gap__crew_end(&crew);
  uint32_t wrong = atomic_load(&checking.wrong);
  return rc ? rc : wrong ? differs(c, &p[wrong - 1], "host memory") : checked;
}

/* ---- disk ---- */

struct route {
  struct gap__carrier *carrier;
  struct gap__disk *disk;
  uint32_t count;
  gap__carry_fn *call;
  void *arg;
  bool far[GAP__CARRY_STAGES]; /* what is under way there is with servers */
};
_Static_assert((int)GAP__CARRY_STAGES <= (int)GAP__FAR_TRANSFERS && (int)GAP__CARRY_STAGES <= (int)GAP__DISK_HOLES,
               "a transfer for each buffer");

static int stage_of(uint32_t i) { return (int)(i % GAP__CARRY_STAGES); }

static void begin_stage(struct route *r, const struct gap__piece *p, uint32_t i, bool write) {
  unsigned s = (unsigned)stage_of(i);
  unsigned char *stage = r->carrier->stages[s];
  r->far[s] = p[i].far != 0;
  if (r->far[s]) gap__far_begin(r->carrier->far, s, write, stage, gap__piece_bytes(&p[i]), p[i].far);
  else gap__disk_begin(r->disk, s, write, stage, p[i].disk, p[i].units);
}

static int end_stage(struct route *r, unsigned s) {
  bool far = r->far[s];
  int rc = far ? gap__far_wait(r->carrier->far, s) : gap__disk_wait(r->disk, s);
  if (rc)
    snprintf(r->carrier->words, sizeof r->carrier->words, "%s", far ? r->carrier->far->refusal : r->disk->refusal);
  return rc;
}

/* What the disk and the servers do with our buffers ends, too. */
static int abandon_route(struct route *r, int rc) {
  char words[sizeof r->carrier->words];
  memcpy(words, r->carrier->words, sizeof words);
  for (unsigned s = 0; s < GAP__CARRY_STAGES; s++) (void)end_stage(r, s);
  memcpy(r->carrier->words, words, sizeof words);
  return abandon(r->carrier, rc);
}

/* The write of a piece has ended, and its buffer is free. */
static int written(struct route *r, const struct gap__piece *p, uint32_t i) {
  int rc = end_stage(r, (unsigned)stage_of(i));
  return rc ? rc : r->call(r->arg, &p[i]);
}

static int copy_to_stage(struct route *r, const struct gap__piece *p, uint32_t i) {
  int rc = i < GAP__CARRY_STAGES ? 0 : written(r, p, i - GAP__CARRY_STAGES);
  return rc ? rc : copy(r->carrier, i, &p[i], r->carrier->stages[stage_of(i)], true);
}

static int write_stage(struct route *r, struct gap__piece *p, uint32_t i) {
  unsigned char *stage = r->carrier->stages[stage_of(i)];
  int rc = await(r->carrier, i);
  if (rc) return rc;
  p[i].sum = sum_of(&p[i], stage);
  begin_stage(r, p, i, true);
  return 0;
}

int gap__carry_out_disk(struct gap__carrier *c, struct gap__disk *disk, struct gap__piece *p, uint32_t count,
                        gap__carry_fn *done, void *arg) {
  struct route route = {.carrier = c, .disk = disk, .count = count, .call = done, .arg = arg};
  int rc = 0;
  for (uint32_t i = 0; i <= count && count && !rc; i++) {
    if (i < count) rc = copy_to_stage(&route, p, i);
    if (!rc && i) rc = write_stage(&route, p, i - 1);
  }
  for (uint32_t i = count < GAP__CARRY_STAGES ? 0 : count - GAP__CARRY_STAGES; i < count && !rc; i++)
    rc = written(&route, p, i);
  return rc ? abandon_route(&route, rc) : 0;
}

static int read_stage(struct route *r, const struct gap__piece *p, uint32_t i) {
  int rc = i < GAP__CARRY_STAGES ? 0 : await(r->carrier, i - GAP__CARRY_STAGES); /* it has been copied on */
  if (rc) return rc;
  begin_stage(r, p, i, false);
  return 0;
}

static int copy_from_stage(struct route *r, const struct gap__piece *p, uint32_t i) {
  unsigned char *stage = r->carrier->stages[stage_of(i)];
  int rc = end_stage(r, (unsigned)stage_of(i));
  if (!rc && sum_of(&p[i], stage) != p[i].sum) rc = differs(r->carrier, &p[i], p[i].far ? "a server" : "the file");
  if (!rc) rc = r->call(r->arg, &p[i]);
  return rc ? rc : copy(r->carrier, i, &p[i], stage, false);
}

int gap__carry_in_disk(struct gap__carrier *c, struct gap__disk *disk, const struct gap__piece *p, uint32_t count,
                       gap__carry_fn *before, void *arg) {
  enum { AHEAD = GAP__CARRY_STAGES - 1 };
  struct route route = {.carrier = c, .disk = disk, .count = count, .call = before, .arg = arg};
  int rc = 0;
  for (uint32_t i = 0; i < count + AHEAD && count && !rc; i++) {
    if (i < count) rc = read_stage(&route, p, i);
    if (!rc && i >= AHEAD) rc = copy_from_stage(&route, p, i - AHEAD);
  }
  if (!rc) rc = settle(c);
  return rc ? abandon_route(&route, rc) : 0;
}
