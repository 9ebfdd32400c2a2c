/* Traces of requests, in the forms that gapless/kv_replay.h lists. */
#ifndef GAP_SERVING_REQUESTS_H
#define GAP_SERVING_REQUESTS_H

#include <stdint.h>

#define GAP__BLOCK_TOKENS 512u /* of a block with an id */
#define GAP__REQUEST_TOKENS_MOST ((uint32_t)1 << 24)

struct gap__request_line {
  uint64_t arrival_us;
  uint32_t input, output;            /* tokens, 1 or more; 0 or more */
  uint32_t block_first, block_count; /* ids of the prompt's blocks; none: the prompt is like no other */
};

struct gap__requests {
  struct gap__request_line *at;
  uint64_t count, room;
  uint64_t *blocks;
  uint64_t block_count, block_room;
  uint32_t longest; /* input and output, tokens */
};

/* `most` of them, 0: all.  0, GAP_EIO, GAP_EFORMAT, GAP_ELIMIT, GAP_ENOMETA with the reason in *message, malloc'ed. */
int gap__requests_read(const char *path, uint64_t most, struct gap__requests *out, char **message);
/* What was opened; closes it. */
struct gap__input;
int gap__requests_read_opened(struct gap__input *, uint64_t most, struct gap__requests *out, char **message);
void gap__requests_free(struct gap__requests *);

/* The token at `position` of request `index`: of its prompt, or generated. */
int32_t gap__request_token(const struct gap__requests *, uint64_t index, uint32_t position);

#endif
