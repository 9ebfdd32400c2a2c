/* The rules of dev.h, one test a rule, the same for every backend.  A backend joins by an entry in `backends`; contents are
 * checked where it keeps bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/conform_backends.h"

#define PAGE GAP__PAGE
#define TOTAL CONFORM_TOTAL

struct fixture {
  const struct backend *backend;
  struct gap__dev *dev;
  gap_stream stream, other;
  uint64_t free_before;
};

static uint64_t free_bytes(struct gap__dev *dev) {
  uint64_t left = 0, total = 0;
  assert_int_equal(gap__dev_mem_info(dev, &left, &total), 0);
  assert_int_equal(total, dev->caps.total_bytes);
  return left;
}

static int set_up(void **state) {
  struct fixture *f = malloc(sizeof *f);
  f->backend = *state;
  *state = f;
  int rc = f->backend->create(&f->dev);
  if (rc == 0) rc = gap__dev_stream_create(f->dev, &f->stream);
  if (rc == 0) rc = gap__dev_stream_create(f->dev, &f->other);
  if (rc == 0) f->free_before = free_bytes(f->dev);
  return rc;
}
static int tear_down(void **state) {
  struct fixture *fixture = *state;
  if (fixture->backend->close) fixture->backend->close(fixture->dev);
  gap__dev_destroy(fixture->dev);
  free(fixture);
  return 0;
}
static struct gap__dev *dev_of(void **state) { return ((struct fixture *)*state)->dev; }
static gap_stream stream_of(void **state) { return ((struct fixture *)*state)->stream; }
static gap_stream other_of(void **state) { return ((struct fixture *)*state)->other; }
static bool is_strict(void **state) { return ((struct fixture *)*state)->backend->is_strict; }
static bool is_bounded(void **state) { return ((struct fixture *)*state)->backend->is_bounded; }

static void fill(void **state, gap_addr addr, uint64_t bytes, uint64_t pattern) {
  const struct fixture *f = *state;
  if (f->backend->fill) assert_int_equal(f->backend->fill(f->dev, addr, bytes, pattern, f->stream), 0);
}
static void expect(void **state, gap_addr addr, uint64_t bytes, uint64_t pattern) {
  const struct fixture *f = *state;
  if (f->backend->expect) assert_int_equal(f->backend->expect(f->dev, addr, bytes, pattern, f->stream), 0);
}
/* What is queued from here on stays pending until settle. */
static void delay(void **state, gap_stream stream) {
  const struct fixture *f = *state;
  if (f->backend->delay) assert_int_equal(f->backend->delay(f->dev, stream), 0);
}
static void settle(void **state) { ((struct fixture *)*state)->backend->settle(dev_of(state)); }
static void assert_no_fault(void **state) {
  const struct fixture *f = *state;
  if (f->backend->faults) assert_int_equal(f->backend->faults(f->dev), 0);
}

static gap_addr window(struct gap__dev *dev, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__dev_reserve(dev, bytes, PAGE, &addr), 0);
  return addr;
}
static gap__chunk chunk(struct gap__dev *dev, uint64_t bytes) {
  gap__chunk made = 0;
  assert_int_equal(gap__dev_chunk_create(dev, bytes, GAP__PLACE_DEVICE, &made), 0);
  assert_true(made != 0);
  return made;
}
static void map(struct gap__dev *dev, gap_addr addr, uint64_t bytes, gap__chunk which) {
  assert_int_equal(gap__dev_map(dev, addr, bytes, which), 0);
  assert_int_equal(gap__dev_set_access(dev, addr, bytes), 0);
}
/* Device memory in use since the start, chunks and segments. */
static void assert_taken(void **state, uint64_t bytes) {
  assert_int_equal(((struct fixture *)*state)->free_before - free_bytes(dev_of(state)), bytes);
}
static gap__event event(void **state) {
  gap__event made = 0;
  assert_int_equal(gap__dev_event_create(dev_of(state), stream_of(state), &made), 0);
  assert_true(made != 0);
  return made;
}
#define assert_refused(call) \
  do { \
    int refused_rc = (call); \
    assert_true(refused_rc == GAP_EINVAL || refused_rc == GAP_EDEVICE); \
  } while (0)

static void test_streams_of_our_own_are_apart(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_stream stream[2];
  gap__event end = 0;
  for (int i = 0; i < 2; i++) assert_int_equal(gap__dev_stream_create(dev, &stream[i]), 0);
  assert_true(stream[0] != stream[1] && stream[0] > 2 && stream[1] > 2);
  assert_int_equal(gap__dev_event_create(dev, stream[0], &end), 0);
  assert_int_equal(gap__dev_event_record(dev, end, stream[0]), 0);
  assert_int_equal(gap__dev_event_wait(dev, end), 0);
  assert_int_equal(gap__dev_event_destroy(dev, end), 0);
  for (int i = 0; i < 2; i++) assert_int_equal(gap__dev_stream_destroy(dev, stream[i]), 0);
}

