/* Falling asleep:   mark the pools, drain the device - find room for every piece - copy and, behind the copies, let go chunk by chunk.
 * Waking:           make all chunks - map and, behind that, copy chunk by chunk - check the sums - awake.
 *
 * Nothing is let go before there is room for all of it, and a waking that fails gives its chunks back: what was saved is still
 * there.  A falling that fails half-way wakes what fell; should that fail too, it stays asleep, and whole. */
#include "tier/sleep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/beds.h"

enum { JOINED_PAGES = 128 }; /* neighbours that sleep wake as chunks of up to 256 MiB: the driver's price is by chunk */

struct job {
  struct gap__tier *tier;
  struct tier_device *d;
  struct tier_lane *way; /* NULL: not taken yet */
  char *words;           /* TIER_WORDS */
  struct gap__sleepers who;
  struct tier_beds beds;
  struct tier_pieces host, disk; /* disk: servers, too */
  bool far;                      /* to servers, by flag */
  bool drop;                     /* waking: what was saved is of no use */
  uint32_t promised;             /* room in the image that is ours */
};

static int say(struct job *job, int rc, const char *words) {
  snprintf(job->words, TIER_WORDS, "%s", words);
  return rc;
}

static void finish(struct job *job) {
  if (job->way) {
    *job->way = (struct tier_lane){.carrier = job->way->carrier};
    pthread_cond_broadcast(&job->d->freed);
  }
  free(job->who.pools);
  free(job->host.pieces);
  free(job->disk.pieces);
  gap__beds_free(&job->beds);
}

/* ---- who ---- */

static int find_pools(struct job *job, const char *tag) {
  int rc = gap__heap_sleepers(job->tier->heap, job->d->ordinal, tag, &job->who);
  if (rc) return rc;
  job->beds.state = job->who.state;
  if (job->who.contiguous)
    return say(job, GAP_ENOTSUP, "a pool with that tag is contiguous: its memory is the driver's, and cannot sleep");
  if (!job->who.count) return say(job, GAP_ESTATE, "no pool of the device has that tag");
  return 0;
}

static bool has_pool(const struct tier_lane *way, gap_pool_id pool) {
  for (uint32_t i = 0; i < way->pool_count; i++)
    if (way->pools[i].first == pool.first && way->pools[i].second == pool.second) return true;
  return false;
}

static bool is_busy(const struct tier_device *d, gap_pool_id pool) {
  return has_pool(&d->ways[TIER_OUT], pool) || has_pool(&d->ways[TIER_IN], pool);
}

static bool any_busy(const struct job *job) {
  for (uint32_t i = 0; i < job->who.count; i++)
    if (is_busy(job->d, job->who.pools[i])) return true;
  return false;
}

/* Waits until nobody else goes that way, or has one of our pools. */
static void take_way(struct job *job, enum tier_way way) {
  struct tier_lane *lane = &job->d->ways[way];
  while (lane->busy || any_busy(job)) pthread_cond_wait(&job->d->freed, &job->d->mutex);
  *lane =
      (struct tier_lane){.busy = true, .pools = job->who.pools, .pool_count = job->who.count, .carrier = lane->carrier};
  job->way = lane;
}

static void end_pools(struct job *job) {
  for (uint32_t i = 0; i < job->who.count && job->who.state; i++) gap__sleep_end(job->who.state, job->who.pools[i]);
}

/* ---- waking ---- */

/* The addresses that a piece is copied to come back first. */
static int before(void *arg, const struct gap__piece *piece) {
  struct job *job = arg;
  struct tier_bed *bed = gap__beds_at(&job->beds, piece->addr);
  if (bed->rose) return 0;
  int rc = gap__sleep_rise(job->beds.state, bed->is.addr);
  bed->rose = !rc;
  return rc;
}

static int rise_rest(struct job *job) {
  int rc = 0;
  for (uint32_t i = 0; i < job->beds.count && !rc; i++) {
    struct tier_bed *bed = &job->beds.beds[i];
    if (!bed->rose) rc = gap__sleep_rise(job->beds.state, bed->is.addr);
    bed->rose |= !rc;
  }
  return rc;
}

