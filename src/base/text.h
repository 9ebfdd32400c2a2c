/* Text for people: sizes, durations and counts, and a small growing string.
 *
 * Nothing here depends on the program's locale: a size reads "1.69 GiB" whatever LC_NUMERIC says. */
#ifndef GAP_TEXT_H
#define GAP_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Enough for every gap__text_size/duration/thousands result. */
#define GAP__TEXT_BYTES 32

/* Each writes into `out` and returns it, so that a call can be an argument of printf:
 *   char size[GAP__TEXT_BYTES];
 *   printf("%s\n", gap__text_size(bytes, size)); */
char *gap__text_size(uint64_t bytes, char out[GAP__TEXT_BYTES]); /* "512 B", "20 MiB", "1.69 GiB" */
char *gap__text_duration(uint64_t ns,
                         char out[GAP__TEXT_BYTES]); /* "870 ns", "1.50 us", "20 ms", "3.60 s", "12 min 05 s" */
char *gap__text_thousands(uint64_t number, char out[GAP__TEXT_BYTES]); /* "1,234,567" */

/* Reads a size that fills `text[0..length)` exactly, without spaces: digits, at most one point, then nothing or B (bytes),
 * or K M G T, KB MB GB TB, KiB MiB GiB TiB in any case, all powers of 1024.  A fraction is rounded down to a whole byte.
 * GAP_EVALUE when it is no size, GAP_ELIMIT when it does not fit into 64 bits; *out is then untouched. */
int gap__text_parse_size(const char *text, size_t length, uint64_t *out);
/* Reads a whole decimal number that fills the text exactly.  GAP_EVALUE or GAP_ELIMIT as above. */
int gap__text_parse_u64(const char *text, size_t length, uint64_t *out);
/* Reads a decimal number such as "0.5", "12" or "1e-3", whatever the locale.  GAP_EVALUE when it is none. */
int gap__text_parse_real(const char *text, size_t length, double *out);

/* A growing string; zero-initialise it.  When host memory is exhausted it stays as it is and `failed` is set: check once,
 * at the end. */
struct gap__text {
  char *bytes;   /* NUL-terminated; NULL while nothing was added */
  size_t length; /* without the NUL */
  size_t capacity;
  bool failed;
};

void gap__text_free(struct gap__text *);
void gap__text_clear(struct gap__text *); /* empties it, keeps the memory */
void gap__text_add(struct gap__text *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gap__text_addv(struct gap__text *, const char *format, va_list) __attribute__((format(printf, 2, 0)));
void gap__text_add_bytes(struct gap__text *, const char *bytes, size_t length);
void gap__text_add_char(struct gap__text *, char);
void gap__text_make_plain(char *text); /* question marks for what would steer a terminal, C0 and C1 controls */
void gap__text_add_utf8(struct gap__text *, const char *bytes, const char *instead); /* of each byte that is no UTF-8 */
int gap__text_fit(const char *text,
                  int most); /* bytes of it, `most` at most, that end behind a character: for "%.*s" */
const char *gap__text_str(const struct gap__text *); /* never NULL: "" when empty */
/* Hands the string over (free() it) and leaves the buffer empty; NULL when host memory was exhausted. */
char *gap__text_take(struct gap__text *);

#endif
