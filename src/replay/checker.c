#include "replay/checker.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gapless/gapless.h"

struct span { /* a live block, or a run of physical bytes that one uses */
  uint64_t start, end;
};

struct change {         /* what happened to an address since the last check */
  uint64_t addr, bytes; /* bytes 0: freed */
  uint64_t order;
};

struct use { /* live bytes of a chunk that is mapped more than once */
  gap__chunk chunk;
  struct span bytes; /* within the chunk */
  uint64_t addr;
};

struct array {
  void *items;
  size_t count, capacity;
};

struct gap__checker {
  struct gap__checker_source source;
  struct array live;     /* struct span, in address order */
  struct array merged;   /* the next `live` while it is built */
  struct array changes;  /* struct change */
  struct array mappings; /* struct gap__dev_mapping, in address order */
  struct array by_chunk; /* struct chunk_key: mappings of chunks, ordered by chunk */
  struct array uses;     /* struct use */
  uint64_t mapped_version;
  bool mapped_known;
  bool any_alias; /* some chunk is mapped more than once */
};

static void *array_push(struct array *array, size_t item_bytes) {
  if (array->count == array->capacity) {
    size_t capacity = array->capacity ? array->capacity * 2 : 256;
    void *items = realloc(array->items, capacity * item_bytes);
    if (!items) return NULL;
    array->items = items;
    array->capacity = capacity;
  }
  return (char *)array->items + array->count++ * item_bytes;
}

