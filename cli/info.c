/* gapless info: what this program is and what it can simulate. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "cli.h"
#include "gapless/tools.h"
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

static int run(int argc, char **argv) {
  if (argc > 1) return usage_error("info", "unexpected argument \"%s\"", argv[1]);
  printf("gapless %s\n\nbackends: sim (a simulated card), host (real bytes in host memory), cuda (NVIDIA cards)\n",
         gap_version());
  fputs("policies of replay:", stdout);
  for (int i = 0; i < GAP_POLICY_COUNT; i++) printf(" %s", gap_policy_name((enum gap_policy)i));
  fputs("\n\ncards that replay --card knows:\n", stdout);
  print_cards();
  return EXIT_YES;
}

const struct command command_info = {
    .name = "info",
    .summary = "version, backends, and the cards that can be simulated",
    .help = "usage: gapless info\n\nPrints the version, the backends that are built in, and the simulated cards.\n",
    .run = run,
};
