/* Uses of blocks by other streams, and frees that wait for them.  Under the device lock, none under a lane lock.
 *
 * The event of a use is recorded when the block is freed, or when the using stream ends.  A use of a per-thread default stream
 * can be recorded by its own thread only: when it next asks for memory on that stream or leaves the hot path, or at its end.
 *
 * With graph_capture_record_stream_reuse a use that begins and ends inside one capture ends behind nodes of its graph, too: for a
 * stream of the same capture that comes after these nodes it is over, and the block may be used again there.  When the capture has
 * ended there is an event, as for any other. */
#ifndef GAP_PENDING_H
#define GAP_PENDING_H

#include "core/state.h"

int gap__event_take(struct gap__policy_state *, gap_stream, gap__event *out);
void gap__event_give(struct gap__policy_state *, gap__event);
/* Takes an event and records it. */
int gap__event_mark(struct gap__policy_state *, gap_stream, gap__event *out);
/* A driver that cannot say does not stop anybody: what comes next fails, too. */
bool gap__stream_captures(struct gap__policy_state *, gap_stream);

/* Adds a use to a list unless it is there.  GAP_ENOMETA. */
int gap__use_add(struct gap__policy_state *, gap_stream, uint64_t thread, uint32_t *uses);
/* A mark on the live block that begins at `addr`, in its list of uses: the one that is there, or a new one.  NULL: GAP_ENOMETA.  It goes when
 * the block is freed, or by unmark. */
struct gap__use *gap__use_mark(struct gap__policy_state *, gap_addr addr, uint32_t *uses);
void gap__use_unmark(struct gap__policy_state *, uint32_t *uses);
struct gap__use *gap__use_marked(const struct gap__policy_state *, uint32_t uses); /* NULL: it has none */
/* The stream is about to go: records what has not been recorded. */
void gap__use_end_stream(struct gap__policy_state *, gap_stream, uint64_t thread);
/* Waits for the events of all uses that have one; false: some use ends by no event. */
bool gap__use_settle(struct gap__policy_state *);
/* Are there uses that no event can end?  And the end of them, once the device has drained. */
bool gap__use_any_lost(struct gap__policy_state *);
void gap__use_end_lost(struct gap__policy_state *);

/* Files a block that was freed while other streams use it (`uses`, not empty): records an event on each.  Cannot fail: adding
 * a use made room. */
void gap__pending_add(struct gap__lane *, uint32_t block, uint32_t uses);
/* Frees the blocks whose events have completed. Returns how many.  `lane`: whose request it is, NULL nobody's; of its own blocks those
 * too whose uses the order of the graph has ended that captures its stream. */
uint32_t gap__pending_poll(struct gap__policy_state *, struct gap__lane *lane);
/* Before a request of this lane is served from elsewhere: the same for its own blocks, in order, up to the first that waits for an
 * event; so there is one query, as a rule.  Nothing where somebody holds the device lock.  Expects no lock held. */
void gap__pending_poll_lane(struct gap__lane *);
/* Waits for the pending block that was freed first, of those whose events are recorded.  False: there is none. */
bool gap__pending_wait(struct gap__policy_state *);

/* This thread may have to record an event that only it can.  Needs no lock. */
static inline bool gap__pending_owes(struct gap__policy_state *s, uint64_t thread) {
  return atomic_load_explicit(&s->owing, memory_order_relaxed) >> (thread & 63) & 1;
}
/* Does so, unless somebody holds the device lock: the next call does.  Expects no lock held. */
void gap__pending_pay(struct gap__policy_state *);

#endif