/* The pieces of a chunk that something lives on; those of one that has its bytes still are not needed. */
static int list_pieces(struct job *job, const struct tier_bed *bed) {
  const struct gap__image *image = &job->d->image;
  uint32_t count, first = gap__image_find(image, bed->is.addr, bed->is.pages * GAP__PAGE, &count);
  int rc = 0;
  for (uint32_t i = first; bed->is.empty && i < first + count && !rc && !job->drop; i++) {
    const struct gap__piece *piece = &image->pieces[i];
    if (gap__bed_lives(&bed->is, piece->addr, gap__piece_bytes(piece)))
      rc = gap__pieces_add(piece->host ? &job->host : &job->disk, piece);
  }
  return rc;
}

static int make_all(struct job *job) {
  int rc = gap__sleep_room(job->beds.state, gap__beds_pages(&job->beds, true));
  for (uint32_t i = 0; i < job->beds.count && !rc; i++)
    rc = gap__sleep_make(job->beds.state, job->beds.beds[i].is.addr);
  return rc == GAP_ENOMEM ? say(job, rc, "the device has no room for what sleeps: it goes on sleeping") : rc;
}

/* Others go on while host memory and the device are at it. */
static int carry_in_host(struct job *job) {
  pthread_mutex_unlock(&job->d->mutex);
  int rc = gap__carry_in_host(&job->way->carrier, job->host.pieces, job->host.count, before, job);
  pthread_mutex_lock(&job->d->mutex);
  return rc;
}

static int carry_in(struct job *job) {
  struct tier_device *d = job->d;
  struct gap__carrier *carrier = &job->way->carrier;
  int rc = gap__carrier_ready(carrier);
  if (!rc && job->disk.count) rc = gap__carrier_stage(carrier, &d->pinned);
  if (!rc) rc = carry_in_host(job);
  if (!rc) rc = gap__carry_in_disk(carrier, &d->disk, job->disk.pieces, job->disk.count, before, job);
  if (job->disk.count) gap__carrier_unstage(carrier, &d->pinned);
  return rc ? say(job, rc, carrier->words) : 0;
}

static void count_in(struct job *job) {
  for (uint32_t i = 0; i < job->host.count; i++) job->d->figures.bytes_in += gap__piece_bytes(&job->host.pieces[i]);
  for (uint32_t i = 0; i < job->disk.count; i++) job->d->figures.bytes_in += gap__piece_bytes(&job->disk.pieces[i]);
}

/* The chunks of job->beds, all of them or none. */
static int wake_beds(struct job *job) {
  int rc = 0;
  if (!job->beds.count) return 0;
  job->way->carrier.words[0] = '\0';
  job->host.count = job->disk.count = 0;
  for (uint32_t i = 0; i < job->beds.count && !rc; i++) rc = list_pieces(job, &job->beds.beds[i]);
  if (!rc) rc = make_all(job);
  if (!rc) rc = carry_in(job);
  if (!rc) rc = rise_rest(job);
  for (uint32_t i = 0; i < job->beds.count; i++) {
    if (rc) gap__sleep_undo(job->beds.state, job->beds.beds[i].is.addr);
    else gap__sleep_wake(job->beds.state, job->beds.beds[i].is.addr);
  }
  if (!rc) count_in(job);
  return rc;
}

static void drop_copies(struct job *job) {
  for (uint32_t i = 0; i < job->beds.count; i++)
    gap__image_drop(&job->d->image, job->beds.beds[i].is.addr, job->beds.beds[i].is.pages * GAP__PAGE);
}

static int collect(struct job *job, bool asleep) {
  int rc = 0;
  for (uint32_t i = 0; i < job->who.count && !rc; i++)
    rc = gap__beds_collect(&job->beds, job->who.pools[i], asleep, 0, UINT64_MAX);
  gap__beds_sort(&job->beds);
  return rc;
}

