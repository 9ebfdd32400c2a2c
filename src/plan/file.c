/* A plan and its file: base/planfile.h, with messages as the tools have them. */
#include <stdlib.h>

#include "gapless/gapless.h"
#include "plan/plan.h"
#include "plan/problem.h"
#include "trace/message.h"

static struct gap__planfile view(const struct gap_plan *plan) {
  return (struct gap__planfile){.at = plan->at,
                                .count = plan->count,
                                .moments = plan->moments,
                                .streams = plan->streams,
                                .stream_count = plan->stream_count,
                                .plan_bytes = plan->info.plan_bytes,
                                .bound_bytes = plan->info.bound_bytes,
                                .total_bytes = plan->info.total_bytes};
}

static int hand_over(struct gap__text *why, int rc, char **message) {
  if (rc && why->length) gap__message_set(message, rc, "%s", gap__text_str(why));
  gap__text_free(why);
  return rc;
}

int gap__plan_verify(const struct gap_plan *plan, char **message) {
  struct gap__planfile file = view(plan);
  struct gap__text why = {0};
  return hand_over(&why, gap__planfile_check(&file, &why), message);
}

int gap__plan_encode(const struct gap_plan *plan, unsigned char **out, size_t *bytes) {
  struct gap__planfile file = view(plan);
  return gap__planfile_encode(&file, out, bytes);
}

static void take_over(const struct gap__planfile *file, struct gap_plan *plan) {
  *plan = (struct gap_plan){.at = file->at,
                            .count = file->count,
                            .moments = file->moments,
                            .streams = file->streams,
                            .stream_count = file->stream_count,
                            .info = {.size = sizeof plan->info,
                                     .requests = file->count,
                                     .streams = file->stream_count,
                                     .plan_bytes = file->plan_bytes,
                                     .bound_bytes = file->bound_bytes,
                                     .total_bytes = file->total_bytes}};
}

int gap__plan_decode(const unsigned char *data, size_t bytes, struct gap_plan *plan, char **message) {
  struct gap__planfile file;
  struct gap__text why = {0};
  *plan = (struct gap_plan){0};
  int rc = gap__planfile_decode(data, bytes, GAP__PLAN_BLOCKS_MAX, &file, &why);
  if (!rc) take_over(&file, plan);
  return hand_over(&why, rc, message);
}
