/* gapless info: what this machine can do, what this program is and what it can simulate. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli.h"
#include "gapless/tools.h"
#include "machine.h"
#include "table.h"

static void print_cards(void) {
  struct table table;
  table_begin(&table, 4);
  table_cell(&table, "card");
  table_cell(&table, "like");
  table_cell(&table, "memory");
  table_cell(&table, "for a program");
  for (uint32_t i = 0; gap_card_name(i); i++) {
    uint64_t total = 0, usable = 0;
    char text[2][GAP__TEXT_BYTES];
    gap_card_parse(gap_card_name(i), &total, &usable);
    table_cell(&table, "%s", gap_card_name(i));
    table_cell(&table, "%s", gap_card_example(i));
    table_cell(&table, "%s", gap__text_size(total, text[0]));
    table_cell(&table, "%s", gap__text_size(usable, text[1]));
  }
  table_end(&table, 2, stdout);
}

static int print_json(void) {
  char *text = machine_json();
  if (text) puts(text);
  free(text);
  return text ? EXIT_YES : EXIT_USAGE;
}

static int run(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--json") == 0) return print_json();
  if (argc > 1) return usage_error("info", "unexpected argument \"%s\"", argv[1]);
  printf("gapless %s\n\n", gap_version());
  machine_print();
  puts("\nbackends: sim (a simulated card), host (real bytes in host memory), cuda (NVIDIA cards)");
  fputs("policies of replay:", stdout);
  for (int i = 0; i < GAP_POLICY_COUNT; i++) printf(" %s", gap_policy_name((enum gap_policy)i));
  fputs("\n\ncards that replay --card knows:\n", stdout);
  print_cards();
  return EXIT_YES;
}

const struct command command_info = {
    .name = "info",
    .summary = "what this machine can do; version, backends, cards that can be simulated",
    .help = "usage: gapless info [--json]\n\nPrints the version; what each card of this machine and its driver can do, "
            "found by trying it, and what is lost\n"
            "where they cannot; the backends that are built in; the simulated cards.\n\n"
            "  --json  one JSON object: version and machine\n",
    .run = run,
};