/* What was saved of chunks that are holes by now is of no use. */
static void drop_unneeded(struct job *job) {
  struct gap__image *image = &job->d->image;
  for (uint32_t i = image->count; i-- > 0;) {
    const struct gap__piece piece = image->pieces[i];
    const struct tier_bed *bed = job->beds.count ? gap__beds_at(&job->beds, piece.addr) : NULL;
    bool ours = false;
    for (uint32_t k = 0; k < job->who.count; k++)
      ours |= job->who.pools[k].first == piece.pool.first && job->who.pools[k].second == piece.pool.second;
    bool needed = bed && piece.addr >= bed->is.addr && piece.addr < bed->is.addr + bed->is.pages * GAP__PAGE;
    if (ours && !needed) gap__image_drop(image, piece.addr, 1);
  }
}

int gap__tier_rise(struct gap__tier *tier, struct tier_device *d, const char *tag, unsigned flags, char *words) {
  struct job job = {.tier = tier, .d = d, .words = words, .drop = flags & GAP_WAKE_DROP};
  int rc = find_pools(&job, tag);
  if (!rc) take_way(&job, TIER_IN);
  for (uint32_t i = 0; i < job.who.count && job.who.state && !rc; i++)
    gap__sleep_tidy(job.who.state, job.who.pools[i], JOINED_PAGES);
  if (!rc && job.who.state) {
    rc = collect(&job, true);
    if (!rc) rc = wake_beds(&job);
    if (!rc && !(flags & GAP_WAKE_KEEP)) drop_copies(&job);
    if (!rc && !(flags & GAP_WAKE_KEEP)) drop_unneeded(&job);
    end_pools(&job);
  }
  d->figures.wakes += !rc;
  finish(&job);
  return rc;
}

int gap__tier_rise_block(struct gap__tier *tier, struct tier_device *d, const struct gap__block_info *block,
                         char *words) {
  struct job job = {.tier = tier, .d = d, .words = words};
  int rc = gap__heap_sleepers(tier->heap, d->ordinal, NULL, &job.who);
  job.beds.state = job.who.state;
  if (!rc && job.who.state && job.who.count) {
    job.who.pools[0] = block->pool;
    job.who.count = 1;
    take_way(&job, TIER_IN);
    rc = gap__beds_collect(&job.beds, block->pool, true, block->addr, block->addr + block->bytes);
    gap__beds_sort(&job.beds);
    if (!rc) rc = wake_beds(&job);
    if (!rc) drop_copies(&job);
    end_pools(&job);
  }
  finish(&job);
  return rc;
}

/* ---- falling asleep: where pieces go ---- */

static bool uses_disk(const struct gap__tier *tier, unsigned flags) {
  return *tier->conf.disk && (flags & GAP_SLEEP_DISK || !tier->conf.host);
}

static bool stays(const struct job *job, unsigned flags) { return !job->far && !uses_disk(job->tier, flags); }

/* The disk, where it is to have a part; servers are opened when something goes there. */
static int ready_away(struct job *job) {
  struct gap__carrier *carrier = &job->way->carrier;
  int rc = job->far || !*job->tier->conf.disk ? 0 : gap__tier_open_disk(job->tier, job->d, job->words);
  if (rc && !*job->tier->conf.remote) return rc;
  rc = carrier->stages[0] ? 0 : gap__carrier_stage(carrier, &job->d->pinned);
  return rc ? say(job, rc, carrier->words) : 0;
}

static uint64_t host_units(const struct job *job, unsigned flags) {
  return stays(job, flags) ? gap__pinned_reach(&job->d->pinned) / GAP__UNIT_PAGE : 0;
}

/* What host memory is to have, at most `most` units, where others have the rest. */
static int share(struct job *job, unsigned flags, uint64_t most, uint64_t *host) {
  int rc = ready_away(job);
  uint64_t reach = rc ? 0 : host_units(job, flags);
  *host = reach < most ? reach : most;
  return rc;
}

/* Room in host memory for as much as the budget allows; the disk has the rest, and servers what it has no room for.  *host: units.  A machine
 * may have less by the time it is taken: then others have more. */
