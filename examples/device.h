/* What a program that uses a GPU has anyway: a choice of backend, streams, work on them.  With the CUDA toolkit these are
 * cudaStreamCreate, cudaMemsetAsync and so on; the examples do without it, and run on a machine without a GPU too. */
#ifndef EXAMPLES_DEVICE_H
#define EXAMPLES_DEVICE_H

#include <gapless/gapless.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a heap on what the command line says: --backend cuda|host|sim; without it on cuda where there is a device, else
 * on host.  Messages of the library go to stderr.  Ends the program with a message where that cannot be done. */
gap_heap *device_open(int argc, char **argv, const char *conf);
gap_backend device_backend(void);

gap_stream device_stream(void); /* a new one */
void device_stream_destroy(gap_stream stream);
/* Queues a fill, as a kernel would write. */
void device_fill(gap_addr addr, int byte, uint64_t bytes, gap_stream stream);
/* Waits for the stream; then the first byte there (-1 on sim, which has no memory). */
int device_first_byte(gap_addr addr, gap_stream stream);
/* Records what is queued on a stream instead of running it, as cudaStreamBeginCapture does; nothing on other backends. */
void device_capture_begin(gap_stream stream);
void *device_capture_end(gap_stream stream); /* a graph, ready to run */
void device_graph_run(void *graph, gap_stream stream);

/* Ends the program with a message when a call failed. */
void check(int code, const char *what);
#define CHECK(call) check(call, #call)

#ifdef __cplusplus
}
#endif
#endif
