#include "top_frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/heap.h"
#include "screen.h"

enum { BAR = 30, RUNG_BAR = 20, STALE_S = 3, ROWS_LEAST = 3 };
#define NEARLY 0.95 /* of the cap: near it */

const char *const top_sort_names[SORT_COUNT] = {"held", "live", "idle", "stalls", "process"};

const char *sheets_folder_fault(int code) {
  return code == GAP_EIO      ? "it is not there, or no folder but a symbolic link, for instance"
         : code == GAP_EINVAL ? "it is not one user's alone, or another user's"
                              : gap_strerror(code);
}

/* ---- pieces ---- */

static const char *size(uint64_t bytes, char out[GAP__TEXT_BYTES]) { return gap__text_size(bytes, out); }

static void add_bar(struct gap__text *out, double share, int width) {
  int filled = (int)(share * width + 0.5);
  gap__text_add_char(out, '[');
  for (int i = 0; i < width; i++) gap__text_add_char(out, i < filled ? '#' : '.');
  gap__text_add_char(out, ']');
}

/* At most 1: figures of a sheet need not fit together. */
static double share(uint64_t part, uint64_t whole) {
  return part >= whole ? (whole ? 1 : 0) : (double)part / (double)whole;
}

static bool has_device(const struct top_row *row) { return row->index < row->view->device_count; }

/* ---- the cards ---- */

static bool is_on(const struct top_row *row, const unsigned char uuid[16]) {
  return has_device(row) && memcmp(gap__sheet_device(row->view, row->index)->uuid, uuid, 16) == 0;
}

static uint64_t held_on(const struct top_look *look, const struct gap__nvml_card *card) {
  uint64_t held = 0;
  for (uint32_t i = 0; i < look->count; i++) held += is_on(&look->rows[i], card->uuid) ? look->rows[i].brief.held : 0;
  return held;
}

/* Contexts and code of gapless's own processes count as others too: they are no memory that it manages. */
static void add_card(const struct top_look *look, uint32_t index, struct gap__text *out) {
  const struct gap__nvml_card *card = &look->nvml->cards[index];
  uint64_t held = held_on(look, card), others = card->used_bytes > held ? card->used_bytes - held : 0;
  char text[5][GAP__TEXT_BYTES];
  gap__text_add(out, "card %u %-24.24s ", index, card->name);
  add_bar(out, share(card->used_bytes, card->total_bytes), BAR);
  gap__text_add(out, " %s of %s in use: %s held by gapless, %s by others; %s free\n", size(card->used_bytes, text[0]),
                size(card->total_bytes, text[1]), size(held, text[2]), size(others, text[3]),
                size(card->free_bytes, text[4]));
}

/* ---- the list ---- */

static unsigned char style_of(const struct top_row *row, bool chosen) {
  const struct gap__sheet_brief *b = &row->brief;
  if (chosen) return SCREEN_CHOSEN;
  if (!has_device(row)) return 0;
  if (b->cap && (double)(b->live + b->pending) > NEARLY * (double)b->cap) return SCREEN_ALARM;
  return b->age_s > STALE_S || b->refused ? SCREEN_WARM : 0;
}

static const char *rate(double per_s, char out[GAP__TEXT_BYTES]) {
  if (per_s < 0) return "";
  if (per_s > 1e15) per_s = 1e15;
  return gap__text_thousands((uint64_t)(per_s + 0.5), out);
}

static void add_row(const struct top_row *row, bool chosen, struct gap__text *out) {
  const struct gap__sheet_brief *b = &row->brief;
  char text[6][GAP__TEXT_BYTES], program[20];
  unsigned char style = style_of(row, chosen);
  if (style) gap__text_add_char(out, (char)style);
  snprintf(program, sizeof program, "%.16s", row->view->program);
  gap__text_add(out, "%8" PRId64 " %-16s ", row->view->process, program);
  if (!has_device(row)) {
    gap__text_add(out, "no device opened yet\n");
    return;
  }
  const struct gap__sheet_device *device = gap__sheet_device(row->view, row->index);
  gap__text_add(out, "%3u %-17.17s %10s %10s %10s %10s %10s %10s %7" PRIu64 " %7" PRIu64 "\n", device->ordinal,
                device->strategy, size(b->live, text[0]), size(b->idle, text[1]), size(b->held, text[2]),
                b->cap ? size(b->cap, text[3]) : "none", size(b->servable, text[4]),
                rate(row->allocations_per_s, text[5]), b->stalls, b->refused);
}

/* Of a list that leaves the details no room on the screen, the rows about the chosen one. */
struct window {
  uint32_t first, end;
};

static struct window window_of(const struct top_look *look, const struct top_view *view) {
  uint32_t room = view->screen_rows > 2 * ROWS_LEAST ? view->screen_rows / 2 : ROWS_LEAST;
  if (!view->is_live || look->count <= room) return (struct window){0, look->count};
  uint32_t first = view->chosen > room / 2 ? view->chosen - room / 2 : 0;
  if (first > look->count - room) first = look->count - room;
  return (struct window){first, first + room};
}