static int find_room(struct job *job, uint64_t units, unsigned flags, uint64_t *host) {
  struct gap__pinned *pinned = &job->d->pinned;
  bool others = *job->tier->conf.disk || *job->tier->conf.remote;
  uint64_t reach = host_units(job, flags);
  if (reach < units && stays(job, flags)) {
    gap__pinned_ease(pinned, (units - reach) * GAP__UNIT_PAGE);
    reach = host_units(job, flags);
  }
  int rc = others && reach < units ? share(job, flags, units, host) : 0;
  if (!others || reach >= units) *host = units;
  while (!rc) {
    rc = gap__pinned_ensure(pinned, *host * GAP__UNIT_PAGE);
    if (!rc) return 0;
    if (rc != GAP_ELIMIT || !others) return say(job, rc, pinned->refusal);
    rc = share(job, flags, *host - 1, host);
  }
  return rc;
}

static int take_host(struct job *job, struct gap__piece *piece, uint32_t units) {
  piece->units =
      gap__pinned_take(&job->d->pinned, units < GAP__CARRY_HOST_UNITS ? units : GAP__CARRY_HOST_UNITS, &piece->host);
  return piece->units ? 0 : GAP_ENOMETA;
}

static int take_disk(struct job *job, struct gap__piece *piece, uint32_t units) {
  struct tier_device *d = job->d;
  if (!d->image.disk) return GAP_ENOMETA; /* host memory was to have it all */
  int rc = gap__disk_take(&d->disk, units < GAP__CARRY_DISK_UNITS ? units : GAP__CARRY_DISK_UNITS, &piece->disk,
                          &piece->units);
  return rc ? say(job, rc, d->disk.refusal) : 0;
}

static int take_far(struct job *job, struct gap__piece *piece, uint32_t units) {
  int rc = gap__tier_open_far(job->tier, job->d, job->words);
  if (!rc) rc = gap__far_take(&job->d->far, &piece->far);
  piece->units = units < GAP__FAR_UNITS ? units : GAP__FAR_UNITS;
  return rc;
}

static int take_away(struct job *job, struct gap__piece *piece, uint32_t units) {
  bool servers = *job->tier->conf.remote;
  int rc = job->far ? GAP_ELIMIT : take_disk(job, piece, units);
  return rc && servers ? take_far(job, piece, units) : rc;
}

/* Room for one piece at the beginning of `units` pages. */
static int take_piece(struct job *job, struct tier_bed *bed, gap_addr addr, uint32_t units, uint64_t *host,
                      uint32_t *got) {
  struct gap__piece piece = {.addr = addr, .pool = bed->pool};
  int rc = *host ? take_host(job, &piece, units < *host ? units : (uint32_t)*host) : take_away(job, &piece, units);
  if (rc) return rc;
  rc = gap__pieces_add(piece.host ? &job->host : &job->disk, &piece);
  if (rc) gap__piece_give(&job->d->image, &piece);
  if (piece.host) *host -= piece.units;
  bed->left += !rc;
  *got = piece.units;
  return rc;
}

static uint32_t run_from(const struct gap__bed *bed, uint32_t page, bool live) {
  uint32_t to = page;
  while (to < bed->pages && (bed->live[to / 64] >> to % 64 & 1) == live) to++;
  return to - page;
}

static int cut(struct job *job, struct tier_bed *bed, uint64_t *host) {
  int rc = 0;
  for (uint32_t page = run_from(&bed->is, 0, false), got; page < bed->is.pages && !rc;
       page += run_from(&bed->is, page, false)) {
    for (uint32_t left = run_from(&bed->is, page, true); left && !rc; left -= got, page += got) {
      got = 0;
      rc = take_piece(job, bed, bed->is.addr + page * GAP__PAGE, left, host, &got);
      if (rc) break;
    }
  }
  return rc;
}

static uint64_t live_pages(const struct gap__bed *bed) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < GAP__CONVERT_WORDS; i++) pages += (uint64_t)__builtin_popcountll(bed->live[i]);
  return pages;
}

