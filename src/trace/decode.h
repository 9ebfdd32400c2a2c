/* Decompression of a stream in steps: plain, gzip, xz and zstd behind one call. */
#ifndef GAP_TRACE_DECODE_H
#define GAP_TRACE_DECODE_H

#include <stdbool.h>
#include <stddef.h>

enum gap__encoding { GAP__ENC_PLAIN, GAP__ENC_GZIP, GAP__ENC_XZ, GAP__ENC_ZSTD };

/* What a step may use and what it has used: `in` and `out` move forward. */
struct gap__decode_step {
  const unsigned char *in, *in_end;
  unsigned char *out, *out_end;
  bool in_is_last; /* nothing follows `in_end` */
  bool finished;   /* set when the data are complete and no input is left */
};

struct gap__decoder {
  enum gap__encoding encoding;
  bool between_frames; /* the last member or frame was complete: the stream may end here */
  void *state;
};

enum gap__encoding gap__encoding_guess(const unsigned char *head, size_t bytes); /* 6 bytes are enough */
const char *gap__encoding_name(enum gap__encoding);

int gap__decoder_init(struct gap__decoder *, enum gap__encoding); /* 0 or GAP_ENOMETA */
void gap__decoder_destroy(struct gap__decoder *);
/* Consumes and produces what it can.  Returns 0, GAP_EFORMAT (corrupt, or it ends early), GAP_ELIMIT (the decoder would
 * need more than 256 MiB) or GAP_ENOMETA. */
int gap__decoder_step(struct gap__decoder *, struct gap__decode_step *);

#endif
