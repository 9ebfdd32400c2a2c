/* gapless metrics: what running processes hold, in the text format of Prometheus; once, or to whoever asks at a socket of this machine. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "http.h"
#include "options.h"
#include "toolsapi/sheets_say.h"
#include "top_frame.h"

struct request {
  uint64_t process; /* 0: all */
  const char *listen, *folder;
};

static const struct option options[] = {
    {"listen", required_argument, NULL, 'l'}, {"folder", required_argument, NULL, 'f'}, {NULL, 0, NULL, 0}};

static int take_option(void *request, int option, const char *value) {
  if (option == 'l') ((struct request *)request)->listen = value;
  else ((struct request *)request)->folder = value;
  return 0;
}

struct page {
  const char *folder; /* NULL: the usual ones */
  long process;
  struct gap__nvml *nvml;
};

static void write_page(void *arg, struct gap__text *out) {
  const struct page *page = arg;
  struct gap__sheets sheets;
  if (gap__sheets_read(page->folder, page->process, &sheets)) return; /* the folder has gone, or the host's memory */
  gap__nvml_look(page->nvml);
  gap__sheets_metrics(&sheets, page->nvml, out);
  gap__sheets_free(&sheets);
}

static int print_once(struct page *page) {
  struct gap__text text = {0};
  write_page(page, &text);
  fputs(gap__text_str(&text), stdout);
  bool failed = text.failed || !text.length;
  gap__text_free(&text);
  return failed ? usage_error("metrics", "the host has no memory") : EXIT_YES;
}

static int serve(struct page *page, const char *address) {
  struct http_place place;
  char why[200];
  if (http_open(address, &place, why, sizeof why)) return usage_error("metrics", "--listen %s: %s", address, why);
  if (place.is_tcp && strncmp(address, "[", 1) == 0) printf("http://[::1]:%u/metrics\n", place.port);
  else if (place.is_tcp)
    printf("http://%.*s:%u/metrics\n", (int)(strrchr(address, ':') - address), address, place.port);
  else printf("unix:%s, /metrics\n", place.path);
  fflush(stdout);
  return http_serve(&place, write_page, page) ? usage_error("metrics", "%s", strerror(errno)) : EXIT_YES;
}

static int check_folder(const struct page *page) {
  struct gap__sheets sheets;
  int rc = page->folder ? gap__sheets_read(page->folder, page->process, &sheets) : 0;
  if (!rc && page->folder) gap__sheets_free(&sheets);
  return rc ? usage_error("metrics", "--folder %s: %s", page->folder, sheets_folder_fault(rc)) : 0;
}

static int run(int argc, char **argv) {
  struct request request = {0};
  int rc = read_options(argc, argv, "l:f:", options, take_option, &request);
  if (!rc && argc - optind > 1) rc = usage_error("metrics", "one process, or none for all, is wanted");
  if (!rc && optind < argc) rc = parse_number("metrics", "PID", argv[optind], 1, INT32_MAX, &request.process);
  if (rc) return rc;
  struct page page = {request.folder, (long)request.process, gap__nvml_open()};
  if (!page.nvml) return usage_error("metrics", "the host has no memory");
  rc = check_folder(&page);
  if (!rc) rc = request.listen ? serve(&page, request.listen) : print_once(&page);
  gap__nvml_close(page.nvml);
  return rc;
}

const struct command command_metrics = {
    .name = "metrics",
    .summary = "the figures of running processes for Prometheus: once, or at a socket of this machine",
    .help =
        "usage: gapless metrics [PID] [--listen ADDRESS]\n\n"
        "Prints what each running gapless process of this user (root: of all users) holds, in the text format of\n"
        "Prometheus; PID: of that one only.  The processes are not asked: they publish their figures twice a second\n"
        "(configuration key `serve`).  Cards are told as NVIDIA's management library sees them, where it is.\n\n"
        "  -l, --listen ADDRESS  answer GET /metrics until the command is ended, instead of printing once:\n"
        "                        unix:/PATH (a socket for this user alone), 127.0.0.1:PORT, localhost:PORT or\n"
        "                        [::1]:PORT; port 0 takes a free one.  The address is printed.  Other machines are\n"
        "                        not served.\n"
        "  -f, --folder DIR      only what is published in this folder, that of a container for instance\n\n"
        "exit codes: 0 printed, or ended by a signal; 2 wrong usage, or nobody can listen there\n",
    .options = options,
    .run = run,
};