static void test_caps(void **state) {
  const struct gap__dev *dev = dev_of(state);
  if (is_bounded(state)) assert_int_equal(dev->caps.total_bytes, TOTAL);
  assert_int_equal(dev->caps.granularity_bytes, PAGE);
  assert_true(dev->caps.vmm);
  assert_int_equal(dev->ordinal, ((struct fixture *)*state)->backend->ordinal);
}

static void test_windows_are_aligned_and_apart(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr seen[8];
  for (unsigned i = 0; i < 8; i++) {
    uint64_t align = PAGE << i;
    assert_int_equal(gap__dev_reserve(dev, 5 * PAGE, align, &seen[i]), 0);
    assert_int_equal(seen[i] % align, 0);
    for (unsigned j = 0; j < i; j++) assert_true(seen[j] + 5 * PAGE <= seen[i] || seen[i] + 5 * PAGE <= seen[j]);
  }
  for (unsigned i = 0; i < 8; i++) assert_int_equal(gap__dev_unreserve(dev, seen[i], 5 * PAGE), 0);
  assert_refused(gap__dev_unreserve(dev, seen[0], 5 * PAGE));
}

static void test_windows_cost_no_memory(void **state) {
  struct gap__dev *dev = dev_of(state);
  window(dev, (uint64_t)64 << 30);
  assert_taken(state, 0);
}

static void test_unreserve_needs_the_whole_empty_window(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 4 * PAGE);
  map(dev, addr + PAGE, PAGE, chunk(dev, PAGE));
  assert_refused(gap__dev_unreserve(dev, addr, 4 * PAGE));
  assert_int_equal(gap__dev_unmap(dev, addr + PAGE, PAGE), 0);
  assert_refused(gap__dev_unreserve(dev, addr, 2 * PAGE));
  assert_refused(gap__dev_unreserve(dev, addr + PAGE, 3 * PAGE));
  assert_int_equal(gap__dev_unreserve(dev, addr, 4 * PAGE), 0);
}

static void test_chunk_maps_whole(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 8 * PAGE);
  gap__chunk c = chunk(dev, 4 * PAGE);
  assert_refused(gap__dev_map(dev, addr, 2 * PAGE, c));
  assert_refused(gap__dev_map(dev, addr, 8 * PAGE, c));
  map(dev, addr, 4 * PAGE, c);
  assert_refused(gap__dev_unmap(dev, addr, 2 * PAGE));
  assert_refused(gap__dev_unmap(dev, addr + 2 * PAGE, 2 * PAGE));
  if (is_strict(state)) assert_refused(gap__dev_unmap(dev, addr, 8 * PAGE));
  assert_int_equal(gap__dev_unmap(dev, addr, 4 * PAGE), 0);
  if (is_strict(state)) assert_refused(gap__dev_unmap(dev, addr, 4 * PAGE));
}

static void test_unmap_takes_exactly_one_mapping(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 2 * PAGE);
  map(dev, addr, PAGE, chunk(dev, PAGE));
  map(dev, addr + PAGE, PAGE, chunk(dev, PAGE));
  if (is_strict(state)) assert_refused(gap__dev_unmap(dev, addr, 2 * PAGE));
  assert_int_equal(gap__dev_unmap(dev, addr + PAGE, PAGE), 0);
  assert_int_equal(gap__dev_unmap(dev, addr, PAGE), 0);
}

static void test_no_map_over_a_mapping_or_outside_windows(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 4 * PAGE);
  gap__chunk one = chunk(dev, PAGE), two = chunk(dev, 2 * PAGE);
  map(dev, addr + PAGE, PAGE, one);
  assert_refused(gap__dev_map(dev, addr, 2 * PAGE, two));
  assert_refused(gap__dev_map(dev, addr + PAGE, 2 * PAGE, two));
  if (is_strict(state))
    assert_refused(gap__dev_map(dev, addr + 3 * PAGE, 2 * PAGE, two)); /* the next window may follow */
  assert_refused(gap__dev_map(dev, PAGE, PAGE, one));
  assert_int_equal(gap__dev_map(dev, addr + 2 * PAGE, 2 * PAGE, two), 0);
}

