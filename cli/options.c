#include "options.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "cli.h"
#include "nearest.h"

enum { NAMES_MAX = 64, DEVICE_MOST = 1023 };

/* -o or --out: an option that exists, so what getopt missed is its value. */
static bool names(const struct option *option, const char *given) {
  if (strncmp(given, "--", 2) == 0) return strcmp(given + 2, option->name) == 0;
  return given[0] == '-' && given[1] && !given[2] && option->val == given[1];
}

static int bad_option(const char *command, const struct option *options, const char *given) {
  const char *known[NAMES_MAX];
  int count = 0;
  for (const struct option *option = options; option->name && count < NAMES_MAX; option++) {
    if (names(option, given)) return usage_error(command, "%s needs a value", given);
    known[count++] = option->name;
  }
  const char *near = nearest_name(given + strspn(given, "-"), known, count);
  if (near) return usage_error(command, "there is no option \"%s\"; did you mean --%s?", given, near);
  return usage_error(command, "there is no option \"%s\"; see gapless %s --help", given, command);
}

int read_options(int argc, char **argv, const char *letters, const struct option *options, option_fn *take,
                 void *request) {
  optind = 1;
  opterr = 0;
  for (int option; (option = getopt_long(argc, argv, letters, options, NULL)) != -1;) {
    int rc = option == '?' ? bad_option(argv[0], options, argv[optind - 1]) : take(request, option, optarg);
    if (rc != 0) return rc;
  }
  return 0;
}

int parse_number(const char *command, const char *option, const char *text, uint64_t least, uint64_t most,
                 uint64_t *out) {
  if (gap__text_parse_u64(text, strlen(text), out) == 0 && *out >= least && *out <= most) return 0;
  return usage_error(command, "%s %s: a whole number from %" PRIu64 " to %" PRIu64 " is wanted", option, text, least,
                     most);
}

int parse_size(const char *command, const char *option, const char *text, uint64_t *out) {
  if (gap__text_parse_size(text, strlen(text), out) == 0 && *out > 0) return 0;
  return usage_error(command, "%s %s: a size above 0 is wanted (26GiB)", option, text);
}

int parse_percent(const char *command, const char *option, const char *text, double most, double *out) {
  size_t length = strlen(text);
  if (length && text[length - 1] == '%') length--;
  if (gap__text_parse_real(text, length, out) || *out < 0 || *out > most)
    return usage_error(command, "%s %s: a percentage from 0 to %g is wanted (1, 0.5)", option, text, most);
  *out /= 100;
  return 0;
}

int parse_device(const char *command, const char *text, int64_t *out) {
  uint64_t number = 0;
  int rc = parse_number(command, "--device", text, 0, DEVICE_MOST, &number);
  *out = (int64_t)number;
  return rc;
}