static void add_list(const struct top_look *look, const struct top_view *view, struct gap__text *out) {
  struct window shown = window_of(look, view);
  gap__text_add(out, "%c%8s %-16s %3s %-17s %10s %10s %10s %10s %10s %10s %7s %7s\n", SCREEN_BOLD, "process", "program",
                "dev", "strategy", "live", "idle", "held", "cap", "servable", "allocs/s", "stalls", "refused");
  for (uint32_t i = shown.first; i < shown.end; i++) add_row(&look->rows[i], view->is_live && i == view->chosen, out);
  if (shown.end - shown.first < look->count)
    gap__text_add(out, "%8s rows %u to %u of %u\n", "", shown.first + 1, shown.end, look->count);
}

/* ---- one of them ---- */

static void add_memory(const struct top_row *row, struct gap__text *out) {
  const struct gap__sheet_brief *b = &row->brief;
  char text[4][GAP__TEXT_BYTES];
  uint64_t most = b->cap > b->held ? b->cap : b->held;
  gap__text_add(out, "  live      ");
  add_bar(out, share(b->live, most), BAR);
  gap__text_add(out, " %s, peak %s; pending %s\n", size(b->live, text[0]), size(b->live_peak, text[1]),
                size(b->pending, text[2]));
  gap__text_add(out, "  held      ");
  add_bar(out, share(b->held, most), BAR);
  gap__text_add(out, " %s, peak %s; %s%s\n", size(b->held, text[0]), size(b->held_peak, text[1]),
                b->cap ? "cap " : "no cap", b->cap ? size(b->cap, text[2]) : "");
  gap__text_add(out, "  idle      ");
  add_bar(out, share(b->idle, most), BAR);
  gap__text_add(out, " %s: %s serves any request or can be given back, %s lies on pages in use\n",
                size(b->idle, text[0]), size(b->returnable, text[1]), size(b->stuck, text[2]));
  if (b->overflow)
    gap__text_add(out, "  overflow  %s of host memory at device addresses, %s of it live\n", size(b->overflow, text[0]),
                  size(b->overflow_live, text[1]));
  gap__text_add(out, "  the largest request that could be served now: %s\n", size(b->servable, text[0]));
}

static void add_pressure(const struct top_row *row, struct gap__text *out) {
  const struct gap__sheet_view *view = row->view;
  uint64_t stall_us = (uint64_t)gap__sheet_value(view, row->index, "stall_us");
  char text[3][GAP__TEXT_BYTES];
  gap__text_add(out, "  refused %" PRIu64 ", retries %" PRId64 ", stalls %" PRIu64 " (%s), %s allocations",
                row->brief.refused, gap__sheet_value(view, row->index, "num_alloc_retries"), row->brief.stalls,
                gap__text_duration(stall_us * 1000, text[0]), gap__text_thousands(row->brief.allocations, text[1]));
  if (row->allocations_per_s >= 0) gap__text_add(out, ", %s/s", rate(row->allocations_per_s, text[2]));
  gap__text_add_char(out, '\n');
}

static void add_neighbours(const struct top_row *row, struct gap__text *out) {
  int64_t asks = gap__sheet_value(row->view, row->index, "neighbour_asks"),
          requests = gap__sheet_value(row->view, row->index, "neighbour_requests");
  char got[GAP__TEXT_BYTES], given[GAP__TEXT_BYTES];
  if (!asks && !requests) return;
  gap__text_add(out, "  neighbours: asked %" PRId64 " times, got %s; were asked by %" PRId64 " times, gave %s\n", asks,
                size((uint64_t)gap__sheet_value(row->view, row->index, "neighbour_got_bytes"), got), requests,
                size((uint64_t)gap__sheet_value(row->view, row->index, "neighbour_given_bytes"), given));
}

static void add_streams(const struct gap__sheet_device *device, struct gap__text *out) {
  if (!device->usage_count) return;
  gap__text_add(out, "%c  %-20s %-26s %8s %10s %10s %10s\n", SCREEN_BOLD, "stream", "pool", "blocks", "live", "pending",
                "idle");
  for (uint32_t i = 0; i < device->usage_count; i++) {
    const struct gap__sheet_usage *u = &device->usage[i];
    char text[3][GAP__TEXT_BYTES], pool[80];
    snprintf(pool, sizeof pool, "%s%s(%" PRIu64 ",%" PRIu64 ")", u->tag, *u->tag ? " " : "", u->pool_first,
             u->pool_second);
    gap__text_add(out, "  %-#20" PRIx64 " %-26.26s %8" PRIu64 " %10s %10s %10s\n", u->stream, pool, u->live_blocks,
                  size(u->live_bytes, text[0]), size(u->pending_bytes, text[1]), size(u->idle_bytes, text[2]));
  }
  if (device->usage_missed) gap__text_add(out, "  ... and more\n");
}

