/* Neighbours of a heap: other gapless processes on its cards.  See neighbour.h. */
#include <stdio.h>

#include "base/text.h"
#include "core/heap_state.h"
#include "core/neighbour.h"

/* ---- asked ---- */

void gap__heap_lend(gap_heap *heap, int device, bool on) {
  struct heap_device *at = heap_device_at(heap, device);
  if (at) atomic_store(&at->base.hood.lends, on);
}

static int give_one(const struct gap__policy *policy, struct gap__policy_state *state, void *arg) {
  struct gap__given *out = arg;
  if (policy->give) policy->give(state, out->wanted > out->given ? out->wanted - out->given : 0, out);
  return 0;
}

int gap__heap_give(gap_heap *heap, int device, uint64_t bytes, struct gap__given *out) {
  *out = (struct gap__given){.wanted = bytes};
  int rc = gap__heap_each(heap, device, give_one, out);
  if (rc) return rc;
  struct gap__hood *hood = &heap->devices[device].base.hood;
  atomic_fetch_add(&hood->requests, 1);
  atomic_fetch_add(&hood->given_bytes, (int64_t)out->given);
  return 0;
}

/* ---- asking ---- */

static void note(struct gap__hood *hood, const struct gap__asked *said) {
  atomic_store(&hood->known, said->neighbours);
  atomic_store(&hood->unheard, said->silent);
  atomic_store(&hood->held_bytes, (int64_t)said->held);
  atomic_store(&hood->kept_bytes, (int64_t)said->kept);
  atomic_fetch_add(&hood->asks, said->neighbours && !said->rounds);
  atomic_fetch_add(&hood->got_bytes, (int64_t)said->got);
  atomic_fetch_add(&hood->silent, said->missed);
}

bool gap__neighbour_ask(struct gap__device *dev, uint64_t bytes, struct gap__asked *said) {
  if (!dev->heap->ask || !atomic_load(&dev->hood.lends)) return false;
  dev->heap->ask(dev->heap->client, dev->ordinal, bytes, said);
  note(&dev->hood, said);
  said->rounds++;
  return said->got || said->hope;
}

void gap__neighbour_forget(struct gap__device *dev) { atomic_store(&dev->hood.known, 0); }

void gap__neighbour_words(struct gap__device *dev, char *text, size_t bytes) {
  char held[GAP__TEXT_BYTES], kept[GAP__TEXT_BYTES];
  struct gap__hood *hood = &dev->hood;
  long long known = atomic_load(&hood->known), unheard = atomic_load(&hood->unheard);
  *text = '\0';
  if (!known) return;
  int length = snprintf(
      text, bytes, " %lld other gapless process%s on the card: %s held by neighbours, %s of it idle but used of late",
      known, known == 1 ? "" : "es", gap__text_size((uint64_t)atomic_load(&hood->held_bytes), held),
      gap__text_size((uint64_t)atomic_load(&hood->kept_bytes), kept));
  if (length < 0 || (size_t)length >= bytes) return;
  if (unheard) snprintf(text + length, bytes - (size_t)length, "; %lld did not answer.", unheard);
  else snprintf(text + length, bytes - (size_t)length, ".");
}

/* ---- figures ---- */

void gap__hood_stats(struct gap__hood *hood, struct gap__stats *out) {
  out->neighbours = atomic_load(&hood->known);
  out->neighbour_asks = atomic_load(&hood->asks);
  out->neighbour_got_bytes = atomic_load(&hood->got_bytes);
  out->neighbour_silent = atomic_load(&hood->silent);
  out->neighbour_requests = atomic_load(&hood->requests);
  out->neighbour_given_bytes = atomic_load(&hood->given_bytes);
}

void gap__hood_reset(struct gap__hood *hood) {
  atomic_store(&hood->asks, 0);
  atomic_store(&hood->got_bytes, 0);
  atomic_store(&hood->silent, 0);
  atomic_store(&hood->requests, 0);
  atomic_store(&hood->given_bytes, 0);
}
