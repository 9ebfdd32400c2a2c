#include "report/names.h"

#include <stdlib.h>

#include "gapless/gapless.h"

enum { NAME_BYTES = 160, FRAME_BYTES = 400, FURTHER = GAP__NAMES_SITES_MAX - 1 };

void gap__names_begin(struct gap__names *names, const struct gap__sites *sites) {
  names->sites = sites;
  names->site_count = 1; /* [0]: site 0, unknown */
}

void gap__names_free(struct gap__names *names) {
  gap__map_free(&names->site_index);
  gap__map_free(&names->frame_index);
  free(names->frames);
}

int gap__names_site(struct gap__names *names, uint32_t stack, uint32_t *out) {
  uint32_t site = names->sites->of_stack[stack];
  uint64_t known;
  *out = 0;
  if (site == 0) return 0;
  if (gap__map_get(&names->site_index, site, &known)) {
    *out = (uint32_t)known;
    return 0;
  }
  *out = FURTHER;
  names->has_further |= names->site_count == FURTHER;
  if (names->site_count == FURTHER) return 0;
  *out = names->site_count;
  names->site_at[names->site_count] = site;
  return gap__map_put(&names->site_index, site, names->site_count++);
}

/* ---- frames -------------------------------------------------------------------------------------------------------- */

static const struct gap__hist_frame *frame_of(const struct gap__names *names, uint32_t index) {
  return &names->sites->history->frames[index];
}

static bool is_same(const struct gap__hist_frame *a, const struct gap__hist_frame *b) {
  return a->name == b->name && a->filename == b->filename && a->line == b->line; /* texts are interned */
}

static int add_frame(struct gap__names *names, uint64_t key, uint32_t frame) {
  if (names->frame_count == names->frame_room) {
    uint32_t room = 2 * names->frame_room + 256;
    void *grown = realloc(names->frames, room * sizeof *names->frames);
    if (!grown) return GAP_ENOMETA;
    names->frames = grown;
    names->frame_room = room;
  }
  names->frames[names->frame_count] = frame;
  return gap__map_put(&names->frame_index, key, names->frame_count++);
}

/* Different frames of one key are moved on to the next key. */
int gap__names_frame(struct gap__names *names, uint32_t frame, uint32_t *out) {
  const struct gap__hist_frame *wanted = frame_of(names, frame);
  uint64_t key = ((uint64_t)wanted->filename << 32 | (uint32_t)wanted->line) * 0x9E3779B97F4A7C15u ^ wanted->name;
  uint64_t known;
  for (; gap__map_get(&names->frame_index, key, &known); key++) {
    *out = (uint32_t)known;
    if (is_same(frame_of(names, names->frames[known]), wanted)) return 0;
  }
  *out = names->frame_count;
  return add_frame(names, key, frame);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

void gap__names_emit_sites(const struct gap__names *names, struct gap__emit *emit) {
  char name[NAME_BYTES];
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < names->site_count; i++) {
    gap__sites_name(names->sites, names->site_at[i], name, sizeof name);
    gap__emit_text(emit, name);
  }
  if (names->has_further) gap__emit_text(emit, "other call sites");
  gap__emit_end(emit, ']');
}

void gap__names_emit_frames(const struct gap__names *names, struct gap__emit *emit) {
  const char *text = names->sites->history->text;
  gap__emit_begin(emit, '{');
  gap__emit_name(emit, "name");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < names->frame_count; i++)
    gap__emit_start(emit, text + frame_of(names, names->frames[i])->name, FRAME_BYTES);
  gap__emit_end(emit, ']');
  gap__emit_name(emit, "file");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < names->frame_count; i++)
    gap__emit_start(emit, text + frame_of(names, names->frames[i])->filename, FRAME_BYTES);
  gap__emit_end(emit, ']');
  gap__emit_name(emit, "line");
  gap__emit_begin(emit, '[');
  for (uint32_t i = 0; i < names->frame_count; i++) gap__emit_signed(emit, frame_of(names, names->frames[i])->line);
  gap__emit_end(emit, ']');
  gap__emit_end(emit, '}');
}
