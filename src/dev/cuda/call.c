/* How a call reaches the driver and leaves no trace in the calling thread, and what becomes of an error. */
#include <stdio.h>

#include "base/log.h"
#include "dev/cuda/state.h"

/* The last failed call of the thread; its words are looked up only when somebody asks. */
static _Thread_local struct {
  const char *call; /* NULL: none */
  gap__cuda_result result;
} last_error;

int gap__cuda_enter(struct cuda *cuda, gap__cuda_context context, struct gap__cuda_scope *scope) {
  const struct gap__cuda_driver *driver = &cuda->driver;
  gap__cuda_context current = NULL;
  scope->capture_mode = GAP__CU_STREAM_CAPTURE_MODE_RELAXED;
  scope->pushed = false;
  int rc = CUDA_CALL(cuda, cuThreadExchangeStreamCaptureMode, &scope->capture_mode);
  if (rc != 0) return rc;
  if (driver->cuCtxGetCurrent(&current) == GAP__CUDA_SUCCESS && current == context) return 0;
  rc = CUDA_CALL(cuda, cuCtxPushCurrent, context);
  scope->pushed = rc == 0;
  if (rc != 0) gap__cuda_leave(cuda, scope);
  return rc;
}

void gap__cuda_leave(struct cuda *cuda, const struct gap__cuda_scope *scope) {
  gap__cuda_context popped;
  unsigned mode = scope->capture_mode;
  if (scope->pushed) (void)CUDA_CALL(cuda, cuCtxPopCurrent, &popped);
  (void)CUDA_CALL(cuda, cuThreadExchangeStreamCaptureMode, &mode);
}

static void report(struct cuda *cuda, const char *call, gap__cuda_result result) {
  char text[256];
  if (gap__cuda_is_sticky(result) && !atomic_exchange(&cuda->lost, true)) {
    gap__cuda_describe_error(&cuda->driver, call, result, text, sizeof text);
    gap__log(GAP__LOG_ERROR, "device %d is lost, everything on it fails from now on: %s", cuda->dev.ordinal, text);
  }
}

int gap__cuda_check(struct cuda *cuda, const char *call, gap__cuda_result result) {
  int rc = gap__cuda_code(result);
  if (rc == 0 || rc == GAP_EAGAIN) return rc;
  last_error.call = call;
  last_error.result = result;
  report(cuda, call, result);
  return rc;
}

void gap__cuda_last_error(struct gap__dev *dev, char *text, size_t bytes) {
  if (last_error.call) gap__cuda_describe_error(&cuda_of(dev)->driver, last_error.call, last_error.result, text, bytes);
  else snprintf(text, bytes, "%s", "");
}
