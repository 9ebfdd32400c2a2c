#include "serving/models.h"

#include <stdio.h>
#include <strings.h>

#include "gapless/kv_replay.h"

static const struct gap__model models[] = {
    {"llama-3.1-8b", 32, 8, 128, 8030261248}, {"llama-3.1-70b", 80, 8, 128, 70553706496},
    {"llama-3.2-1b", 16, 8, 64, 1235814400},  {"llama-3.2-3b", 28, 8, 128, 3212749824},
    {"qwen2.5-7b", 28, 4, 128, 7615616512},   {"qwen3-0.6b", 28, 8, 128, 596049920},
    {"qwen3-8b", 36, 8, 128, 8190735360},     {"mistral-7b", 32, 8, 128, 7241732096},
    {"yi-6b", 32, 4, 128, 6061035520},
};
enum { MODEL_COUNT = sizeof models / sizeof *models };

const char *gap_kv_model_at(uint32_t index) { return index < MODEL_COUNT ? models[index].name : NULL; }

int gap__model_find(const char *name, struct gap__model *out) {
  char end;
  for (uint32_t i = 0; i < MODEL_COUNT; i++)
    if (strcasecmp(models[i].name, name) == 0) return *out = models[i], 0;
  *out = (struct gap__model){.name = name};
  return sscanf(name, "%ux%ux%u%c", &out->layers, &out->heads, &out->head_size, &end) == 3 ? 0 : GAP_EVALUE;
}

int gap_kv_token_bytes(const char *name, uint64_t *out) {
  struct gap__model model;
  int rc = gap__model_find(name, &model);
  if (!rc) *out = 2ull * 2 * model.layers * model.heads * model.head_size;
  return rc;
}
