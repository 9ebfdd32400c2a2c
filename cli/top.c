/* gapless top: what running processes hold, as they publish it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "options.h"
#include "screen.h"
#include "top_frame.h"

#define INTERVAL_LEAST 0.1
#define INTERVAL_MOST 3600.0

struct request {
  uint64_t process;
  const char *folder; /* NULL: the usual ones */
  bool once, json;
  double interval_s;
  enum top_sort sort;
};

static const struct option options[] = {
    {"once", no_argument, NULL, '1'},         {"json", no_argument, NULL, 'j'},
    {"folder", required_argument, NULL, 'f'}, {"interval", required_argument, NULL, 'i'},
    {"sort", required_argument, NULL, 's'},   {NULL, 0, NULL, 0}};

static int take_sort(const char *value, enum top_sort *out) {
  for (int i = 0; i < SORT_COUNT; i++)
    if (strcmp(value, top_sort_names[i]) == 0) {
      *out = (enum top_sort)i;
      return 0;
    }
  return usage_error("top", "--sort %s: held, live, idle, stalls or process is wanted", value);
}

static int take_interval(const char *value, double *out) {
  if (gap__text_parse_real(value, strlen(value), out) == 0 && *out >= INTERVAL_LEAST && *out <= INTERVAL_MOST) return 0;
  return usage_error("top", "--interval %s: seconds from %g to %g are wanted", value, INTERVAL_LEAST, INTERVAL_MOST);
}

static int take_option(void *arg, int option, const char *value) {
  struct request *request = arg;
  switch (option) {
    case '1': request->once = true; return 0;
    case 'j': request->json = true; return 0;
    case 'f': request->folder = value; return 0;
    case 'i': return take_interval(value, &request->interval_s);
    default: return take_sort(value, &request->sort);
  }
}

/* ---- looks ---- */

struct seen { /* of the look before */
  int64_t process;
  uint32_t heap, device;
  uint64_t allocations, stalls, taken_ns;
};

struct watch {
  struct gap__nvml *nvml;
  struct gap__sheets sheets;
  struct top_look look;
  struct seen *seen;
  uint32_t seen_count;
};

static const struct seen *seen_of(const struct watch *watch, const struct top_row *row) {
  const struct gap__sheet_device *device = gap__sheet_device(row->view, row->index);
  for (uint32_t i = 0; i < watch->seen_count; i++) {
    const struct seen *seen = &watch->seen[i];
    if (seen->process == row->view->process && seen->heap == device->heap && seen->device == device->ordinal)
      return seen;
  }
  return NULL;
}

static double per_second(uint64_t now, uint64_t then, double seconds) {
  return now >= then ? (double)(now - then) / seconds : 0;
}

static void fill_row(const struct watch *watch, const struct gap__sheet_view *view, uint32_t index,
                     struct top_row *row) {
  *row = (struct top_row){.view = view, .index = index, .allocations_per_s = -1, .stalls_per_s = -1};
  if (index >= view->device_count) return;
  row->brief = gap__sheet_brief(view, index, gap__sheet_now_ns());
  const struct seen *seen = seen_of(watch, row);
  double seconds = seen ? gap__sheet_age_s(seen->taken_ns, gap__sheet_device(view, index)->taken_ns) : 0;
  if (seconds <= 0) return;
  row->allocations_per_s = per_second(row->brief.allocations, seen->allocations, seconds);
  row->stalls_per_s = per_second(row->brief.stalls, seen->stalls, seconds);
}

static uint32_t rows_of(const struct gap__sheet_view *view) { return view->device_count ? view->device_count : 1; }

static int fill_rows(struct watch *watch) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < watch->sheets.count; i++) count += rows_of(&watch->sheets.views[i]);
  free(watch->look.rows);
  watch->look = (struct top_look){.sheets = &watch->sheets, .nvml = watch->nvml};
  watch->look.rows = calloc(count ? count : 1, sizeof *watch->look.rows);
  if (!watch->look.rows) return GAP_ENOMETA;
  for (uint32_t i = 0; i < watch->sheets.count; i++)
    for (uint32_t d = 0; d < rows_of(&watch->sheets.views[i]); d++)
      fill_row(watch, &watch->sheets.views[i], d, &watch->look.rows[watch->look.count++]);
  return 0;
}

static void remember(struct watch *watch) {
  struct seen *seen = calloc(watch->look.count ? watch->look.count : 1, sizeof *seen);
  uint32_t count = 0;
  for (uint32_t i = 0; seen && i < watch->look.count; i++) {
    const struct top_row *row = &watch->look.rows[i];
    if (row->index >= row->view->device_count) continue;
    const struct gap__sheet_device *device = gap__sheet_device(row->view, row->index);
    seen[count++] = (struct seen){row->view->process,     device->heap,      device->ordinal,
                                  row->brief.allocations, row->brief.stalls, device->taken_ns};
  }
  free(watch->seen);
  watch->seen = seen;
  watch->seen_count = count;
}

