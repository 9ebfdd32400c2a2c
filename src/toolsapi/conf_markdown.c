/* docs/configuration.md: the hand-written part here, the tables from options.def. */
#include <string.h>

#include "conf/table.h"
#include "toolsapi/conf_view.h"

static const char intro[] =
    "# Configuration\n"
    "\n"
    "<!-- Made by `gapless conf --markdown`; change src/conf/options.def or src/toolsapi/conf_markdown.c instead. -->\n"
    "\n"
    "gapless reads PyTorch's own variables, with every option of torch 2.11, and one of its own with the same\n"
    "grammar:\n"
    "\n"
    "```\n"
    "export PYTORCH_CUDA_ALLOC_CONF=backend:gapless\n"
    "export GAPLESS_CONF=max_memory:90%,reserve:512M\n"
    "```\n"
    "\n"
    "`gapless conf 'STRING'` shows what a string means, `gapless conf` what the environment means: each value\n"
    "in force, who set it, and what is wrong with it.\n"
    "\n"
    "## Where values come from\n"
    "\n"
    "Weakest first:\n"
    "\n"
    "1. the defaults below;\n"
    "2. one of `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF`, `PYTORCH_ALLOC_CONF`: the first that is\n"
    "   set, in this order and with its whole string; a warning names the others;\n"
    "3. `GAPLESS_CONF`, which wins key by key;\n"
    "4. strings given at run time, which win over all.\n"
    "\n"
    "A string replaces what the same source said before: a key that it no longer names falls back to the\n"
    "weaker sources. The empty string resets its source. Keys marked *start* below are kept from the start of\n"
    "the program on; a later string that wants another value gets a warning.\n"
    "\n"
    "## Grammar\n"
    "\n"
    "`key:value,key:[a:b,c:d],word` with white space anywhere (it is dropped, except inside paths). A comma at\n"
    "the end is fine.\n"
    "\n"
    "- **Keys** are written exactly as below. `key=value` is read as `key:value`, with a note.\n"
    "- **Booleans**: `True`, `1`, `on`, `yes` and `False`, `0`, `off`, `no`, in any case.\n"
    "- **Sizes**: a number with `K`, `M`, `G`, `T`, also as `KB` or `KiB` and so on; all are powers of 1024. A\n"
    "  plain number is bytes, for keys that end in `_mb` MiB. `max_memory` and `reserve` also take a share of\n"
    "  the card: `90%`.\n"
    "- **Numbers** are never wrapped or cut: `-1`, `1.5` for a whole number, and `128x` are refused.\n"
    "- **The strategies' words** `gapless`, `caching_allocator`, `pooled`, `heuristic`, bare or as `pooled:1`\n"
    "  or `backend:pooled`, choose gapless with that strategy. Where a string chooses two, the last wins, with\n"
    "  a warning.\n"
    "\n"
    "## What is said about a string\n"
    "\n"
    "- An **unknown key** gets one warning that quotes it and names the nearest key; it is ignored. With\n"
    "  `strict:True` it is an error.\n"
    "- A **bad value** is an error that quotes it, with the range and the unit. Nothing of the string is\n"
    "  applied.\n"
    "- **Contradictions** are refused where nothing sensible could be done (a limit below\n"
    "  `large_segment_size_mb`, a `reserve` that leaves nothing) and warned of elsewhere:\n"
    "  `backend:cudaMallocAsync` beside settings that it ignores, `max_memory` beside\n"
    "  `per_process_memory_fraction`, `garbage_collection_threshold` without a limit, `overflow` beside\n"
    "  `tiers` that do not name `host`, a disk or servers beside less than 32 MiB of `host`.\n"
    "\n"
    "`PYTORCH_NO_CUDA_MEMORY_CACHING` asks for caching to be off, except with the values `0`, `False`, `off` and\n"
    "`no` and an empty one; torch itself takes any value for *off*.\n";

static const char roundup[] =
    "\n"
    "### The list form of `roundup_power2_divisions`\n"
    "\n"
    "`[256:1,512:2,1024:4,>:8]`: requests from 512 MiB to below 1 GiB are rounded up to halves of the step\n"
    "between the two powers of two, those from 1 GiB to quarters, larger ones to eighths. Boundaries are\n"
    "powers of two in MiB. The first one stands for all sizes below it too, a later one for its own power of\n"
    "two only, and `>` for all sizes above the last; what is not named is rounded to 512 bytes. There are 16\n"
    "steps, from 1 MiB (and all below 2 MiB) to 32 GiB (and all above).\n";

/* A | inside a cell would end it. */
static void print_cell(const char *text, FILE *out) {
  for (; *text; text++) {
    if (*text == '|') fputc('\\', out);
    fputc(*text, out);
  }
}

/* "True or False", "a power of two from 1 to 128 (threads)" */
static void print_range(const struct gap__conf_option *about, FILE *out) {
  print_cell(about->range, out);
  if (*about->unit) fprintf(out, " (%s)", about->unit);
}

static void print_row(const struct gap__conf_entry *entry, FILE *out) {
  const struct gap__conf_option *about = &entry->about;
  fprintf(out, "| `%s`", about->key);
  if (*entry->alias) fprintf(out, ", `%s`", entry->alias);
  fprintf(out, " | ");
  print_range(about, out);
  fprintf(out, " | %s | %s | ", about->default_text, about->mutable_ ? "at once" : "start");
  print_cell(about->help, out);
  fprintf(out, "%s |\n", gap__conf_waits(about->key) ? " *No effect in this version.*" : "");
}

static void print_table(const char *title, bool torch, FILE *out) {
  fprintf(out, "\n## %s\n\n| key | value | default | takes effect | meaning |\n| --- | --- | --- | --- | --- |\n",
          title);
  for (uint32_t i = 0; i < gap__conf_option_count(); i++)
    if (gap__conf_table[i].about.torch == torch) print_row(&gap__conf_table[i], out);
}

void gap__conf_print_markdown(FILE *out) {
  fputs(intro, out);
  print_table("Keys of torch 2.11", true, out);
  fputs(roundup, out);
  fprintf(out, "\nKnown by name, and ignored with a warning, because torch has them only after 2.11:");
  for (uint32_t i = 0; gap__conf_newer_at(i); i++) fprintf(out, "%s `%s`", i ? "," : "", gap__conf_newer_at(i));
  fprintf(out, ".\n");
  print_table("Keys of gapless", false, out);
}
