/* Streams of our own on the backends without a driver, where any number names a stream: a handle nobody else will use. */
#ifndef GAP_SOFT_STREAM_H
#define GAP_SOFT_STREAM_H

#include "dev/dev.h"

int gap__soft_stream_create(struct gap__dev *, gap_stream *out);
int gap__soft_stream_destroy(struct gap__dev *, gap_stream);

#endif
