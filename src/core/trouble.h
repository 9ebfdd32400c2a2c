/* Why a request is not served, besides want of memory: noted where it is met, read by the diagnosis.  The first trouble of a
 * request counts: later ones follow from it, or do not matter.  Under the device lock. */
#ifndef GAP_TROUBLE_H
#define GAP_TROUBLE_H

#include "core/state.h"

enum gap__trouble_kind {
  GAP__TROUBLE_NONE,
  GAP__TROUBLE_RECORDS,   /* no host memory for the allocator's own records */
  GAP__TROUBLE_LIMIT,     /* all numbers of ranges are given out */
  GAP__TROUBLE_ADDRESSES, /* the driver works and has no window of addresses: pages cannot serve */
  GAP__TROUBLE_MEMORY,    /* the driver has no memory, although the limits allow more */
  GAP__TROUBLE_DRIVER     /* a driver call failed: `call`, `code` */
};

static inline void gap__trouble_note(struct gap__policy_state *s, enum gap__trouble_kind kind, enum gap__dev_call call,
                                     int code) {
  if (s->trouble.kind == GAP__TROUBLE_NONE || s->trouble.kind == GAP__TROUBLE_MEMORY)
    s->trouble = (struct gap__trouble){.kind = (uint8_t)kind, .call = (uint8_t)call, .code = code};
}
static inline void gap__trouble_records(struct gap__policy_state *s) {
  gap__trouble_note(s, GAP__TROUBLE_RECORDS, GAP__CALL_COUNT, GAP_ENOMETA);
}
static inline void gap__trouble_driver(struct gap__policy_state *s, enum gap__dev_call call, int code) {
  gap__trouble_note(s, GAP__TROUBLE_DRIVER, call, code);
}

#endif
