#include "conf/values.h"

#include <string.h>

#include "conf/number.h"
#include "conf/tiers.h"
#include "gapless/gapless.h"

static bool same_word(const char *a, const char *b) {
  for (; *a && *b; a++, b++) {
    char lower = *a >= 'A' && *a <= 'Z' ? (char)(*a + ('a' - 'A')) : *a;
    if (lower != *b) return false;
  }
  return *a == *b;
}

bool gap__conf_read_bool(const char *value, bool *out) {
  static const char *const words[] = {"false", "true", "0", "1", "off", "on", "no", "yes"};
  for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
    if (!same_word(value, words[i])) continue;
    *out = i & 1;
    return true;
  }
  return false;
}

static int check_range(const struct gap__conf_entry *entry, double number, char *reason) {
  bool open = entry->rules & GAP__CONF_OPEN;
  if (number < entry->least || (open && number == entry->least)) return gap__conf_refuse(reason, "it is too small");
  if (number > entry->most || (open && number == entry->most)) return gap__conf_refuse(reason, "it is too large");
  return 0;
}

static int check_whole(const struct gap__conf_entry *entry, uint64_t number, char *reason) {
  int result = check_range(entry, (double)number, reason);
  if (result) return result;
  if (entry->rules & GAP__CONF_POWER && !gap__conf_is_power(number))
    return gap__conf_refuse(reason, "it is not a power of two");
  if (entry->rules & GAP__CONF_PAGES && number % GAP__CONF_PAGE)
    return gap__conf_refuse(reason, "it is not a multiple of 2 MiB");
  return 0;
}

static int read_bool(const char *value, bool *out, char *reason) {
  return gap__conf_read_bool(value, out) ? 0 : gap__conf_refuse(reason, "it is neither True nor False");
}

static int read_mib(const struct gap__conf_entry *entry, const char *value, uint64_t *out, char *reason) {
  if (!strcmp(value, "unlimited") && !strcmp(entry->about.default_text, "unlimited")) {
    *out = GAP__CONF_UNLIMITED;
    return 0;
  }
  uint64_t bytes;
  int result = gap__conf_read_size(value, GAP__CONF_MIB, &bytes, reason);
  if (result) return result;
  if (bytes % GAP__CONF_MIB) return gap__conf_refuse(reason, "it is not a whole number of MiB");
  if ((result = check_whole(entry, bytes, reason))) return result;
  *out = bytes;
  return 0;
}

static int read_size(const struct gap__conf_entry *entry, const char *value, uint64_t *out, char *reason) {
  uint64_t bytes;
  int result = gap__conf_read_size(value, 1, &bytes, reason);
  if (!result) result = check_whole(entry, bytes, reason);
  if (!result) *out = bytes;
  return result;
}

static int read_percent(const struct gap__conf_entry *entry, const char *value, struct gap__conf_amount *out,
                        char *reason) {
  char number[64];
  size_t length = strlen(value) - 1;
  if (length >= sizeof number) return gap__conf_refuse(reason, "it is not a number");
  memcpy(number, value, length);
  number[length] = 0;
  double percent;
  int result = gap__conf_read_real(number, &percent, reason);
  if (result) return result;
  if (percent < 0 || (percent == 0 && entry->least > 0)) return gap__conf_refuse(reason, "it is too small");
  if (percent > 100) return gap__conf_refuse(reason, "it is too large");
  out->bytes = 0;
  out->fraction = percent / 100;
  out->given = true;
  return 0;
}

static int read_amount(const struct gap__conf_entry *entry, const char *value, struct gap__conf_amount *out,
                       char *reason) {
  if (*value && value[strlen(value) - 1] == '%') return read_percent(entry, value, out, reason);
  int result = read_size(entry, value, &out->bytes, reason);
  if (result) return result;
  out->fraction = 0;
  out->given = true;
  return 0;
}

static int read_real(const struct gap__conf_entry *entry, const char *value, double *out, char *reason) {
  double number;
  int result = gap__conf_read_real(value, &number, reason);
  if (!result) result = check_range(entry, number, reason);
  if (!result) *out = number;
  return result;
}

static int read_whole(const struct gap__conf_entry *entry, const char *value, uint64_t *out, char *reason) {
  uint64_t number;
  int result = gap__conf_read_count(value, &number, reason);
  if (!result) result = check_whole(entry, number, reason);
  if (!result) *out = number;
  return result;
}

static int read_count(const struct gap__conf_entry *entry, const char *value, uint32_t *out, char *reason) {
  uint64_t number;
  int result = read_whole(entry, value, &number, reason);
  if (!result) *out = (uint32_t)number;
  return result;
}

static int read_word(const char *value, const char *const *words, int count, int *out, char *reason) {
  int index = gap__conf_find_word(value, words, count);
  if (index < 0) return gap__conf_refuse(reason, "it is not one of the words");
  *out = index;
  return 0;
}