static int look_again(struct watch *watch, const struct request *request) {
  if (watch->look.rows) remember(watch);
  gap__sheets_free(&watch->sheets);
  gap__nvml_look(watch->nvml);
  int rc = gap__sheets_read(request->folder, (long)request->process, &watch->sheets);
  return rc ? rc : fill_rows(watch);
}

static void close_watch(struct watch *watch) {
  gap__nvml_close(watch->nvml);
  gap__sheets_free(&watch->sheets);
  free(watch->look.rows);
  free(watch->seen);
}

/* ---- order ---- */

static uint64_t weight(const struct top_row *row, enum top_sort sort) {
  switch (sort) {
    case SORT_LIVE: return row->brief.live;
    case SORT_IDLE: return row->brief.idle;
    case SORT_STALLS: return row->brief.stalls;
    case SORT_HELD: return row->brief.held;
    default: return 0; /* as they come: by the number of the process */
  }
}

/* By insertion: they are few, and equal ones stay as they are. */
static void sort_rows(struct top_look *look, enum top_sort sort) {
  for (uint32_t i = 1; i < look->count; i++) {
    struct top_row row = look->rows[i];
    uint32_t at = i;
    for (; at > 0 && weight(&look->rows[at - 1], sort) < weight(&row, sort); at--) look->rows[at] = look->rows[at - 1];
    look->rows[at] = row;
  }
}

/* ---- once, or as JSON ---- */

static int print_frame(struct watch *watch, const struct request *request) {
  struct gap__text frame = {0};
  struct top_view view = {.sort = request->sort, .process = (long)request->process};
  sort_rows(&watch->look, request->sort);
  top_frame(&watch->look, &view, &frame);
  screen_print(gap__text_str(&frame));
  int rc = frame.failed ? GAP_ENOMETA : 0;
  gap__text_free(&frame);
  return rc;
}

static int print_json(const struct watch *watch) {
  char *text = gap__sheets_json(&watch->sheets, watch->nvml);
  if (text) puts(text);
  free(text);
  return text ? 0 : GAP_ENOMETA;
}

static void pause_for(double seconds) {
  time_t whole = (time_t)seconds;
  nanosleep(&(struct timespec){whole, (long)((seconds - (double)whole) * 1e9)}, NULL);
}

static int fail(const struct request *request, int rc) {
  if (!request->folder) return usage_error("top", "%s", gap_strerror(rc));
  return usage_error("top", "--folder %s: %s", request->folder, sheets_folder_fault(rc));
}

static int print_looks(struct watch *watch, const struct request *request) {
  for (;;) {
    int rc = look_again(watch, request);
    if (!rc) rc = request->json ? print_json(watch) : print_frame(watch, request);
    if (rc) return fail(request, rc);
    if (request->once) return watch->look.count ? EXIT_YES : EXIT_NO;
    if (fflush(stdout)) return EXIT_YES; /* whoever read has gone */
    pause_for(request->interval_s);
  }
}

/* ---- on a terminal ---- */

static void choose(struct top_view *view, const struct top_look *look, int by) {
  if (by < 0 && view->chosen > 0) view->chosen--;
  if (by > 0) view->chosen++;
  if (view->chosen >= look->count) view->chosen = look->count ? look->count - 1 : 0;
}

/* False: that was the last one. */
static bool obey(int key, struct top_view *view, const struct top_look *look) {
  switch (key) {
    case 'q':
    case 'Q':
    case KEY_END: return false;
    case 's': view->sort = (view->sort + 1) % SORT_COUNT; break;
    case 'p':
    case ' ': view->paused = !view->paused; break;
    case '?':
    case 'h': view->help = !view->help; break;
    case 27: view->help = false; break;
    case 'k':
    case KEY_UP: choose(view, look, -1); break;
    case 'j':
    case KEY_DOWN: choose(view, look, 1); break;
    default: break;
  }
  return true;
}

/* Who was chosen stays so when the order changes; one that is gone leaves its row to the next. */
struct favourite {
  int64_t process; /* 0: none yet */
  uint32_t index;
};

static void find_again(struct top_view *view, const struct top_look *look, const struct favourite *favourite) {
  for (uint32_t i = 0; i < look->count; i++)
    if (look->rows[i].view->process == favourite->process && look->rows[i].index == favourite->index) view->chosen = i;
}

