// The entry points of the shim over a heap on host memory, for tests of everything around it.
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "gapless/gapless.h"
#include "part.h"

#define ENTRY extern "C" __attribute__((visibility("default")))

static gap_heap *heap;
static int state;
static std::string conf, settings, reason, pool_tag;
static bool has_conf;

ENTRY int gapless_torch_abi(void) { return FAKE_ABI; }

ENTRY const char *gapless_torch_install(const char *text) {
  if (std::getenv("FAKE_SHIM_REFUSES")) return "the fake shim refuses";
  has_conf = text != nullptr;
  conf = text ? text : "";
  state = heap ? 2 : 1;
  return nullptr;
}

ENTRY const char *gapless_torch_uninstall(void) {
  state = 3;
  return nullptr;
}

ENTRY int gapless_torch_state(void) { return state; }
ENTRY const char *gapless_torch_reason(void) { return reason.c_str(); }
ENTRY gap_heap *gapless_torch_heap(void) { return state == 2 || state == 3 ? heap : nullptr; }

ENTRY int gapless_torch_configure(const char *text) {
  if (heap) return gap_configure(heap, text);
  has_conf = true;
  conf = text;
  return 0;
}

ENTRY void gapless_torch_settings(const char *text) { settings = text; }

ENTRY int gapless_torch_pool_flags(uint64_t, uint64_t second, unsigned flags, const char *tag) {
  pool_tag = std::to_string(second) + " " + std::to_string(flags) + " " + (tag ? tag : "-");
  return 0;
}

ENTRY size_t gapless_torch_explain(int, char *text, size_t bytes) {
  static const char words[] = "explained by the shim";
  std::strncpy(text, words, bytes);
  return sizeof words - 1;
}

// What torch does when CUDA starts, and what a test wants to see.
ENTRY void fake_start(void) {
  gap_heap_options options = GAP_HEAP_OPTIONS_INIT;
  if (state != 1) return;
  options.backend = GAP_BACKEND_HOST;
  options.conf = has_conf ? conf.c_str() : nullptr;
  reason = std::getenv("FAKE_SHIM_FAILS") ? "the fake driver is too old" : "";
  state = reason.empty() && gap_heap_create(&options, &heap) == 0 ? 2 : 4;
}
ENTRY const char *fake_settings(void) { return settings.c_str(); }
ENTRY const char *fake_pool(void) { return pool_tag.c_str(); }
