#include "explain/sites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "gapless/gapless.h"

/* What one frame is. */
enum { PYTHON = 8, TORCH = 16, INSTALLED = 32, CACHE = 64, NAME_MOST = 60 };

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static bool is_any(const char *name, const char *const *names) {
  for (; *names; names++)
    if (strcmp(name, *names) == 0) return true;
  return false;
}

static uint8_t place_of(const char *file) {
  uint8_t place = 0;
  if (ends_with(file, ".py") || file[0] == '<') place |= PYTHON;
  if (strstr(file, "/torch/") || strncmp(file, "torch/", 6) == 0) place |= TORCH | INSTALLED;
  if (strstr(file, "site-packages/") || strstr(file, "dist-packages/") || strstr(file, "/lib/python") ||
      strncmp(file, "<frozen", 7) == 0)
    place |= INSTALLED;
  return place;
}

static uint8_t meaning_of(const char *name, const char *file, uint8_t place) {
  static const char *const setup[] = {"__init__", "_apply",           "load_state_dict", "_load_from_state_dict",
                                      "to_empty", "reset_parameters", "from_pretrained", NULL};
  static const char *const recompute[] = {"backward", "unpack_hook", "recompute_fn", NULL};
  uint8_t meaning = 0;
  if ((place & TORCH) && strstr(file, "torch/optim/")) meaning |= GAP__STACK_OPTIMISER;
  if (strcmp(name, "backward") == 0 || strstr(name, "torch::autograd::Engine")) meaning |= GAP__STACK_BACKWARD;
  if (ends_with(file, "torch/utils/checkpoint.py") && is_any(name, recompute)) meaning |= GAP__STACK_BACKWARD;
  if ((place & PYTHON) && (is_any(name, setup) || strstr(name, "init_weight"))) meaning |= GAP__STACK_SETUP;
  if ((place & PYTHON) && strcasestr(name, "cache")) meaning |= CACHE;
  return meaning;
}

static uint8_t *judge_frames(const struct gap__history *history) {
  uint8_t *kinds = malloc((size_t)history->frame_count + 1);
  for (uint32_t i = 0; kinds && i < history->frame_count; i++) {
    const char *name = history->text + history->frames[i].name, *file = history->text + history->frames[i].filename;
    uint8_t place = place_of(file);
    kinds[i] = place | meaning_of(name, file, place);
  }
  return kinds;
}

/* Frames of equal text are one line of a program, however often the file has them. */
static uint64_t line_key(const struct gap__history *history, uint32_t frame) {
  if (frame == 0) return 0;
  const struct gap__hist_frame *at = &history->frames[frame - 1];
  return ((uint64_t)at->filename << 32 | (uint32_t)at->line) * 0x9E3779B97F4A7C15u ^ at->name;
}

static int intern(struct gap__sites *sites, struct gap__map *known, struct gap__site site, uint32_t *out) {
  uint64_t key = line_key(sites->history, site.frame) * 31 + line_key(sites->history, site.own), index;
  if (gap__map_get(known, key, &index)) {
    *out = (uint32_t)index;
    return 0;
  }
  sites->at[sites->count] = site;
  *out = sites->count;
  return gap__map_put(known, key, sites->count++);
}

static struct gap__site site_of(const struct gap__history *history, uint32_t stack, const uint8_t *kinds,
                                uint8_t *flags) {
  struct gap__site site = {0};
  uint32_t innermost = 0;
  bool is_cache = false;
  for (uint32_t i = 0; i < history->stacks[stack].count; i++) {
    uint32_t frame = history->stack_frames[history->stacks[stack].first + i];
    uint8_t kind = kinds[frame];
    is_cache |= (kind & CACHE) != 0;
    *flags |= kind & (GAP__STACK_OPTIMISER | GAP__STACK_BACKWARD | GAP__STACK_SETUP);
    if (!(kind & PYTHON)) continue;
    if (!innermost) innermost = frame + 1;
    if (!site.frame && !(kind & TORCH)) site.frame = frame + 1;
    if (!site.own && !(kind & INSTALLED)) site.own = frame + 1;
  }
  if (!site.frame) site.frame = innermost;
  if (is_cache) *flags &= (uint8_t)~GAP__STACK_SETUP; /* an engine's constructor makes its KV cache too */
  return site;
}

int gap__sites_find(const struct gap__history *history, struct gap__sites *sites) {
  size_t room = (size_t)history->stack_count + 1;
  struct gap__map known = {0};
  *sites = (struct gap__sites){.history = history, .count = 1};
  sites->at = calloc(room, sizeof *sites->at);
  sites->flags = calloc(room, 1);
  sites->of_stack = calloc(room, sizeof *sites->of_stack);
  uint8_t *kinds = judge_frames(history);
  int rc = sites->at && sites->flags && sites->of_stack && kinds ? 0 : GAP_ENOMETA;
  for (uint32_t i = 1; !rc && i < history->stack_count; i++) {
    struct gap__site site = site_of(history, i, kinds, &sites->flags[i]);
    if (site.frame) rc = intern(sites, &known, site, &sites->of_stack[i]);
  }
  free(kinds);
  gap__map_free(&known);
  return rc;
}

void gap__sites_free(struct gap__sites *sites) {
  free(sites->at);
  free(sites->flags);
  free(sites->of_stack);
  *sites = (struct gap__sites){0};
}

/* Without the folders, which say more about the machine than about the program. */
static int name_frame(const struct gap__history *history, uint32_t frame, char *out, size_t bytes) {
  const struct gap__hist_frame *at = &history->frames[frame];
  const char *path = history->text + at->filename, *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path,
             *name = history->text + at->name;
  return snprintf(out, bytes, "%.*s:%d %.*s", gap__text_fit(file, NAME_MOST), file, (int)at->line,
                  gap__text_fit(name, NAME_MOST), name);
}

static void put_name(const struct gap__sites *sites, uint32_t site, char *out, size_t bytes) {
  const struct gap__site *at = &sites->at[site];
  if (!at->frame) {
    snprintf(out, bytes, "%s", GAP__SITES_NONE);
    return;
  }
  size_t used = (size_t)name_frame(sites->history, at->frame - 1, out, bytes);
  static const char link[] = ", called from ";
  if (!at->own || line_key(sites->history, at->own) == line_key(sites->history, at->frame)) return;
  if (used + sizeof link >= bytes) return;
  memcpy(out + used, link, sizeof link);
  name_frame(sites->history, at->own - 1, out + used + sizeof link - 1, bytes - used - sizeof link + 1);
}

/* A file may come from anybody, and names go to terminals. */
void gap__sites_name(const struct gap__sites *sites, uint32_t site, char *out, size_t bytes) {
  put_name(sites, site, out, bytes);
  gap__text_make_plain(out);
}
