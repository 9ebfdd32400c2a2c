#include "trace/decode.h"

#include <limits.h>
#include <lzma.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "gapless/gapless.h"

#define XZ_MEMORY_MAX ((uint64_t)256 << 20)

enum gap__encoding gap__encoding_guess(const unsigned char *head, size_t bytes) {
  if (bytes >= 2 && memcmp(head, "\x1f\x8b", 2) == 0) return GAP__ENC_GZIP;
  if (bytes >= 6 && memcmp(head,
                           "\xfd"
                           "7zXZ\0",
                           6) == 0)
    return GAP__ENC_XZ;
  if (bytes >= 4 && memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0) return GAP__ENC_ZSTD;
  return GAP__ENC_PLAIN;
}

const char *gap__encoding_name(enum gap__encoding encoding) {
  static const char *const names[] = {"plain", "gzip", "xz", "zstd"};
  return names[encoding];
}

static int plain_step(struct gap__decode_step *step) {
  size_t in = (size_t)(step->in_end - step->in), out = (size_t)(step->out_end - step->out);
  size_t bytes = in < out ? in : out;
  memcpy(step->out, step->in, bytes);
  step->in += bytes;
  step->out += bytes;
  step->finished = step->in_is_last && step->in == step->in_end;
  return 0;
}

/* Ends of input, the same for the three: complete only between members. */
static int end_or_more(struct gap__decoder *decoder, struct gap__decode_step *step, bool out_is_full) {
  if (!step->in_is_last || step->in != step->in_end || out_is_full) return 0;
  step->finished = decoder->between_frames;
  return step->finished ? 0 : GAP_EFORMAT;
}

static unsigned clamp_uint(ptrdiff_t bytes) { return bytes > INT_MAX ? INT_MAX : (unsigned)bytes; }

static int gzip_step(struct gap__decoder *decoder, struct gap__decode_step *step) {
  z_stream *z = decoder->state;
  if (decoder->between_frames && step->in < step->in_end && inflateReset(z) != Z_OK) return GAP_ENOMETA;
  z->next_in = (unsigned char *)(uintptr_t)step->in; /* zlib's field lacks the const; it does not write there */
  z->avail_in = clamp_uint(step->in_end - step->in);
  z->next_out = step->out;
  z->avail_out = clamp_uint(step->out_end - step->out);
  int rc = z->avail_in || !decoder->between_frames ? inflate(z, Z_NO_FLUSH) : Z_BUF_ERROR;
  if (rc == Z_MEM_ERROR) return GAP_ENOMETA;
  if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) return GAP_EFORMAT;
  if (rc != Z_BUF_ERROR) decoder->between_frames = rc == Z_STREAM_END;
  step->in = z->next_in;
  step->out = z->next_out;
  return end_or_more(decoder, step, rc != Z_STREAM_END && step->out == step->out_end);
}

static int xz_step(struct gap__decoder *decoder, struct gap__decode_step *step) {
  lzma_stream *xz = decoder->state;
  xz->next_in = step->in;
  xz->avail_in = (size_t)(step->in_end - step->in);
  xz->next_out = step->out;
  xz->avail_out = (size_t)(step->out_end - step->out);
  lzma_ret rc = lzma_code(xz, step->in_is_last ? LZMA_FINISH : LZMA_RUN);
  step->in = xz->next_in;
  step->out = xz->next_out;
  step->finished = rc == LZMA_STREAM_END;
  if (rc == LZMA_MEM_ERROR) return GAP_ENOMETA;
  if (rc == LZMA_MEMLIMIT_ERROR) return GAP_ELIMIT;
  return rc == LZMA_OK || rc == LZMA_STREAM_END ? 0 : GAP_EFORMAT;
}

static int zstd_step(struct gap__decoder *decoder, struct gap__decode_step *step) {
  ZSTD_inBuffer in = {step->in, (size_t)(step->in_end - step->in), 0};
  ZSTD_outBuffer out = {step->out, (size_t)(step->out_end - step->out), 0};
  bool idle = in.size == 0 && decoder->between_frames;
  size_t rc = idle ? 0 : ZSTD_decompressStream(decoder->state, &out, &in);
  if (ZSTD_isError(rc)) return GAP_EFORMAT;
  step->in += in.pos;
  step->out += out.pos;
  decoder->between_frames = rc == 0;
  return end_or_more(decoder, step, rc != 0 && out.pos == out.size);
}

static int gzip_init(struct gap__decoder *decoder) {
  decoder->state = calloc(1, sizeof(z_stream));
  return decoder->state && inflateInit2(decoder->state, 16 + MAX_WBITS) == Z_OK ? 0 : GAP_ENOMETA;
}

static int xz_init(struct gap__decoder *decoder) {
  static const lzma_stream fresh = LZMA_STREAM_INIT;
  lzma_stream *xz = malloc(sizeof *xz);
  if (!xz) return GAP_ENOMETA;
  *xz = fresh;
  decoder->state = xz;
  return lzma_stream_decoder(xz, XZ_MEMORY_MAX, LZMA_CONCATENATED) == LZMA_OK ? 0 : GAP_ENOMETA;
}

int gap__decoder_init(struct gap__decoder *decoder, enum gap__encoding encoding) {
  *decoder = (struct gap__decoder){.encoding = encoding};
  switch (encoding) {
    case GAP__ENC_GZIP: return gzip_init(decoder);
    case GAP__ENC_XZ: return xz_init(decoder);
    case GAP__ENC_ZSTD: return (decoder->state = ZSTD_createDStream()) ? 0 : GAP_ENOMETA;
    case GAP__ENC_PLAIN: break;
  }
  return 0;
}

void gap__decoder_destroy(struct gap__decoder *decoder) {
  if (!decoder->state) return;
  if (decoder->encoding == GAP__ENC_ZSTD) {
    ZSTD_freeDStream(decoder->state);
  } else {
    if (decoder->encoding == GAP__ENC_GZIP) inflateEnd(decoder->state);
    if (decoder->encoding == GAP__ENC_XZ) lzma_end(decoder->state);
    free(decoder->state);
  }
  decoder->state = NULL;
}

int gap__decoder_step(struct gap__decoder *decoder, struct gap__decode_step *step) {
  switch (decoder->encoding) {
    case GAP__ENC_GZIP: return gzip_step(decoder, step);
    case GAP__ENC_XZ: return xz_step(decoder, step);
    case GAP__ENC_ZSTD: return zstd_step(decoder, step);
    case GAP__ENC_PLAIN: break;
  }
  return plain_step(step);
}