static void remember_chosen(const struct top_view *view, const struct top_look *look, struct favourite *out) {
  if (view->chosen < look->count)
    *out = (struct favourite){look->rows[view->chosen].view->process, look->rows[view->chosen].index};
}

static void show(struct watch *watch, struct top_view *view, struct favourite *favourite, bool colour) {
  struct gap__text frame = {0};
  sort_rows(&watch->look, view->sort);
  find_again(view, &watch->look, favourite);
  choose(view, &watch->look, 0);
  view->screen_rows = screen_rows();
  top_frame(&watch->look, view, &frame);
  screen_draw(gap__text_str(&frame), colour);
  gap__text_free(&frame);
}

/* What is left of the interval; a key does not make it longer. */
static int left_ms(uint64_t due_ns) {
  uint64_t now = gap__sheet_now_ns();
  return due_ns > now ? (int)((due_ns - now) / 1000000) + 1 : 0;
}

static int watch_on_screen(struct watch *watch, const struct request *request) {
  struct top_view view = {
      .sort = request->sort, .is_live = true, .interval_s = request->interval_s, .process = (long)request->process};
  const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
  bool colour = !(no_colour && *no_colour) && !(terminal && strcmp(terminal, "dumb") == 0);
  struct favourite favourite = {0};
  uint64_t due_ns = 0;
  int rc = 0;
  for (bool goes_on = true; goes_on;) {
    bool due = !watch->look.rows || (!view.paused && left_ms(due_ns) == 0);
    if (due) {
      rc = look_again(watch, request);
      due_ns = gap__sheet_now_ns() + (uint64_t)(request->interval_s * 1e9);
    }
    if (!rc) show(watch, &view, &favourite, colour);
    int patience = view.paused ? 1000 : left_ms(due_ns);
    if (rc) break; /* what was chosen went with the look */
    goes_on = obey(screen_wait(patience), &view, &watch->look);
    remember_chosen(&view, &watch->look, &favourite);
  }
  return rc;
}

static int run_on_screen(struct watch *watch, const struct request *request) {
  if (!screen_begin()) return print_looks(watch, request);
  int rc = watch_on_screen(watch, request);
  screen_end();
  return rc ? fail(request, rc) : EXIT_YES;
}

/* ---- the whole ---- */

static int read_request(int argc, char **argv, struct request *request) {
  *request = (struct request){.interval_s = 2};
  int rc = read_options(argc, argv, "1jf:i:s:", options, take_option, request);
  if (!rc && argc - optind > 1) rc = usage_error("top", "one process, or none for all, is wanted");
  if (!rc && optind < argc) rc = parse_number("top", "PID", argv[optind], 1, INT32_MAX, &request->process);
  return rc;
}

static int run(int argc, char **argv) {
  struct request request;
  struct watch watch = {0};
  int rc = read_request(argc, argv, &request);
  if (rc) return rc;
  if (!(watch.nvml = gap__nvml_open())) return usage_error("top", "the host has no memory");
  bool plain = request.once || request.json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO);
  rc = plain ? print_looks(&watch, &request) : run_on_screen(&watch, &request);
  close_watch(&watch);
  return rc;
}

const struct command command_top = {
    .name = "top",
    .summary = "what running processes hold, live: cards, streams and pools, rungs, refusals",
    .help =
        "usage: gapless top [PID] [OPTIONS]\n\n"
        "Shows what each running gapless process of this user (root: of all users) holds: live, idle and held bytes, "
        "the\n"
        "cap, the largest request that could be served, stalls and refusals; of the chosen one also its streams and\n"
        "pools, the rungs that served, and why a request was refused last.  PID: that process only.  Cards are shown "
        "as\n"
        "NVIDIA's management library sees them, where it is.  The processes are not asked: they publish their figures\n"
        "twice a second (configuration key `serve`), so one that hangs or is stopped is seen too.\n\n"
        "  -1, --once              print once and end\n"
        "  -j, --json              one JSON object a look, every figure of it; with --once one object\n"
        "  -f, --folder DIR        only what is published in this folder, that of a container for instance\n"
        "  -i, --interval SECONDS  between two looks, 0.1 to 3600; 2\n"
        "  -s, --sort KEY          held, live, idle, stalls or process; held\n\n"
        "Keys: q quit, s sort, p pause, up and down choose, ? help.  Where standard input or output is no terminal the "
        "same is\n"
        "printed at each interval.  NO_COLOR in the environment leaves colours out.\n\n"
        "exit codes: 0 shown; 1 nobody publishes anything (with --once); 2 wrong usage\n",
    .options = options,
    .run = run,
};
