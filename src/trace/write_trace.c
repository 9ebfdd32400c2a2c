/* gapless's own trace through the output of conversions; the writer itself is recording_write.c. */
#include "trace/formats.h"
#include "trace/recording.h"

static int put_parcels(void *arg, const void *bytes, size_t count) {
  struct gap__output *out = arg;
  gap__output_put(out, bytes, count);
  return out->rc;
}

int gap__write_trace(struct gap__writing *writing) {
  return gap__history_record(writing->history, put_parcels, writing->out);
}
