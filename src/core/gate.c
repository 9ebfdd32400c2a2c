/* The gate over all streams: see gate.h.
 *
 * Streams get their gates one after the other while other threads go on launching.  One that waits for an event which was
 * recorded behind another's gate would never arrive, and streams that share a queue of the hardware may keep each other from
 * arriving: so arrival is waited for with patience only, and the gate is opened and closed anew, each time with more of it. */
#include "core/gate.h"

#include "core/lane.h"
#include "core/pending.h"
#include "core/trouble.h"

enum { TRIES = 4, PATIENCE_GROWS = 4 };
#define PATIENCE_NS 50000000ull /* of the first try: 50 ms; the last waits 3.2 s */
#define OWN_PATIENCE_NS 2000000000ull
#define OWN_WORD (GAP__GATE_STREAMS + 1) /* written by a stream of our own, and always open to it */
#define WORDS_BYTES ((GAP__GATE_STREAMS + 2) * sizeof(uint32_t))
#define STREAMS_BYTES (GAP__GATE_STREAMS * sizeof(struct gap__gate_stream))

/* ---- who must stand still ---- */

static bool is_stream(const struct gap__gate_stream *at, gap_stream stream, uint64_t thread) {
  return at->stream == stream && at->thread == thread;
}

/* Its index, or `count`. */
static uint32_t find(struct gap__gate *gate, gap_stream stream, uint64_t thread) {
  if (gate->recent < gate->count && is_stream(&gate->streams[gate->recent], stream, thread)) return gate->recent;
  uint32_t i = 0;
  while (i < gate->count && !is_stream(&gate->streams[i], stream, thread)) i++;
  return i;
}

void gap__gate_note(struct gap__policy_state *s, gap_stream stream, uint64_t thread) {
  struct gap__gate *gate = &s->gate;
  if (!gate->streams) gate->streams = gap__meta_map(STREAMS_BYTES);
  gate->recent = find(gate, stream, thread);
  if (gate->recent < gate->count) return;
  if (gate->streams && gate->count < GAP__GATE_STREAMS)
    gate->streams[gate->count++] = (struct gap__gate_stream){.stream = stream, .thread = thread};
  else gate->incomplete = true;
}

void gap__gate_forget(struct gap__policy_state *s, gap_stream stream, uint64_t thread) {
  struct gap__gate *gate = &s->gate;
  uint32_t i = find(gate, stream, thread);
  if (i < gate->count) gate->streams[i] = gate->streams[--gate->count];
}

/* ---- closing ---- */

static gap_addr word_at(const struct gap__gate *gate, uint32_t i) { return (uintptr_t)&gate->words[i]; }

static int make_words(struct gap__policy_state *s) {
  struct gap__gate *gate = &s->gate;
  if (gate->words) return 0;
  void *words = gap__meta_map(WORDS_BYTES);
  int rc = words ? gap__dev_pin(s->dev, words, WORDS_BYTES) : GAP_ENOMETA;
  if (rc) gap__meta_unmap(words, words ? WORDS_BYTES : 0);
  else gate->words = words;
  return rc;
}

/* The legacy default stream and those ordered with it hold each other: a gate before the one is a gate before all, and a second one
 * would never be reached. */
static void find_held(struct gap__policy_state *s) {
  struct gap__gate *gate = &s->gate;
  uint32_t legacy = find(gate, 0, 0);
  for (uint32_t i = 0; i < gate->count; i++) {
    bool blocking = false;
    gate->streams[i].held = legacy < gate->count && i != legacy &&
                            gap__dev_stream_blocking(s->dev, gate->streams[i].stream, &blocking) == 0 && blocking;
  }
}

/* Can a gate be queued on each stream now, by this thread? */
static bool is_possible(struct gap__policy_state *s, enum gap__refusal *why) {
  const struct gap__gate *gate = &s->gate;
  *why = GAP__REFUSED_gate;
  if (!s->dev->caps.gates || gate->incomplete) return false;
  find_held(s);
  for (uint32_t i = 0; i < gate->count; i++) {
    const struct gap__gate_stream *at = &gate->streams[i];
    if (at->held) continue;
    *why = GAP__REFUSED_thread;
    if (at->thread && at->thread != gap__thread_number()) return false;
    *why = GAP__REFUSED_capture;
    if (gap__stream_captures(s, at->stream)) return false;
  }
  return true;
}

static int queue_gates(struct gap__policy_state *s) {
  struct gap__gate *gate = &s->gate;
  int rc = 0;
  gate->value++;
  gate->closed = true;
  for (uint32_t i = 0; i < gate->count && !rc; i++)
    if (!gate->streams[i].held)
      rc = gap__dev_gate(s->dev, gate->streams[i].stream, word_at(gate, 1 + i), word_at(gate, 0), gate->value);
  if (rc) gap__trouble_driver(s, GAP__CALL_gate, rc);
  return rc;
}

/* GAP_EAGAIN: not all have arrived in time. */
static int await_all(struct gap__policy_state *s, uint64_t patience_ns) {
  struct gap__gate *gate = &s->gate;
  uint64_t began = gap__dev_now_ns(s->dev), end = began + patience_ns;
  int rc = 0;
  for (uint32_t i = 0; i < gate->count && !rc; i++) {
    if (gate->streams[i].held) continue;
    uint64_t now = gap__dev_now_ns(s->dev);
    rc = gap__dev_value_await(s->dev, word_at(gate, 1 + i), gate->value, now < end ? end - now : 0);
  }
  gap__count_stall(s, began);
  return rc;
}

int gap__gate_close(struct gap__policy_state *s, enum gap__refusal *why) {
  uint64_t patience = s->dev->caps.stepped ? UINT64_MAX / 2 : PATIENCE_NS; /* where time is simulated all arrive */
  if (!is_possible(s, why)) return -1;
  *why = GAP__REFUSED_driver;
  if (make_words(s)) return -1;
  int rc = GAP_EAGAIN;
  for (unsigned tries = 0; tries < TRIES && rc == GAP_EAGAIN; tries++, patience *= PATIENCE_GROWS) {
    rc = queue_gates(s);
    if (!rc) rc = await_all(s, patience);
    if (rc) gap__gate_open(s);
  }
  if (rc == GAP_EAGAIN) *why = GAP__REFUSED_gate;
  return rc ? -1 : 0;
}

void gap__gate_open(struct gap__policy_state *s) {
  struct gap__gate *gate = &s->gate;
  if (gate->closed) atomic_store(&gate->words[0], gate->value);
  gate->closed = false;
}

/* By a gate that the stream opens itself: what writes the word is what it waits for. */
int gap__gate_await(struct gap__policy_state *s, gap_stream own) {
  struct gap__gate *gate = &s->gate;
  gap_addr word = word_at(gate, OWN_WORD);
  int rc = gap__dev_gate(s->dev, own, word, word, ++gate->own_value);
  return rc ? rc : gap__dev_value_await(s->dev, word, gate->own_value, OWN_PATIENCE_NS);
}

void gap__gate_destroy(struct gap__policy_state *s) {
  struct gap__gate *gate = &s->gate;
  if (gate->words) {
    gap__dev_unpin(s->dev, (void *)gate->words, WORDS_BYTES);
    gap__meta_unmap((void *)gate->words, WORDS_BYTES);
  }
  gap__meta_unmap(gate->streams, gate->streams ? STREAMS_BYTES : 0);
}