static void test_unknown_handles(void **state) {
  if (!is_strict(state)) skip();
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, PAGE);
  gap__chunk c = chunk(dev, PAGE);
  gap__event e = event(state);
  assert_int_equal(gap__dev_chunk_release(dev, c), 0);
  assert_int_equal(gap__dev_event_destroy(dev, e), 0);
  const uint64_t wrong[] = {0, 12345, UINT64_MAX, c};
  for (unsigned i = 0; i < 4; i++) {
    assert_refused(gap__dev_chunk_release(dev, wrong[i]));
    assert_refused(gap__dev_map(dev, addr, PAGE, wrong[i]));
  }
  assert_refused(gap__dev_event_query(dev, e));
  assert_refused(gap__dev_event_record(dev, e, stream_of(state)));
  assert_refused(gap__dev_event_wait(dev, e));
  assert_refused(gap__dev_event_destroy(dev, e));
  gap__chunk next = chunk(dev, PAGE); /* the record is reused: the old handle stays unknown */
  assert_refused(gap__dev_chunk_release(dev, c));
  assert_int_equal(gap__dev_chunk_release(dev, next), 0);
}

static void test_alias_sees_the_same_bytes(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr one = window(dev, 4 * PAGE), other = window(dev, 4 * PAGE);
  gap__chunk c = chunk(dev, 2 * PAGE);
  map(dev, one, 2 * PAGE, c);
  map(dev, other + PAGE, 2 * PAGE, c);
  assert_taken(state, 2 * PAGE);
  fill(state, one, 2 * PAGE, 0x1122334455667788);
  expect(state, other + PAGE, 2 * PAGE, 0x1122334455667788);
  settle(state);
  assert_int_equal(gap__dev_unmap(dev, one, 2 * PAGE), 0);
  expect(state, other + PAGE, 2 * PAGE, 0x1122334455667788);
  settle(state);
  assert_no_fault(state);
}

/* What is written by the first address is read by the second, which is for reading only. */
static void test_alias_for_reading(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr one = window(dev, PAGE), other = window(dev, 2 * PAGE);
  gap__chunk c = chunk(dev, PAGE);
  map(dev, one, PAGE, c);
  assert_int_equal(gap__dev_map(dev, other, PAGE, c), 0);
  int rc = gap__dev_set_read_access(dev, other, PAGE);
  if (rc == GAP_ENOTSUP && !is_strict(state)) skip(); /* a driver may know no such mappings */
  assert_int_equal(rc, 0);
  fill(state, one, PAGE, 0x123456789);
  expect(state, other, PAGE, 0x123456789);
  fill(state, one, PAGE, 0x987654321);
  expect(state, other, PAGE, 0x987654321);
  settle(state);
  assert_no_fault(state);
  assert_int_equal(gap__dev_unmap(dev, other, PAGE), 0);
  expect(state, one, PAGE, 0x987654321);
  settle(state);
  assert_no_fault(state);
}

static void test_access_spans_neighbours_but_no_hole(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 8 * PAGE);
  assert_int_equal(gap__dev_map(dev, addr, PAGE, chunk(dev, PAGE)), 0);
  assert_int_equal(gap__dev_map(dev, addr + PAGE, 2 * PAGE, chunk(dev, 2 * PAGE)), 0);
  assert_int_equal(gap__dev_set_access(dev, addr, 3 * PAGE), 0);
  fill(state, addr, 3 * PAGE, 42);
  settle(state);
  assert_no_fault(state);
  assert_refused(gap__dev_set_access(dev, addr, 4 * PAGE));
  assert_refused(gap__dev_set_access(dev, addr, 2 * PAGE));
  assert_refused(gap__dev_set_access(dev, addr + 4 * PAGE, PAGE));
}

static void test_no_use_before_access(void **state) {
  if (!is_strict(state)) skip();
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 2 * PAGE);
  map(dev, addr, PAGE, chunk(dev, PAGE));
  assert_int_equal(gap__dev_map(dev, addr + PAGE, PAGE, chunk(dev, PAGE)), 0);
  assert_refused(gap__dev_copy(dev, addr + PAGE, addr, 512, stream_of(state)));
  assert_refused(gap__dev_copy(dev, addr, addr + PAGE - 256, 512, stream_of(state)));
  assert_int_equal(gap__dev_set_access(dev, addr + PAGE, PAGE), 0);
  assert_int_equal(gap__dev_copy(dev, addr + PAGE, addr, 512, stream_of(state)), 0);
}

static void test_more_than_there_is(void **state) {
  struct gap__dev *dev = dev_of(state);
  uint64_t total = dev->caps.total_bytes;
  gap__chunk none = 99;
  gap_addr segment = 99;
  assert_int_equal(gap__dev_chunk_create(dev, (total + PAGE) / PAGE * PAGE, GAP__PLACE_DEVICE, &none), GAP_ENOMEM);
  assert_int_equal(gap__dev_segment_alloc(dev, total + PAGE, &segment), GAP_ENOMEM);
  assert_true(none == 99 && segment == 99);
  assert_taken(state, 0);
}