static int read_strategy(const char *value, enum gap__strategy *out, char *reason) {
  int index = 0;
  int result = read_word(value, gap__conf_strategy_words, GAP__STRATEGY_COUNT, &index, reason);
  if (!result) *out = (enum gap__strategy)index;
  return result;
}

static int read_torch(const char *value, enum gap__torch *out, char *reason) {
  int index = 0;
  int result = read_word(value, gap__conf_torch_words, 2, &index, reason);
  if (!result) *out = (enum gap__torch)index;
  return result;
}

static int read_convert(const char *value, enum gap__convert *out, char *reason) {
  int index = 0;
  int result = read_word(value, gap__conf_convert_words, 3, &index, reason);
  if (!result) *out = (enum gap__convert)index;
  return result;
}

static int read_serve(const char *value, enum gap__serve *out, char *reason) {
  int index = 0;
  int result = read_word(value, gap__conf_serve_words, 3, &index, reason);
  if (!result) *out = (enum gap__serve)index;
  return result;
}

static int read_log(const char *value, int *out, char *reason) {
  if (value[0] >= '0' && value[0] <= '3' && !value[1]) {
    *out = value[0] - '0';
    return 0;
  }
  return read_word(value, gap__conf_log_words, 4, out, reason);
}

/* A strategy's word also chooses the strategy; the caller, who knows which keys the string names, sees to that. */
static int read_backend(const char *value, struct gap__conf *out, char *reason) {
  bool async = !strcmp(value, "cudaMallocAsync") || !strcmp(value, "hipMallocAsync");
  bool ours = gap__conf_find_word(value, gap__conf_strategy_words, GAP__STRATEGY_COUNT) >= 0;
  if (!async && !ours && strcmp(value, "native") != 0) return gap__conf_refuse(reason, "there is no such backend");
  out->backend_async = async;
  out->backend_gapless = ours;
  return 0;
}

static int read_overflow(const struct gap__conf_entry *entry, const char *value, struct gap__conf *out, char *reason) {
  uint64_t bytes = 0;
  bool on = true;
  if (!gap__conf_read_bool(value, &on)) {
    int result = read_size(entry, value, &bytes, reason);
    if (result) return result;
  }
  out->overflow = on;
  out->overflow_bytes = bytes;
  return 0;
}

static int read_text(const char *value, char *out, size_t bytes, char *reason) {
  size_t length = strlen(value);
  if (length >= bytes) return gap__conf_refuse(reason, "it is too long");
  memset(out, 0, bytes);
  memcpy(out, value, length);
  return 0;
}

static int read_tiers(const char *value, char *out, size_t bytes, char *reason) {
  struct gap__conf_tiers tiers;
  const char *wrong = gap__conf_tiers_read(value, &tiers);
  return wrong ? gap__conf_refuse(reason, "%s", wrong) : read_text(value, out, bytes, reason);
}

int gap__conf_read_value(const struct gap__conf_entry *entry, const char *value, struct gap__conf *out,
                         char reason[GAP__CONF_REASON_BYTES]) {
  void *member = gap__conf_member(entry, out);
  switch (entry->kind) {
    case GAP__CONF_KIND_BOOL: return read_bool(value, member, reason);
    case GAP__CONF_KIND_MIB: return read_mib(entry, value, member, reason);
    case GAP__CONF_KIND_SIZE: return read_size(entry, value, member, reason);
    case GAP__CONF_KIND_AMOUNT: return read_amount(entry, value, member, reason);
    case GAP__CONF_KIND_REAL: return read_real(entry, value, member, reason);
    case GAP__CONF_KIND_COUNT: return read_count(entry, value, member, reason);
    case GAP__CONF_KIND_MILLISECONDS: return read_whole(entry, value, member, reason);
    case GAP__CONF_KIND_BACKEND: return read_backend(value, out, reason);
    case GAP__CONF_KIND_STRATEGY: return read_strategy(value, member, reason);
    case GAP__CONF_KIND_TORCH: return read_torch(value, member, reason);
    case GAP__CONF_KIND_CONVERT: return read_convert(value, member, reason);
    case GAP__CONF_KIND_SERVE: return read_serve(value, member, reason);
    case GAP__CONF_KIND_LOG: return read_log(value, member, reason);
    case GAP__CONF_KIND_ROUNDUP: return gap__conf_read_roundup(entry, value, member, reason);
    case GAP__CONF_KIND_SIZES: return gap__conf_read_sizes(entry, value, out, reason);
    case GAP__CONF_KIND_OVERFLOW: return read_overflow(entry, value, out, reason);
    case GAP__CONF_KIND_TIERS: return read_tiers(value, member, entry->pieces[0].bytes, reason);
    case GAP__CONF_KIND_TEXT: return read_text(value, member, entry->pieces[0].bytes, reason);
  }
  return GAP_EVALUE;
}
