/* Plan files and CSV files of arbitrary bytes: what is read holds together; what is placed can be written and read back. */
#include <string.h>

#include "fuzz.h"
#include "plan/plan.h"

enum { BLOCKS_MAX = 200 }; /* larger inputs only take longer */

static uint64_t sum_of(const uint8_t *data, size_t bytes) {
  uint64_t sum = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ data[i]) * 0x100000001b3;
  return sum;
}

static void check_plan(struct gap_plan *plan) {
  char *message = NULL;
  for (uint32_t i = 0; i < plan->count; i++) {
    gap_plan_request request;
    FUZZ_CHECK(gap_plan_request_at(plan, i, &request) == 0);
    FUZZ_CHECK(request.from < request.to && request.offset + request.bytes <= plan->info.plan_bytes);
  }
  FUZZ_CHECK(gap__plan_verify(plan, &message) == 0 && message == NULL);
}

static void read_plan(const uint8_t *data, size_t bytes) {
  struct gap_plan plan;
  char *message = NULL;
  if (gap__plan_decode(data, bytes, &plan, &message) == 0) {
    check_plan(&plan);
    gap__plan_release(&plan);
  } else {
    FUZZ_CHECK(plan.at == NULL && plan.streams == NULL);
  }
  free(message);
}

/* With its sum made right, what a fuzzer changes gets as far as the requests. */
static void read_mended(const uint8_t *data, size_t bytes) {
  uint8_t *copy = malloc(bytes);
  FUZZ_CHECK(copy != NULL);
  memcpy(copy, data, bytes);
  uint64_t sum = sum_of(data, bytes - 8);
  for (int i = 0; i < 8; i++) copy[bytes - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
  read_plan(copy, bytes);
  free(copy);
}

static void read_csv(const uint8_t *data, size_t bytes) {
  struct gap_plan plan = {0};
  struct gap__plan_clock clock = {.start_ms = gap__plan_now_ms(), .limit_ms = 20};
  char *message = NULL;
  struct gap__input input;
  unsigned char *file;
  size_t length;
  if (gap__input_open_memory(&input, data, bytes, &message)) {
    free(message);
    return;
  }
  if (gap__plan_from_csv(&input, &plan, &message) == 0 && plan.count <= BLOCKS_MAX &&
      gap__plan_place(&plan, 0, &clock, &message) == 0) {
    check_plan(&plan);
    FUZZ_CHECK(gap__plan_encode(&plan, &file, &length) == 0);
    read_plan(file, length);
    free(file);
  }
  gap__plan_release(&plan);
  free(message);
  gap__input_close(&input);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  read_plan(data, bytes);
  if (bytes >= 8) read_mended(data, bytes);
  read_csv(data, bytes);
  return 0;
}