static void test_memory_is_finite(void **state) {
  if (!is_bounded(state)) skip();
  struct gap__dev *dev = dev_of(state);
  gap__chunk c = chunk(dev, TOTAL - PAGE), none = 99;
  assert_int_equal(gap__dev_chunk_create(dev, 2 * PAGE, GAP__PLACE_DEVICE, &none), GAP_ENOMEM);
  assert_int_equal(none, 99);
  gap_addr segment = 0;
  assert_int_equal(gap__dev_segment_alloc(dev, 2 * PAGE, &segment), GAP_ENOMEM);
  assert_int_equal(gap__dev_segment_alloc(dev, UINT64_MAX, &segment), GAP_ENOMEM);
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &segment), 0);
  assert_taken(state, TOTAL);
  assert_int_equal(gap__dev_chunk_release(dev, c), 0);
  assert_taken(state, PAGE);
}

static void test_any_free_memory_serves_a_chunk(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap__chunk small[64];
  for (unsigned i = 0; i < 64; i++) small[i] = chunk(dev, PAGE);
  for (unsigned i = 0; i < 64; i += 2) assert_int_equal(gap__dev_chunk_release(dev, small[i]), 0);
  gap_addr addr = window(dev, 32 * PAGE);
  map(dev, addr, 32 * PAGE, chunk(dev, 32 * PAGE)); /* physical gaps do not matter */
  fill(state, addr, 32 * PAGE, 0xabcdef);
  expect(state, addr, 32 * PAGE, 0xabcdef);
  settle(state);
  assert_no_fault(state);
}

static void test_release_waits_for_the_last_unmap(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 4 * PAGE);
  gap__chunk c = chunk(dev, 2 * PAGE);
  map(dev, addr, 2 * PAGE, c);
  map(dev, addr + 2 * PAGE, 2 * PAGE, c);
  fill(state, addr, PAGE, 5);
  settle(state);
  assert_int_equal(gap__dev_chunk_release(dev, c), 0);
  assert_taken(state, 2 * PAGE);
  expect(state, addr + 2 * PAGE, PAGE, 5); /* the mappings still work */
  settle(state);
  assert_no_fault(state);
  assert_refused(gap__dev_chunk_release(dev, c));
  assert_int_equal(gap__dev_unmap(dev, addr, 2 * PAGE), 0);
  assert_taken(state, 2 * PAGE);
  assert_int_equal(gap__dev_unmap(dev, addr + 2 * PAGE, 2 * PAGE), 0);
  assert_taken(state, 0);
}

static void test_host_chunks_lie_beside_device_chunks(void **state) {
  struct gap__dev *dev = dev_of(state);
  if (!dev->caps.host_chunks) skip();
  gap_addr addr = window(dev, 2 * PAGE);
  gap__chunk c = 0;
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_HOST, &c), 0);
  assert_taken(state, 0);
  assert_int_equal(gap__dev_map(dev, addr, PAGE, c), 0);
  assert_int_equal(gap__dev_map(dev, addr + PAGE, PAGE, chunk(dev, PAGE)), 0);
  assert_int_equal(gap__dev_set_access(dev, addr, 2 * PAGE), 0);
  fill(state, addr, 2 * PAGE, 77);
  expect(state, addr + PAGE / 2, PAGE, 77);
  settle(state);
  assert_no_fault(state);
}

static void test_segments(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr one = 0, two = 0;
  assert_int_equal(gap__dev_segment_alloc(dev, 3 * PAGE, &one), 0);
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &two), 0);
  assert_true(one % PAGE == 0 && two % PAGE == 0);
  assert_taken(state, 4 * PAGE);
  fill(state, one, 3 * PAGE, 1);
  fill(state, two, PAGE, 2);
  expect(state, one, 3 * PAGE, 1);
  assert_refused(gap__dev_unmap(dev, two, PAGE));
  assert_refused(gap__dev_set_access(dev, two, PAGE));
  assert_refused(gap__dev_segment_free(dev, one + PAGE));
  gap_addr mapped = window(dev, PAGE);
  map(dev, mapped, PAGE, chunk(dev, PAGE));
  assert_refused(gap__dev_segment_free(dev, mapped));
  assert_int_equal(gap__dev_segment_free(dev, one), 0);
  assert_refused(gap__dev_segment_free(dev, one));
  assert_taken(state, 2 * PAGE);
}

static void test_segment_free_waits_for_the_device(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr segment = 0;
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &segment), 0);
  gap__event e = event(state), other = event(state);
  delay(state, stream_of(state));
  fill(state, segment, PAGE, 9);
  assert_int_equal(gap__dev_event_record(dev, e, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_record(dev, other, other_of(state)), 0);
  assert_int_equal(gap__dev_event_query(dev, e), GAP_EAGAIN);
  assert_int_equal(gap__dev_segment_free(dev, segment), 0);
  assert_int_equal(gap__dev_event_query(dev, e), 0);
  assert_int_equal(gap__dev_event_query(dev, other), 0);
  assert_no_fault(state);
}

