/* The policy JSON form: {"trace": [[action, addr, size, stream], ...], "segments": [[addr, total, stream, type, expandable,
 * pool, [[size, requested, state], ...]], ...], "stats": {...}, "frac": of "total", "conf": "..."}, one device, no times.
 * Parsed as a tree, so limited to GAP__JSON_BYTES_MAX. */
#ifndef GAP_TRACE_POLICY_JSON_H
#define GAP_TRACE_POLICY_JSON_H

#include "trace/history.h"
#include "trace/input.h"

#define GAP__JSON_BYTES_MAX ((uint64_t)256 << 20)

int gap__policy_json_read(struct gap__input *, struct gap__history **out, char **message);

#endif