/* Is the copy of the last sleep as good as a new one?  By the program's word, and where nothing was allocated since. */
static bool is_saved(const struct job *job, const struct tier_bed *bed, unsigned flags) {
  return flags & GAP_SLEEP_UNCHANGED && bed->is.untouched &&
         gap__image_covers(&job->d->image, bed->is.addr, bed->is.live, bed->is.pages);
}

/* Which chunks are to be copied; what was saved of those earlier is of no use. */
static uint64_t choose(struct job *job, unsigned flags) {
  uint64_t units = 0;
  for (uint32_t i = 0; i < job->beds.count; i++) {
    struct tier_bed *bed = &job->beds.beds[i];
    bed->saved = is_saved(job, bed, flags);
    uint64_t pages = live_pages(&bed->is);
    if (bed->saved) job->d->figures.bytes_spared += pages * GAP__PAGE;
    else gap__image_drop(&job->d->image, bed->is.addr, bed->is.pages * GAP__PAGE);
    if (!bed->saved && !(flags & GAP_SLEEP_DROP)) units += pages;
  }
  return units;
}

static int cut_all(struct job *job, unsigned flags) {
  uint64_t units = choose(job, flags), host = 0;
  int rc = units ? find_room(job, units, flags, &host) : 0;
  for (uint32_t i = 0; i < job->beds.count && !rc; i++) {
    struct tier_bed *bed = &job->beds.beds[i];
    if (!bed->saved && !(flags & GAP_SLEEP_DROP)) rc = cut(job, bed, &host);
  }
  uint32_t count = job->host.count + job->disk.count;
  if (!rc) rc = gap__image_reserve(&job->d->image, count);
  if (!rc) job->promised = count;
  return rc;
}

/* ---- falling asleep: carrying ---- */

static int let_go(struct job *job, struct tier_bed *bed) {
  int rc =
      gap__sleep_fall(job->beds.state, bed->is.addr, bed->saved ? NULL : bed->is.live); /* a part has whole pieces */
  bed->fell = !rc;
  return rc;
}

/* A piece is where it is kept; with the last one of a chunk the chunk may go. */
static int done(void *arg, const struct gap__piece *piece) {
  struct job *job = arg;
  struct tier_bed *bed = gap__beds_at(&job->beds, piece->addr);
  return --bed->left ? 0 : let_go(job, bed);
}

static int carry_out_host(struct job *job) {
  pthread_mutex_unlock(&job->d->mutex);
  int rc = gap__carry_out_host(&job->way->carrier, job->host.pieces, job->host.count, done, job);
  pthread_mutex_lock(&job->d->mutex);
  return rc;
}

static int carry_out(struct job *job) {
  struct gap__carrier *carrier = &job->way->carrier;
  carrier->words[0] = '\0';
  int rc = gap__carrier_ready(carrier);
  if (!rc) rc = carry_out_host(job);
  if (!rc) rc = gap__carry_out_disk(carrier, &job->d->disk, job->disk.pieces, job->disk.count, done, job);
  for (uint32_t i = 0; i < job->beds.count && !rc; i++)
    if (!job->beds.beds[i].fell) rc = let_go(job, &job->beds.beds[i]);
  return rc ? say(job, rc, carrier->words) : 0;
}

/* Of pieces of chunks that fell the image is the owner from here on; the others go, unless a copy may still write to them. */
static void keep_fallen(struct job *job, const struct tier_pieces *pieces) {
  for (uint32_t i = 0; i < pieces->count; i++) {
    const struct gap__piece *piece = &pieces->pieces[i];
    bool fell = gap__beds_at(&job->beds, piece->addr)->fell;
    if (fell) gap__image_add(&job->d->image, piece, 1);
    job->promised -= fell;
    if (!fell && !job->way->carrier.lost) gap__piece_give(&job->d->image, piece);
  }
}

