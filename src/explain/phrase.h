/* Numbers inside sentences: each macro is a string that lives to the end of the block it is used in. */
#ifndef GAP_EXPLAIN_PHRASE_H
#define GAP_EXPLAIN_PHRASE_H

#include "base/text.h"

#define GAP__SIZE(bytes) gap__text_size((bytes), (char[GAP__TEXT_BYTES]){0})
#define GAP__COUNT(number) gap__text_thousands((number), (char[GAP__TEXT_BYTES]){0})
#define GAP__LONG(us) gap__text_duration((uint64_t)(us)*1000, (char[GAP__TEXT_BYTES]){0})
#define GAP__PART(bytes) gap__phrase_part((bytes), (char[GAP__TEXT_BYTES]){0})
#define GAP__PERCENT(part, whole) gap__phrase_percent((part), (whole), (char[GAP__TEXT_BYTES]){0})
#define GAP__PLURAL(count) ((count) == 1 ? "" : "s")

/* As gap__text_size, to three decimals from 1 GiB on: parts that are to add up. */
char *gap__phrase_part(uint64_t bytes, char out[GAP__TEXT_BYTES]);
/* "71 %", "0.4 %" */
char *gap__phrase_percent(uint64_t part, uint64_t whole, char out[GAP__TEXT_BYTES]);

/* Appends a paragraph to a line that has `column` characters, broken between words at `columns` (0: nowhere); every further line is
 * indented. */
void gap__phrase_paragraph(struct gap__text *, const char *text, unsigned columns, unsigned indent, size_t column);

#endif
