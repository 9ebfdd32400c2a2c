/* What gapless processes on one card say to each other: a request and an answer, one packet each, as text.
 *
 *     gapless give 1 UUID BYTES         give back so much idle memory of the card UUID (32 hexadecimal digits)
 *     gapless gave 1 BYTES KEPT MS HELD it has given BYTES back; KEPT more are idle but were used of late, and may be had in MS milliseconds
 *                                       if they are not used again; it holds HELD in all
 *
 * each with a newline.  1 is the version: who does not know it hangs up, which says that nothing was given.  Nothing that is said is
 * believed where it matters: who asks looks at what the driver has. */
#ifndef GAP_API_TALK_H
#define GAP_API_TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/heap.h"

enum { GAP__TALK_UUID_BYTES = 33, GAP__TALK_MOST = 160 };

/* As digits; "" for one that is all 0. */
void gap__talk_uuid(const unsigned char uuid[16], char out[GAP__TALK_UUID_BYTES]);

/* The length. */
size_t gap__talk_write_request(char out[GAP__TALK_MOST], const char *uuid, uint64_t bytes);
size_t gap__talk_write_answer(char out[GAP__TALK_MOST], const struct gap__given *);
/* False: it is none, or of another version, or of another card. */
bool gap__talk_read_request(const char *text, size_t length, const char *uuid, uint64_t *bytes);
bool gap__talk_read_answer(const char *text, size_t length, struct gap__given *);

#endif
