/* The environment: one of torch's variables, GAPLESS_CONF, and torch's switch that turns caching off. */
#include <string.h>

#include "conf/report.h"
#include "conf/set.h"
#include "conf/values.h"
#include "gapless/gapless.h"

typedef const char *getter(const char *name);

/* torch 2.11's order; the first that is set wins with its whole string, even an empty one. */
static const char *const torch_names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
#define TORCH_NAMES (sizeof torch_names / sizeof *torch_names)

static const char *find_torch(getter *get, const char **string) {
  for (unsigned i = 0; i < TORCH_NAMES; i++)
    if ((*string = get(torch_names[i]))) return torch_names[i];
  *string = "";
  return torch_names[0];
}

static void note_hidden(getter *get, const char *winner, struct gap__conf_report *report) {
  for (unsigned i = TORCH_NAMES; i-- > 0 && torch_names[i] != winner;) {
    const char *string = get(torch_names[i]);
    if (string && *string)
      gap__conf_say(report, GAP__CONF_WARNING, "%s is set too, and not read: %s wins whole", torch_names[i], winner);
  }
}

/* torch takes any value, 0 too, for "off". */
static bool read_no_caching(getter *get, struct gap__conf_report *report) {
  static const char *const names[] = {"PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"};
  bool off = false;
  for (unsigned i = 0; i < 2; i++) {
    const char *value = get(names[i]);
    bool meant = true;
    if (!value) continue;
    bool harmless = !*value || (gap__conf_read_bool(value, &meant) && !meant);
    if (harmless)
      gap__conf_say(report, GAP__CONF_NOTE,
                    "%s=%.20s is read as: caching stays on; torch itself switches it off at any value", names[i],
                    value);
    else gap__conf_say(report, GAP__CONF_NOTE, "%s is set: caching is asked to be off", names[i]);
    off |= !harmless;
  }
  return off;
}

int gap__conf_apply_env(struct gap__conf_set *set, const char *(*get)(const char *name),
                        struct gap__conf_report *report) {
  const char *torch_string;
  const char *torch_name = find_torch(get, &torch_string);
  const char *own = get("GAPLESS_CONF");
  if (!own) own = "";
  note_hidden(get, torch_name, report);
  set->no_caching = read_no_caching(get, report);
  /* What contradicts across the two is said once, when both are known. */
  int result = gap__conf_load(set, GAP__CONF_PYTORCH_ENV, torch_name, torch_string, 0, *own != 0, report);
  uint64_t watched = *own ? set->layers[GAP__CONF_PYTORCH_ENV].named : 0;
  int second = gap__conf_load(set, GAP__CONF_GAPLESS_ENV, "GAPLESS_CONF", own, watched, false, report);
  return result ? result : second;
}
