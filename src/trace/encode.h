/* Compression of a stream in steps: the other side of decode.h. */
#ifndef GAP_TRACE_ENCODE_H
#define GAP_TRACE_ENCODE_H

#include "trace/decode.h"

/* NULL: out of memory.  Not for GAP__ENC_PLAIN. */
void *gap__encoder_new(enum gap__encoding);
void gap__encoder_free(enum gap__encoding, void *encoder);
/* Consumes and produces what it can; with `in_is_last` the stream is brought to its end: `finished`.  0 or GAP_ENOMETA. */
int gap__encoder_step(enum gap__encoding, void *encoder, struct gap__decode_step *);

#endif