static void keep_all(struct job *job) {
  struct gap__image *image = &job->d->image;
  gap__image_add(image, job->host.pieces, job->host.count);
  gap__image_add(image, job->disk.pieces, job->disk.count);
  job->promised = 0;
  for (uint32_t i = 0; i < job->host.count; i++) job->d->figures.bytes_out += gap__piece_bytes(&job->host.pieces[i]);
  for (uint32_t i = 0; i < job->disk.count; i++) job->d->figures.bytes_out += gap__piece_bytes(&job->disk.pieces[i]);
}

/* A falling that failed: what fell wakes again, the chunks that the driver took half included. */
static void wake_fallen(struct job *job) {
  char words[TIER_WORDS];
  memcpy(words, job->words, sizeof words);
  job->beds.count = 0;
  if (collect(job, true) == 0 && wake_beds(job) == 0) {
    drop_copies(job);
    say(job, 0, words);
  } else {
    snprintf(job->words, TIER_WORDS, "%.300s%sA part of it sleeps, and is whole: gap_wake brings it back", words,
             *words ? ". " : "");
  }
}

static int fall(struct job *job, unsigned flags) {
  int rc = collect(job, false);
  if (!rc) rc = cut_all(job, flags);
  if (!rc) rc = carry_out(job);
  if (!rc) keep_all(job);
  gap__carrier_unstage(&job->way->carrier, &job->d->pinned);
  if (!rc) return 0;
  keep_fallen(job, &job->host);
  keep_fallen(job, &job->disk);
  gap__image_unreserve(&job->d->image, job->promised);
  wake_fallen(job);
  return rc;
}

/* Copies that were kept of what is no more. */
static void drop_stale(struct job *job) {
  job->beds.count = 0;
  if (collect(job, true) == 0) drop_unneeded(job);
}

static int begin_pools(struct job *job) {
  int rc = 0;
  for (uint32_t i = 0; i < job->who.count && !rc; i++) rc = gap__sleep_begin(job->who.state, job->who.pools[i]);
  return rc;
}

int gap__tier_fall(struct gap__tier *tier, struct tier_device *d, const char *tag, unsigned flags, uint64_t *freed,
                   char *words) {
  struct job job = {.tier = tier, .d = d, .words = words, .far = flags & GAP_SLEEP_REMOTE};
  uint64_t pages = 0;
  if (job.far && !*tier->conf.remote) return say(&job, GAP_ELIMIT, "there are no servers in tiers");
  int rc = find_pools(&job, tag);
  if (!rc) take_way(&job, TIER_OUT);
  if (!rc && job.who.state) {
    rc = begin_pools(&job);
    if (!rc) rc = fall(&job, flags);
    if (!rc) pages = gap__beds_pages(&job.beds, false);
    if (!rc) drop_stale(&job);
    end_pools(&job);
  }
  d->figures.sleeps += !rc;
  if (!rc) *freed = pages * GAP__PAGE;
  finish(&job);
  return rc;
}

/* ---- what is left of pools that are gone ---- */

static void sweep_pool(struct gap__policy_state *s, struct tier_device *d, gap_pool_id pool) {
  if (gap__sleep_any(s, pool)) {
    gap__sleep_tidy(s, pool, 1);
    gap__sleep_end(s, pool);
  }
  if (gap__sleep_any(s, pool)) return;
  for (uint32_t i = d->image.count; i-- > 0;) {
    const struct gap__piece piece = d->image.pieces[i];
    if (piece.pool.first == pool.first && piece.pool.second == pool.second) gap__image_drop(&d->image, piece.addr, 1);
  }
}

void gap__tier_sweep(struct gap__tier *tier, struct tier_device *d) {
  struct gap__sleepers who;
  if (gap__heap_sleepers(tier->heap, d->ordinal, NULL, &who) == 0 && who.state)
    for (uint32_t i = 0; i < who.count; i++)
      if (!is_busy(d, who.pools[i]) && !gap__heap_pool_used(tier->heap, d->ordinal, who.pools[i]) &&
          !gap__sleep_lives(who.state, who.pools[i]))
        sweep_pool(who.state, d, who.pools[i]);
  free(who.pools);
}
