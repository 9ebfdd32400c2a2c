#include "tier/card_sum.h"

#include <sys/mman.h>

#include "base/log.h"
#include "base/mix.h"

#define STEP 0x9E3779B97F4A7C15 /* from a word's place to the next one's: 2^64 over the golden ratio */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* clang-format off */
/* Adds the mix of `word`, whose place is `key` / STEP - 1, to the sum. */
#define ADD(word) \
  "  add.u64 %key, %key, %step;\n" \
  "  add.u64 %z, " word ", %key;\n" \
  "  shr.u64 %t, %z, " TEXT(GAP__MIX64_SHIFT) ";\n" \
  "  xor.b64 %z, %z, %t;\n" \
  "  mul.lo.u64 %z, %z, %first;\n" \
  "  shr.u64 %t, %z, " TEXT(GAP__MIX64_SHIFT) ";\n" \
  "  xor.b64 %z, %z, %t;\n" \
  "  mul.lo.u64 %z, %z, %second;\n" \
  "  shr.u64 %t, %z, " TEXT(GAP__MIX64_SHIFT) ";\n" \
  "  xor.b64 %z, %z, %t;\n" \
  "  add.u64 %sum, %sum, %z;\n"

/* A thread takes four words in a row, then goes on by four words for each thread there is. */
static const char ptx[] =
    ".version 7.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    ".visible .entry " GAP__CARD_SUM_NAME "(.param .align 8 .b8 argument[24]) {\n"
    "  .reg .pred %end, %first_thread;\n"
    "  .reg .b32 %thread, %threads, %block, %blocks, %index, %all;\n"
    "  .reg .b64 %addr, %words, %parts, %at, %offset, %stride, %a, %b, %c, %d;\n"
    "  .reg .b64 %key, %skip, %step, %first, %second, %z, %t, %sum;\n"
    "  .shared .align 8 .b64 total;\n"
    "  ld.param.u64 %addr, [argument];\n"
    "  ld.param.u64 %words, [argument+8];\n"
    "  ld.param.u64 %parts, [argument+16];\n"
    "  mov.u32 %thread, %tid.x;\n"
    "  mov.u32 %threads, %ntid.x;\n"
    "  mov.u32 %block, %ctaid.x;\n"
    "  mov.u32 %blocks, %nctaid.x;\n"
    "  mad.lo.u32 %index, %block, %threads, %thread;\n"
    "  mul.lo.u32 %all, %blocks, %threads;\n"
    "  mul.wide.u32 %at, %index, 4;\n"
    "  mul.wide.u32 %stride, %all, 4;\n"
    "  mov.u64 %step, " TEXT(STEP) ";\n"
    "  mov.u64 %first, " TEXT(GAP__MIX64_FIRST) ";\n"
    "  mov.u64 %second, " TEXT(GAP__MIX64_SECOND) ";\n"
    "  mul.lo.u64 %key, %at, %step;\n"
    "  sub.u64 %skip, %stride, 4;\n"
    "  mul.lo.u64 %skip, %skip, %step;\n"
    "  mov.u64 %sum, 0;\n"
    "  setp.eq.u32 %first_thread, %thread, 0;\n"
    "  @%first_thread st.shared.u64 [total], %sum;\n"
    "  bar.sync 0;\n"
    "next:\n"
    "  setp.ge.u64 %end, %at, %words;\n"
    "  @%end bra done;\n"
    "  shl.b64 %offset, %at, 3;\n"
    "  add.u64 %offset, %offset, %addr;\n"
    "  ld.global.v2.u64 {%a, %b}, [%offset];\n"
    "  ld.global.v2.u64 {%c, %d}, [%offset+16];\n"
    ADD("%a")
    ADD("%b")
    ADD("%c")
    ADD("%d")
    "  add.u64 %key, %key, %skip;\n"
    "  add.u64 %at, %at, %stride;\n"
    "  bra next;\n"
    "done:\n"
    "  red.shared.add.u64 [total], %sum;\n"
    "  bar.sync 0;\n"
    "  @!%first_thread bra end;\n"
    "  ld.shared.u64 %sum, [total];\n"
    "  mul.wide.u32 %offset, %block, 8;\n"
    "  add.u64 %offset, %offset, %parts;\n"
    "  st.global.u64 [%offset], %sum;\n"
    "end:\n"
    "  ret;\n"
    "}\n";
/* clang-format on */

uint64_t gap__card_sum_here(const void *data, uint64_t bytes) {
  const uint64_t *words = data;
  uint64_t sum = 0, key = 0;
  for (uint64_t i = 0; i < bytes / 8; i++) sum += gap__mix64(words[i] + (key += STEP));
  return sum;
}

/* ---- on the card ---- */

static size_t parts_bytes(uint32_t slots) { return slots * GAP__CARD_SUM_BLOCKS * sizeof(uint64_t); }

static void *pinned(struct gap__dev *dev, size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  if (gap__dev_pin(dev, memory, bytes) == 0) return memory;
  munmap(memory, bytes);
  return NULL;
}

bool gap__card_sums_ready(struct gap__card_sums *s, struct gap__dev *dev, uint32_t slots) {
  if (s->tried) return s->function != 0;
  *s = (struct gap__card_sums){.slots = slots, .tried = true};
  if (!dev->caps.arch || !(s->parts = pinned(dev, parts_bytes(slots)))) return false;
  int rc = gap__dev_module_load(dev, ptx, &s->module);
  if (rc) s->module = 0;
  if (!rc) rc = gap__dev_module_find(dev, s->module, GAP__CARD_SUM_NAME, 0, &s->function);
  if (rc) s->function = 0;
  if (rc) gap__log(GAP__LOG_INFO, "tiers: the card makes no checksums (%s): the processor does", gap_strerror(rc));
  return s->function != 0;
}

void gap__card_sums_free(struct gap__card_sums *s, struct gap__dev *dev) {
  if (s->module) gap__dev_module_unload(dev, s->module);
  if (s->parts && gap__dev_unpin(dev, s->parts, parts_bytes(s->slots)) == 0) munmap(s->parts, parts_bytes(s->slots));
  *s = (struct gap__card_sums){0};
}

int gap__card_sums_queue(struct gap__card_sums *s, struct gap__dev *dev, uint32_t slot, gap_addr addr, uint64_t bytes,
                         gap_stream stream) {
  struct gap__card_sum_argument argument = {addr, bytes / 8, (uintptr_t)(s->parts + slot * GAP__CARD_SUM_BLOCKS)};
  struct gap__launch launch = {.function = s->function,
                               .blocks = {GAP__CARD_SUM_BLOCKS, 1, 1},
                               .threads = GAP__CARD_SUM_THREADS,
                               .argument = &argument};
  return gap__dev_launch(dev, &launch, stream);
}

uint64_t gap__card_sums_take(const struct gap__card_sums *s, uint32_t slot) {
  const volatile uint64_t *parts = s->parts + slot * GAP__CARD_SUM_BLOCKS;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < GAP__CARD_SUM_BLOCKS; i++) sum += parts[i];
  return sum;
}