static void add_rungs(const struct top_row *row, struct gap__text *out) {
  uint64_t most = 0, served[GAP__RUNG_COUNT], us[GAP__RUNG_COUNT];
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++) {
    char name[64];
    snprintf(name, sizeof name, "rung.%s.count", gap__rung_name((enum gap__rung)rung));
    served[rung] = (uint64_t)gap__sheet_value(row->view, row->index, name);
    snprintf(name, sizeof name, "rung.%s.us", gap__rung_name((enum gap__rung)rung));
    us[rung] = (uint64_t)gap__sheet_value(row->view, row->index, name);
    if (us[rung] > most) most = us[rung];
  }
  if (!most) return;
  gap__text_add(out, "%c  %-12s %12s %12s\n", SCREEN_BOLD, "rung", "served", "time");
  for (int rung = 0; rung < GAP__RUNG_COUNT; rung++) {
    char time[GAP__TEXT_BYTES];
    if (!served[rung] && !us[rung]) continue;
    gap__text_add(out, "  %-12s %12" PRIu64 " %12s ", gap__rung_name((enum gap__rung)rung), served[rung],
                  gap__text_duration(us[rung] * 1000, time));
    add_bar(out, share(us[rung], most), RUNG_BAR);
    gap__text_add_char(out, '\n');
  }
}

/* Why figures may be old. */
static void add_age(const struct top_row *row, struct gap__text *out) {
  const struct gap__sheet_device *device = gap__sheet_device(row->view, row->index);
  if (row->brief.age_s <= STALE_S) return;
  gap__text_add(out, "%c  these figures are %.0f s old: %s\n", SCREEN_WARM, row->brief.age_s,
                device->is_busy ? "a request holds the lock of the device"
                                : "the process is stopped, or its thread waits for the driver");
}

static void add_details(const struct top_row *row, struct gap__text *out) {
  gap__text_add(out, "\n%cprocess %" PRId64 " (%s), gapless %s", SCREEN_BOLD, row->view->process, row->view->program,
                row->view->release);
  if (!has_device(row)) {
    gap__text_add(out, ": no device opened yet\n");
    return;
  }
  const struct gap__sheet_device *device = gap__sheet_device(row->view, row->index);
  gap__text_add(out, ", device %u (%s), strategy %s\n", device->ordinal, device->backend, device->strategy);
  add_age(row, out);
  add_memory(row, out);
  add_pressure(row, out);
  add_neighbours(row, out);
  if (*device->refusal) gap__text_add(out, "%c  last refusal: %s\n", SCREEN_ALARM, device->refusal);
  add_streams(device, out);
  add_rungs(row, out);
}

/* ---- the whole ---- */

static void add_title(const struct top_look *look, const struct top_view *view, struct gap__text *out) {
  char clock[16];
  time_t now = time(NULL);
  struct tm local;
  strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local));
  gap__text_add(out, "%cgapless top  %s  %u process%s", SCREEN_BOLD, clock, look->sheets->count,
                look->sheets->count == 1 ? "" : "es");
  if (view->is_live)
    gap__text_add(out, ", every %g s, by %s%s   (q quit, s sort, p pause, arrows choose, ? help)", view->interval_s,
                  top_sort_names[view->sort], view->paused ? ", PAUSED" : "");
  gap__text_add_char(out, '\n');
}

static void add_nobody(const struct top_view *view, struct gap__text *out) {
  if (view->process) gap__text_add(out, "process %ld publishes nothing: ", view->process);
  else gap__text_add(out, "no gapless process of this user publishes its figures: ");
  gap__text_add(out,
                "none runs, it has made no heap yet, or it has serve:False\n(serve:auto publishes where there are real "
                "cards; on host and sim say serve:True)\n");
}

static void add_help(struct gap__text *out) {
  gap__text_add(out,
                "\n%ckeys\n  q        quit\n  s        sort by held, live, idle, stalls, process\n"
                "  p        pause and go on\n  up down  choose the process whose details are shown\n"
                "  ?        this\n\n%ccolumns\n  live      bytes of live blocks\n"
                "  idle      held from the driver and in no use\n  held      held from the driver\n"
                "  servable  the largest request that could be served now without waiting\n"
                "  stalls    waits of allocating threads\n  refused   requests that failed for want of memory\n",
                SCREEN_BOLD, SCREEN_BOLD);
}

void top_frame(const struct top_look *look, const struct top_view *view, struct gap__text *out) {
  add_title(look, view, out);
  if (view->help) {
    add_help(out);
    return;
  }
  for (uint32_t i = 0; i < look->nvml->count; i++) add_card(look, i, out);
  if (look->sheets->unknown)
    gap__text_add(out, "%u of another version of gapless that this command cannot read\n", look->sheets->unknown);
  if (!look->count) {
    add_nobody(view, out);
    return;
  }
  add_list(look, view, out);
  if (view->is_live || look->count == 1) add_details(&look->rows[view->chosen], out);
  else if (view->process) /* once: all its devices, for nobody can choose */
    for (uint32_t i = 0; i < look->count; i++) add_details(&look->rows[i], out);
}