static void test_events(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap__event e = event(state), later = event(state);
  assert_int_equal(gap__dev_event_query(dev, e), 0); /* never recorded */
  assert_int_equal(gap__dev_event_wait(dev, e), 0);
  delay(state, stream_of(state));
  assert_int_equal(gap__dev_event_record(dev, e, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_query(dev, e), GAP_EAGAIN);
  settle(state);
  assert_int_equal(gap__dev_event_query(dev, e), 0);
  delay(state, stream_of(state));
  assert_int_equal(gap__dev_event_record(dev, e, stream_of(state)), 0); /* again */
  assert_int_equal(gap__dev_event_record(dev, later, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_query(dev, e), GAP_EAGAIN);
  assert_int_equal(gap__dev_event_wait(dev, later), 0);
  assert_int_equal(gap__dev_event_query(dev, e), 0); /* stream order */
  assert_int_equal(gap__dev_event_record(dev, e, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_destroy(dev, e), 0); /* pending */
  settle(state);
  assert_no_fault(state);
}

static void test_captured_events_are_not_queried(void **state) {
  const struct fixture *f = *state;
  struct gap__dev *dev = f->dev;
  if (!f->backend->capture) skip();
  bool capturing = true;
  gap__event e = event(state);
  assert_int_equal(gap__dev_stream_capturing(dev, stream_of(state), &capturing), 0);
  assert_false(capturing);
  f->backend->capture(dev, stream_of(state), true);
  assert_int_equal(gap__dev_stream_capturing(dev, stream_of(state), &capturing), 0);
  assert_true(capturing);
  assert_int_equal(gap__dev_event_record(dev, e, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_query(dev, e), GAP_EDEVICE);
  assert_refused(gap__dev_event_wait(dev, e));
  f->backend->capture(dev, stream_of(state), false);
  assert_int_equal(gap__dev_event_record(dev, e, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_wait(dev, e), 0);
}

static void front_of(struct gap__dev *dev, gap_stream stream, uint64_t *capture, gap__node *node) {
  gap__node nodes[4] = {0};
  uint32_t count = 4;
  assert_int_equal(gap__dev_stream_front(dev, stream, capture, nodes, &count), 0);
  assert_int_equal(count, *capture ? 1 : 0);
  *node = nodes[0];
}

/* A captured stream's operations lie one behind the other, and behind those of the streams that it waits for. */
static void test_order_of_a_capture(void **state) {
  const struct fixture *f = *state;
  struct gap__dev *dev = f->dev;
  uint64_t capture = 1, joined, ended;
  gap__node node, first, second, third, before[4];
  if (!f->backend->capture) skip();
  gap_addr addr = window(dev, PAGE);
  map(dev, addr, PAGE, chunk(dev, PAGE));
  gap__event fork = event(state), join = event(state);
  front_of(dev, f->stream, &capture, &node);
  assert_int_equal(capture, 0);
  f->backend->capture(dev, f->stream, true);
  assert_int_equal(gap__dev_copy(dev, addr + 512, addr, 512, f->stream), 0);
  front_of(dev, f->stream, &capture, &first);
  assert_int_equal(gap__dev_event_record(dev, fork, f->stream), 0);
  assert_int_equal(gap__dev_stream_wait(dev, f->other, fork), 0);
  front_of(dev, f->other, &joined, &node);
  assert_true(capture != 0 && joined == capture && node == first);
  assert_int_equal(gap__dev_copy(dev, addr + 1024, addr, 512, f->other), 0);
  front_of(dev, f->other, &joined, &second);
  assert_true(second != first);
  assert_int_equal(gap__dev_event_record(dev, join, f->other), 0);
  assert_int_equal(gap__dev_copy(dev, addr + 1536, addr, 512, f->stream), 0);
  front_of(dev, f->stream, &joined, &node);
  assert_int_equal(gap__dev_stream_wait(dev, f->stream, join), 0);
  assert_int_equal(gap__dev_copy(dev, addr + 512, addr, 512, f->stream), 0);
  front_of(dev, f->stream, &joined, &third);
  uint32_t count = 4;
  assert_int_equal(gap__dev_node_before(dev, third, before, &count), 0);
  assert_int_equal(count, 2);
  assert_true((before[0] == node && before[1] == second) || (before[1] == node && before[0] == second));
  assert_int_equal(gap__dev_node_before(dev, second, before, &count), 0);
  assert_true(count == 1 && before[0] == first);
  f->backend->capture(dev, f->stream, false);
  front_of(dev, f->other, &ended, &node);
  assert_int_equal(ended, 0);
}

static void test_stream_ids(void **state) {
  struct gap__dev *dev = dev_of(state);
  uint64_t zero = 0, one = 0, own = 0, other = 0, again = 0;
  assert_int_equal(gap__dev_stream_id(dev, 0, &zero), 0);
  assert_int_equal(gap__dev_stream_id(dev, 1, &one), 0);
  assert_int_equal(gap__dev_stream_id(dev, 2, &own), 0);
  assert_int_equal(gap__dev_stream_id(dev, stream_of(state), &other), 0);
  assert_int_equal(gap__dev_stream_id(dev, stream_of(state), &again), 0);
  assert_true(zero == one && other == again);
  assert_true(own != zero && other != zero && other != own);
}

static void test_copy_in_stream_order(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap_addr addr = window(dev, 4 * PAGE);
  map(dev, addr, PAGE, chunk(dev, PAGE));
  map(dev, addr + PAGE, PAGE, chunk(dev, PAGE));
  fill(state, addr, PAGE, 1);
  assert_int_equal(gap__dev_copy(dev, addr + PAGE, addr, PAGE, stream_of(state)), 0);
  fill(state, addr, PAGE, 2);
  expect(state, addr + PAGE, PAGE, 1);
  expect(state, addr, PAGE, 2);
  gap__event e = event(state);
  assert_int_equal(gap__dev_event_record(dev, e, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_wait(dev, e), 0);
  assert_no_fault(state);
}

static void test_wait_value_blocks_its_stream_only(void **state) {
  struct gap__dev *dev = dev_of(state);
  if (!dev->caps.wait_values) {
    assert_int_equal(gap__dev_wait_value(dev, stream_of(state), PAGE, 1), GAP_ENOTSUP);
    assert_int_equal(gap__dev_write_value(dev, stream_of(state), PAGE, 1), GAP_ENOTSUP);
    return;
  }
  gap_addr addr = window(dev, PAGE);
  map(dev, addr, PAGE, chunk(dev, PAGE));
  gap__event behind = event(state), beside = event(state);
  assert_int_equal(gap__dev_wait_value(dev, stream_of(state), addr, 3), 0);
  assert_int_equal(gap__dev_event_record(dev, behind, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_record(dev, beside, other_of(state)), 0);
  assert_int_equal(gap__dev_write_value(dev, other_of(state), addr, 2), 0);
  settle(state);
  assert_int_equal(gap__dev_event_query(dev, behind), GAP_EAGAIN);
  assert_int_equal(gap__dev_event_query(dev, beside), 0);
  assert_int_equal(gap__dev_write_value(dev, other_of(state), addr, 4), 0); /* at least the value */
  assert_int_equal(gap__dev_event_wait(dev, behind), 0);
  assert_no_fault(state);
}

/* A gate lets what was queued before it through, and nothing that comes behind it. */
static void test_gate_holds_what_comes_behind(void **state) {
  struct gap__dev *dev = dev_of(state);
  static _Alignas(4096) _Atomic uint32_t memory[1024];
  gap_addr arrived = (uintptr_t)&memory[1], open = (uintptr_t)&memory[0];
  if (!dev->caps.gates) {
    assert_int_equal(gap__dev_gate(dev, stream_of(state), arrived, open, 1), GAP_ENOTSUP);
    return;
  }
  gap_addr addr = window(dev, PAGE);
  map(dev, addr, PAGE, chunk(dev, PAGE));
  memset((void *)memory, 0, sizeof memory);
  assert_int_equal(gap__dev_pin(dev, (void *)memory, sizeof memory), 0);
  gap__event before = event(state), behind = event(state), beside = event(state);
  delay(state, stream_of(state));
  fill(state, addr, PAGE, 5);
  assert_int_equal(gap__dev_event_record(dev, before, stream_of(state)), 0);
  assert_int_equal(gap__dev_gate(dev, stream_of(state), arrived, open, 1), 0);
  fill(state, addr, PAGE, 6);
  assert_int_equal(gap__dev_event_record(dev, behind, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_record(dev, beside, other_of(state)), 0);
  settle(state); /* who only looks at a word makes nothing run */
  assert_int_equal(gap__dev_value_await(dev, arrived, 1, 5000000000u), 0);
  assert_int_equal(atomic_load(&memory[1]), 1);
  assert_int_equal(gap__dev_event_query(dev, before), 0);
  settle(state);
  assert_int_equal(gap__dev_event_query(dev, behind), GAP_EAGAIN);
  assert_int_equal(gap__dev_event_query(dev, beside), 0);
  atomic_store(&memory[0], 1);
  assert_int_equal(gap__dev_event_wait(dev, behind), 0);
  expect(state, addr, PAGE, 6);
  assert_int_equal(gap__dev_gate(dev, stream_of(state), arrived, open, 1), 0); /* that one is open already */
  settle(state);
  assert_no_fault(state);
  assert_int_equal(gap__dev_unpin(dev, (void *)memory, sizeof memory), 0);
}

/* Behind a closed gate memory may be exchanged at addresses that queued work names. */
static void test_gate_allows_exchange(void **state) {
  struct gap__dev *dev = dev_of(state);
  static _Alignas(4096) _Atomic uint32_t memory[1024];
  gap_addr arrived = (uintptr_t)&memory[1], open = (uintptr_t)&memory[0], addr = window(dev, 2 * PAGE);
  if (!dev->caps.gates) return;
  memset((void *)memory, 0, sizeof memory);
  assert_int_equal(gap__dev_pin(dev, (void *)memory, sizeof memory), 0);
  gap__chunk one = chunk(dev, PAGE), two = chunk(dev, PAGE);
  map(dev, addr, PAGE, one);
  map(dev, addr + PAGE, PAGE, two);
  fill(state, addr, PAGE, 5);
  assert_int_equal(gap__dev_gate(dev, stream_of(state), arrived, open, 1), 0);
  expect(state, addr, PAGE, 5);
  settle(state); /* who only looks at a word makes nothing run */
  assert_int_equal(gap__dev_value_await(dev, arrived, 1, 5000000000u), 0);
  assert_int_equal(gap__dev_copy(dev, addr + PAGE, addr, PAGE, other_of(state)), 0);
  gap__event copied = event(state);
  assert_int_equal(gap__dev_event_record(dev, copied, other_of(state)), 0);
  assert_int_equal(gap__dev_event_wait(dev, copied), 0);
  assert_int_equal(gap__dev_unmap(dev, addr, PAGE), 0);
  map(dev, addr, PAGE, two);
  assert_int_equal(gap__dev_unmap(dev, addr + PAGE, PAGE), 0);
  atomic_store(&memory[0], 1);
  settle(state);
  assert_no_fault(state);
  assert_int_equal(gap__dev_unpin(dev, (void *)memory, sizeof memory), 0);
}

static void test_gate_that_nothing_reaches(void **state) {
  struct gap__dev *dev = dev_of(state);
  static _Alignas(4096) _Atomic uint32_t memory[1024];
  gap_addr word = (uintptr_t)&memory[1], open = (uintptr_t)&memory[0];
  if (!dev->caps.gates) return;
  memset((void *)memory, 0, sizeof memory);
  assert_int_equal(gap__dev_pin(dev, (void *)memory, sizeof memory), 0);
  atomic_store(&memory[0], 1); /* the first one is open */
  assert_int_equal(gap__dev_gate(dev, stream_of(state), word, open, 1), 0);
  settle(state);
  assert_int_equal(gap__dev_value_await(dev, word, 1, 5000000000u), 0);
  ((struct fixture *)*state)->backend->capture(dev, other_of(state), true);
  assert_int_equal(gap__dev_gate(dev, other_of(state), word, open, 2) != 0, is_strict(state));
  ((struct fixture *)*state)->backend->capture(dev, other_of(state), false);
  if (strcmp(dev->ops->name, "sim") != 0 && is_strict(state))
    assert_int_equal(gap__dev_value_await(dev, word, 3, 2000000), GAP_EAGAIN);
  settle(state);
  assert_int_equal(gap__dev_unpin(dev, (void *)memory, sizeof memory), 0);
}

/* The processor writes what a stream waits for, and copies reach both ways. */
static void test_pinned_memory_is_the_devices_too(void **state) {
  struct gap__dev *dev = dev_of(state);
  static _Alignas(4096) _Atomic uint32_t memory[1024];
  gap_addr here = (uintptr_t)memory, addr = window(dev, PAGE);
  map(dev, addr, PAGE, chunk(dev, PAGE));
  assert_int_equal(gap__dev_pin(dev, (void *)memory, sizeof memory), 0);
  atomic_store(&memory[0], 0);
  gap__event behind = event(state);
  if (dev->caps.wait_values) assert_int_equal(gap__dev_wait_value(dev, stream_of(state), here, 1), 0);
  assert_int_equal(gap__dev_copy(dev, addr, here, 64, stream_of(state)), 0);
  assert_int_equal(gap__dev_copy(dev, here + 64, addr, 64, stream_of(state)), 0);
  assert_int_equal(gap__dev_event_record(dev, behind, stream_of(state)), 0);
  if (dev->caps.wait_values) assert_int_equal(gap__dev_event_query(dev, behind), GAP_EAGAIN);
  atomic_store(&memory[0], 7);
  assert_int_equal(gap__dev_event_wait(dev, behind), 0);
  if (((struct fixture *)*state)->backend->fill) assert_int_equal(atomic_load(&memory[16]), 7);
  assert_int_equal(gap__dev_unpin(dev, (void *)memory, sizeof memory), 0);
}

static void test_pins_balance(void **state) {
  struct gap__dev *dev = dev_of(state);
  static char memory[4096];
  assert_int_equal(gap__dev_pin(dev, memory, sizeof memory), 0);
  assert_refused(gap__dev_pin(dev, memory, sizeof memory));
  assert_refused(gap__dev_unpin(dev, memory + 1, sizeof memory));
  assert_int_equal(gap__dev_unpin(dev, memory, sizeof memory), 0);
  assert_refused(gap__dev_unpin(dev, memory, sizeof memory));
}

static void test_calls_are_counted_once(void **state) {
  struct gap__dev *dev = dev_of(state);
  gap__chunk none;
  chunk(dev, PAGE);
  gap__dev_chunk_create(dev, dev->caps.total_bytes + PAGE, GAP__PLACE_DEVICE,
                        &none); /* failures count: they cost time */
  gap__dev_background(dev, true);
  chunk(dev, PAGE);
  gap__dev_background(dev, false);
  chunk(dev, PAGE);
  assert_int_equal(dev->counters.calls[GAP__CALL_chunk_create], 3);
  assert_int_equal(dev->counters.background_calls[GAP__CALL_chunk_create], 1);
  assert_true(dev->counters.ns[GAP__CALL_chunk_create] > 0);
  assert_true(dev->counters.background_ns[GAP__CALL_chunk_create] > 0);
  assert_int_equal(dev->counters.calls[GAP__CALL_map], 0);
  assert_string_equal(gap__dev_call_name(GAP__CALL_chunk_create), "chunk_create");
}

static void test_clock_is_monotonic(void **state) {
  struct gap__dev *dev = dev_of(state);
  uint64_t last = gap__dev_now_ns(dev);
  for (unsigned i = 0; i < 100; i++) {
    gap__dev_chunk_release(dev, chunk(dev, PAGE));
    uint64_t now = gap__dev_now_ns(dev);
    assert_true(now >= last);
    last = now;
  }
}

#define RULE(name) \
  { #name, name, set_up, tear_down, NULL }
static const struct CMUnitTest rules[] = {
    RULE(test_caps),
    RULE(test_streams_of_our_own_are_apart),
    RULE(test_windows_are_aligned_and_apart),
    RULE(test_windows_cost_no_memory),
    RULE(test_unreserve_needs_the_whole_empty_window),
    RULE(test_chunk_maps_whole),
    RULE(test_unmap_takes_exactly_one_mapping),
    RULE(test_no_map_over_a_mapping_or_outside_windows),
    RULE(test_unknown_handles),
    RULE(test_alias_sees_the_same_bytes),
    RULE(test_alias_for_reading),
    RULE(test_access_spans_neighbours_but_no_hole),
    RULE(test_no_use_before_access),
    RULE(test_more_than_there_is),
    RULE(test_memory_is_finite),
    RULE(test_any_free_memory_serves_a_chunk),
    RULE(test_release_waits_for_the_last_unmap),
    RULE(test_host_chunks_lie_beside_device_chunks),
    RULE(test_segments),
    RULE(test_segment_free_waits_for_the_device),
    RULE(test_events),
    RULE(test_captured_events_are_not_queried),
    RULE(test_order_of_a_capture),
    RULE(test_stream_ids),
    RULE(test_copy_in_stream_order),
    RULE(test_wait_value_blocks_its_stream_only),
    RULE(test_gate_holds_what_comes_behind),
    RULE(test_gate_allows_exchange),
    RULE(test_gate_that_nothing_reaches),
    RULE(test_pinned_memory_is_the_devices_too),
    RULE(test_pins_balance),
    RULE(test_calls_are_counted_once),
    RULE(test_clock_is_monotonic),
};
enum { RULE_COUNT = sizeof rules / sizeof *rules };

static int run(const struct backend *backend) {
  struct CMUnitTest tests[RULE_COUNT];
  const char *absent = backend->absent ? backend->absent() : NULL;
  if (absent) {
    printf("conformance of %s skipped: %s\n", backend->name, absent);
    return 0;
  }
  for (size_t i = 0; i < RULE_COUNT; i++) {
    tests[i] = rules[i];
    tests[i].initial_state = (void *)(uintptr_t)backend;
  }
  return _cmocka_run_group_tests(backend->name, tests, RULE_COUNT, NULL, NULL);
}

/* All backends, or those named. */
int main(int argc, char **argv) {
  int failed = 0;
  for (size_t b = 0; b < backend_count; b++) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; i++) wanted |= strcmp(argv[i], backends[b].name) == 0;
    if (wanted) failed += run(&backends[b]);
  }
  return failed;
}
