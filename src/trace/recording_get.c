#include "trace/recording_get.h"

#include <string.h>

#include "gapless/gapless.h"
#include "trace/message.h"

enum { POOLS_MAX = UINT16_MAX };

static unsigned long long position(const struct gap__recording *r) {
  return r->parcel_at + GAP__RECORD_HEAD_BYTES + (unsigned long long)(r->at - r->payload);
}

int gap__recording_fail(const struct gap__recording *r, const char *what) {
  return gap__message_set(r->message, GAP_EFORMAT, "byte %llu: %s", position(r), what);
}

int gap__recording_no_room(const struct gap__recording *r) {
  return gap__message_set(r->message, GAP_ELIMIT, "byte %llu: more than can be read, or than the host has memory for",
                          position(r));
}

/* ---- numbers ---- */

uint64_t gap__recording_number(struct gap__recording *r) {
  uint64_t number = 0;
  for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
    unsigned char byte = *r->at++;
    number |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80 && (shift < 63 || byte < 2)) return number;
  }
  r->is_wrong = true;
  return 0;
}

int64_t gap__recording_signed(struct gap__recording *r) { return gap__record_unfold(gap__recording_number(r)); }
uint64_t gap__recording_size(struct gap__recording *r) { return gap__record_turn_back(gap__recording_number(r)); }

uint64_t gap__recording_addr(struct gap__recording *r) {
  r->addr += (uint64_t)gap__recording_signed(r);
  return gap__record_turn_back(r->addr);
}

unsigned gap__recording_byte(struct gap__recording *r) {
  if (r->at < r->end) return *r->at++;
  r->is_wrong = true;
  return 0;
}

uint32_t gap__recording_upto(struct gap__recording *r, uint32_t most) {
  uint64_t number = gap__recording_number(r);
  if (number <= most) return (uint32_t)number;
  r->is_wrong = true;
  return 0;
}

double gap__recording_real(struct gap__recording *r) {
  uint64_t bits = 0;
  double number;
  for (unsigned shift = 0; shift < 64; shift += 8) bits |= (uint64_t)gap__recording_byte(r) << shift;
  memcpy(&number, &bits, sizeof number);
  return number;
}

/* What is tens of thousands of years away is wrong: so that differences of times do not overflow. */
int64_t gap__recording_time(struct gap__recording *r, int64_t tick) {
  const int64_t most = (int64_t)1 << 60;
  int64_t ns = (int64_t)r->tick_ns, us;
  bool beyond = __builtin_mul_overflow(tick / 1000, ns, &us) ||
                __builtin_add_overflow(us, tick % 1000 * ns / 1000, &us) || us > most || us < -most;
  r->is_wrong |= beyond;
  return beyond ? 0 : us;
}

/* ---- what was told before ---- */

int gap__recording_text(struct gap__recording *r, uint32_t *offset) {
  uint32_t length = gap__recording_upto(r, GAP__RECORD_TEXT_MOST);
  *offset = 0;
  r->is_wrong |= length > (size_t)(r->end - r->at);
  if (r->is_wrong || length == 0) return 0;
  if (!GAP__VEC_ROOM(r->text, length + 1)) return gap__recording_no_room(r);
  *offset = r->text.count;
  memcpy(r->text.at + *offset, r->at, length);
  r->text.at[*offset + length] = '\0';
  r->text.count += length + 1;
  r->at += length;
  return 0;
}

uint32_t gap__recording_stack(struct gap__recording *r) { return gap__recording_upto(r, r->stacks.count - 1); }

int gap__recording_pool(struct gap__recording *r) {
  uint64_t first = gap__recording_number(r), second = gap__recording_number(r);
  for (uint32_t i = r->pools.count; i-- > 0;)
    if (r->pools.at[i].id[0] == first && r->pools.at[i].id[1] == second) {
      r->pool = (uint16_t)i;
      return 0;
    }
  struct gap__hist_pool *pool = r->pools.count < POOLS_MAX ? GAP__RECORDING_ADD(r->pools) : NULL;
  if (!pool) return gap__recording_no_room(r);
  *pool = (struct gap__hist_pool){{first, second}};
  r->pool = (uint16_t)(r->pools.count - 1);
  return 0;
}

struct gap__recording_device *gap__recording_device(struct gap__recording *r, uint32_t device) {
  while (r->devices.count <= device) {
    struct gap__recording_device *next = GAP__RECORDING_ADD(r->devices);
    if (!next) return NULL;
    *next = (struct gap__recording_device){0};
  }
  return &r->devices.at[device];
}
