#include "trace/encode.h"

#include <lzma.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "gapless/gapless.h"

enum { GZIP_LEVEL = 6, XZ_LEVEL = 3, ZSTD_LEVEL = 9, GZIP_WINDOW = 15 + 16 };

static void *new_gzip(void) {
  z_stream *z = calloc(1, sizeof *z);
  if (z && deflateInit2(z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) == Z_OK) return z;
  free(z);
  return NULL;
}

static void *new_xz(void) {
  lzma_stream *stream = malloc(sizeof *stream);
  if (!stream) return NULL;
  *stream = (lzma_stream)LZMA_STREAM_INIT;
  if (lzma_easy_encoder(stream, XZ_LEVEL, LZMA_CHECK_CRC64) == LZMA_OK) return stream;
  free(stream);
  return NULL;
}

static void *new_zstd(void) {
  ZSTD_CCtx *context = ZSTD_createCCtx();
  if (context) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  }
  return context;
}

void *gap__encoder_new(enum gap__encoding encoding) {
  switch (encoding) {
    case GAP__ENC_GZIP: return new_gzip();
    case GAP__ENC_XZ: return new_xz();
    case GAP__ENC_ZSTD: return new_zstd();
    default: return NULL;
  }
}

void gap__encoder_free(enum gap__encoding encoding, void *encoder) {
  if (!encoder) return;
  if (encoding == GAP__ENC_ZSTD) {
    ZSTD_freeCCtx(encoder);
    return;
  }
  if (encoding == GAP__ENC_GZIP) deflateEnd(encoder);
  if (encoding == GAP__ENC_XZ) lzma_end(encoder);
  free(encoder);
}

static int gzip_step(z_stream *z, struct gap__decode_step *step) {
  z->next_in = (unsigned char *)(uintptr_t)step->in; /* zlib's field lacks the const; it does not write there */
  z->avail_in = (unsigned)(step->in_end - step->in);
  z->next_out = step->out;
  z->avail_out = (unsigned)(step->out_end - step->out);
  int rc = deflate(z, step->in_is_last ? Z_FINISH : Z_NO_FLUSH);
  step->in = z->next_in;
  step->out = z->next_out;
  step->finished = rc == Z_STREAM_END;
  return 0;
}

static int xz_step(lzma_stream *stream, struct gap__decode_step *step) {
  stream->next_in = step->in;
  stream->avail_in = (size_t)(step->in_end - step->in);
  stream->next_out = step->out;
  stream->avail_out = (size_t)(step->out_end - step->out);
  lzma_ret rc = lzma_code(stream, step->in_is_last ? LZMA_FINISH : LZMA_RUN);
  step->in = stream->next_in;
  step->out = stream->next_out;
  step->finished = rc == LZMA_STREAM_END;
  return rc == LZMA_MEM_ERROR ? GAP_ENOMETA : 0;
}

static int zstd_step(ZSTD_CCtx *context, struct gap__decode_step *step) {
  ZSTD_inBuffer in = {step->in, (size_t)(step->in_end - step->in), 0};
  ZSTD_outBuffer out = {step->out, (size_t)(step->out_end - step->out), 0};
  size_t left = ZSTD_compressStream2(context, &out, &in, step->in_is_last ? ZSTD_e_end : ZSTD_e_continue);
  if (ZSTD_isError(left)) return GAP_ENOMETA;
  step->in += in.pos;
  step->out += out.pos;
  step->finished = step->in_is_last && left == 0;
  return 0;
}

int gap__encoder_step(enum gap__encoding encoding, void *encoder, struct gap__decode_step *step) {
  switch (encoding) {
    case GAP__ENC_GZIP: return gzip_step(encoder, step);
    case GAP__ENC_XZ: return xz_step(encoder, step);
    case GAP__ENC_ZSTD: return zstd_step(encoder, step);
    default: return GAP_EINVAL;
  }
}