static int violation(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int violation(char *text, size_t bytes, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(text, bytes, format, args);
  va_end(args);
  return GAP_EMISMATCH;
}

int gap__checker_create(const struct gap__checker_source *source, struct gap__checker **out) {
  struct gap__checker *checker = calloc(1, sizeof *checker);
  if (!checker) return GAP_ENOMETA;
  checker->source = *source;
  *out = checker;
  return 0;
}

void gap__checker_destroy(struct gap__checker *checker) {
  if (!checker) return;
  free(checker->live.items);
  free(checker->merged.items);
  free(checker->changes.items);
  free(checker->mappings.items);
  free(checker->by_chunk.items);
  free(checker->uses.items);
  free(checker);
}

static int note(struct gap__checker *checker, gap_addr addr, uint64_t bytes) {
  struct change *change = array_push(&checker->changes, sizeof *change);
  if (!change) return GAP_ENOMETA;
  *change = (struct change){.addr = addr, .bytes = bytes, .order = checker->changes.count};
  return 0;
}

int gap__checker_alloc(struct gap__checker *checker, gap_addr addr, uint64_t bytes) {
  return note(checker, addr, bytes);
}
int gap__checker_free(struct gap__checker *checker, gap_addr addr) { return note(checker, addr, 0); }

/* ---- Live blocks ---- */

static int compare_changes(const void *left, const void *right) {
  const struct change *a = left, *b = right;
  if (a->addr != b->addr) return a->addr < b->addr ? -1 : 1;
  return a->order < b->order ? -1 : 1;
}

/* Plays the changes of one address, from `*i` on, over its block (`was_live`: there is one); leaves the outcome in `*span`. */
static int play_changes(struct gap__checker *checker, size_t *i, bool was_live, struct span *span, bool *is_live,
                        char *text, size_t bytes) {
  const struct change *changes = checker->changes.items;
  uint64_t addr = changes[*i].addr;
  for (; *i < checker->changes.count && changes[*i].addr == addr; (*i)++) {
    if (changes[*i].bytes != 0 && was_live)
      return violation(text, bytes, "address 0x%" PRIx64 " was handed out while a live block starts there", addr);
    if (changes[*i].bytes == 0 && !was_live)
      return violation(text, bytes, "address 0x%" PRIx64 " was freed but no live block starts there", addr);
    was_live = changes[*i].bytes != 0;
    if (was_live) *span = (struct span){addr, addr + changes[*i].bytes};
  }
  *is_live = was_live;
  return 0;
}

static int keep(struct array *merged, struct span span, char *text, size_t bytes) {
  const struct span *last = merged->count ? (struct span *)merged->items + merged->count - 1 : NULL;
  if (span.end < span.start)
    return violation(text, bytes, "the block at 0x%" PRIx64 " runs over the end of the address space", span.start);
  if (last && last->end > span.start)
    return violation(text, bytes,
                     "two live blocks overlap: 0x%" PRIx64 " to 0x%" PRIx64 " and 0x%" PRIx64 " to 0x%" PRIx64,
                     last->start, last->end, span.start, span.end);
  struct span *place = array_push(merged, sizeof span);
  if (!place) return GAP_ENOMETA;
  *place = span;
  return 0;
}

/* Merges the sorted changes into the sorted list of live blocks; says so when two blocks overlap. */
static int merge_changes(struct gap__checker *checker, char *text, size_t bytes) {
  const struct span *live = checker->live.items;
  const struct change *changes = checker->changes.items;
  if (checker->changes.count == 0) return 0;
  qsort(checker->changes.items, checker->changes.count, sizeof *changes, compare_changes);
  checker->merged.count = 0;
  size_t at_live = 0, at_change = 0;
  while (at_live < checker->live.count || at_change < checker->changes.count) {
    bool has_live = at_live < checker->live.count, has_change = at_change < checker->changes.count;
    struct span span = has_live ? live[at_live] : (struct span){0};
    bool is_live = true;
    int rc = 0;
    if (has_change && (!has_live || changes[at_change].addr <= span.start)) {
      bool same = has_live && changes[at_change].addr == span.start;
      rc = play_changes(checker, &at_change, same, &span, &is_live, text, bytes);
      at_live += same;
    } else {
      at_live++;
    }
    if (rc == 0 && is_live) rc = keep(&checker->merged, span, text, bytes);
    if (rc != 0) return rc;
  }
  struct array old = checker->live;
  checker->live = checker->merged;
  checker->merged = old;
  checker->changes.count = 0;
  return 0;
}

/* ---- Mappings ---- */

static int collect(void *arg, const struct gap__dev_mapping *mapping) {
  struct gap__dev_mapping *place = array_push(arg, sizeof *mapping);
  if (!place) return GAP_ENOMETA;
  *place = *mapping;
  return 0;
}

/* Sorting by chunk needs the mappings at hand; a key that carries both keeps it re-entrant. */
struct chunk_key {
  gap__chunk chunk;
  uint32_t index;
};

static int compare_keys(const void *left, const void *right) {
  const struct chunk_key *a = left, *b = right;
  if (a->chunk != b->chunk) return a->chunk < b->chunk ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static int list_chunks(struct gap__checker *checker) {
  const struct gap__dev_mapping *mappings = checker->mappings.items;
  checker->by_chunk.count = 0;
  bool sorted = true;
  for (size_t i = 0; i < checker->mappings.count; i++) {
    if (mappings[i].chunk == 0) continue;
    struct chunk_key *key = array_push(&checker->by_chunk, sizeof *key);
    if (!key) return GAP_ENOMETA;
    *key = (struct chunk_key){mappings[i].chunk, (uint32_t)i};
    if (checker->by_chunk.count > 1 && key[-1].chunk > key->chunk) sorted = false;
  }
  if (!sorted) qsort(checker->by_chunk.items, checker->by_chunk.count, sizeof(struct chunk_key), compare_keys);
  return 0;
}

/* Rule 4, and finds out whether any chunk is mapped more than once. */
static int check_chunks(struct gap__checker *checker, uint64_t *distinct_bytes, char *text, size_t bytes) {
  const struct gap__dev_mapping *mappings = checker->mappings.items;
  const struct chunk_key *keys = checker->by_chunk.items;
  checker->any_alias = false;
  *distinct_bytes = 0;
  for (size_t i = 0; i < checker->by_chunk.count; i++) {
    const struct gap__dev_mapping *mapping = &mappings[keys[i].index];
    if (i == 0 || keys[i - 1].chunk != keys[i].chunk) {
      *distinct_bytes += mapping->on_host ? 0 : mapping->bytes;
      continue;
    }
    checker->any_alias = true;
    const struct gap__dev_mapping *other = &mappings[keys[i - 1].index];
    if (other->bytes != mapping->bytes)
      return violation(text, bytes,
                       "chunk %" PRIu64 " is mapped with %" PRIu64 " bytes at 0x%" PRIx64 " and %" PRIu64
                       " at 0x%" PRIx64,
                       mapping->chunk, other->bytes, other->addr, mapping->bytes, mapping->addr);
  }
  return 0;
}

static int check_order(const struct gap__checker *checker, uint64_t *segment_bytes, char *text, size_t bytes) {
  const struct gap__dev_mapping *mappings = checker->mappings.items;
  *segment_bytes = 0;
  for (size_t i = 0; i < checker->mappings.count; i++) {
    if (mappings[i].chunk == 0) *segment_bytes += mappings[i].bytes;
    if (i > 0 && mappings[i - 1].addr + mappings[i - 1].bytes > mappings[i].addr)
      return violation(text, bytes, "the mappings at 0x%" PRIx64 " and 0x%" PRIx64 " overlap", mappings[i - 1].addr,
                       mappings[i].addr);
  }
  return 0;
}

/* Looks at the card again if anything was mapped or unmapped since. */
static int refresh_mappings(struct gap__checker *checker, char *text, size_t bytes) {
  struct gap__checker_source *source = &checker->source;
  uint64_t version = source->version ? source->version(source->arg) : 0;
  if (source->version && checker->mapped_known && version == checker->mapped_version) return 0;
  checker->mapped_known = false;
  checker->mappings.count = 0;
  int rc = source->walk(source->arg, collect, &checker->mappings);
  uint64_t segment_bytes = 0, chunk_bytes = 0;
  if (rc == 0) rc = check_order(checker, &segment_bytes, text, bytes);
  if (rc == 0) rc = list_chunks(checker);
  if (rc == 0) rc = check_chunks(checker, &chunk_bytes, text, bytes);
  if (rc != 0) return rc;
  uint64_t held = source->held_bytes(source->arg);
  if (segment_bytes + chunk_bytes > held)
    return violation(text, bytes, "%" PRIu64 " bytes are mapped but only %" PRIu64 " are held",
                     segment_bytes + chunk_bytes, held);
  checker->mapped_known = true;
  checker->mapped_version = version;
  return 0;
}

/* ---- Live bytes against mappings ---- */

static bool is_aliased(const struct gap__checker *checker, gap__chunk chunk) {
  const struct chunk_key *keys = checker->by_chunk.items;
  size_t low = 0, high = checker->by_chunk.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (keys[middle].chunk < chunk) low = middle + 1;
    else high = middle;
  }
  return low + 1 < checker->by_chunk.count && keys[low + 1].chunk == chunk;
}

static int note_use(struct gap__checker *checker, const struct gap__dev_mapping *mapping, uint64_t from, uint64_t to) {
  if (!checker->any_alias || mapping->chunk == 0 || !is_aliased(checker, mapping->chunk)) return 0;
  struct use *use = array_push(&checker->uses, sizeof *use);
  if (!use) return GAP_ENOMETA;
  *use = (struct use){mapping->chunk, {from - mapping->addr, to - mapping->addr}, from};
  return 0;
}

/* Rule 2 for one block; `*at` is the first mapping that may reach into it and moves on with the blocks. */
static int check_block(struct gap__checker *checker, const struct span *block, size_t *at, char *text, size_t bytes) {
  const struct gap__dev_mapping *mappings = checker->mappings.items;
  while (*at < checker->mappings.count && mappings[*at].addr + mappings[*at].bytes <= block->start) (*at)++;
  uint64_t covered = block->start;
  for (size_t i = *at; covered < block->end; i++) {
    if (i == checker->mappings.count || mappings[i].addr > covered)
      return violation(text, bytes,
                       "no memory stands behind 0x%" PRIx64 ", inside the live block 0x%" PRIx64 " to 0x%" PRIx64,
                       covered, block->start, block->end);
    if (!mappings[i].accessible)
      return violation(text, bytes,
                       "the memory at 0x%" PRIx64 " is mapped but not accessible, inside the live block 0x%" PRIx64
                       " to 0x%" PRIx64,
                       covered, block->start, block->end);
    uint64_t end = mappings[i].addr + mappings[i].bytes;
    uint64_t to = end < block->end ? end : block->end;
    int rc = note_use(checker, &mappings[i], covered, to);
    if (rc != 0) return rc;
    covered = to;
  }
  return 0;
}

static int compare_uses(const void *left, const void *right) {
  const struct use *a = left, *b = right;
  if (a->chunk != b->chunk) return a->chunk < b->chunk ? -1 : 1;
  if (a->bytes.start != b->bytes.start) return a->bytes.start < b->bytes.start ? -1 : 1;
  return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static int check_aliases(struct gap__checker *checker, char *text, size_t bytes) {
  struct use *uses = checker->uses.items;
  if (checker->uses.count > 1) qsort(uses, checker->uses.count, sizeof *uses, compare_uses);
  for (size_t i = 1; i < checker->uses.count; i++)
    if (uses[i].chunk == uses[i - 1].chunk && uses[i].bytes.start < uses[i - 1].bytes.end)
      return violation(text, bytes,
                       "0x%" PRIx64 " and 0x%" PRIx64 " are both live and stand on the same bytes of chunk %" PRIu64,
                       uses[i - 1].addr, uses[i].addr, uses[i].chunk);
  return 0;
}

int gap__checker_check(struct gap__checker *checker, uint64_t cap_bytes, char *text, size_t bytes) {
  int rc = merge_changes(checker, text, bytes);
  if (rc == 0) rc = refresh_mappings(checker, text, bytes);
  if (rc != 0) return rc;
  uint64_t held = checker->source.held_bytes(checker->source.arg);
  if (cap_bytes != 0 && held > cap_bytes)
    return violation(text, bytes, "%" PRIu64 " bytes are held, %" PRIu64 " over the cap", held, held - cap_bytes);
  const struct span *live = checker->live.items;
  checker->uses.count = 0;
  size_t at = 0;
  for (size_t i = 0; i < checker->live.count && rc == 0; i++) rc = check_block(checker, &live[i], &at, text, bytes);
  return rc != 0 ? rc : check_aliases(checker, text, bytes);
}
