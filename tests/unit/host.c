/* The host backend: faults are counted, queues run in order and when told, threads share it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/host/host.h"

#define PAGE GAP__PAGE

static struct gap__dev *host_with(struct gap__host_params params) {
  struct gap__dev *dev = NULL;
  if (params.total_bytes == 0) params.total_bytes = 32 * PAGE;
  assert_int_equal(gap__host_create(0, &params, &dev), 0);
  return dev;
}
#define host(...) host_with((struct gap__host_params){__VA_ARGS__})

static gap_addr window(struct gap__dev *dev, uint64_t bytes) {
  gap_addr addr = 0;
  assert_int_equal(gap__dev_reserve(dev, bytes, PAGE, &addr), 0);
  return addr;
}
static gap__chunk put(struct gap__dev *dev, gap_addr addr, uint64_t bytes) {
  gap__chunk chunk = 0;
  assert_int_equal(gap__dev_chunk_create(dev, bytes, GAP__PLACE_DEVICE, &chunk), 0);
  assert_int_equal(gap__dev_map(dev, addr, bytes, chunk), 0);
  assert_int_equal(gap__dev_set_access(dev, addr, bytes), 0);
  return chunk;
}

static void test_wrong_contents_are_a_fault(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = false);
  gap_addr addr = window(dev, PAGE);
  put(dev, addr, PAGE);
  gap__host_fill(dev, addr, 1001, 0x0102030405060708, 7);
  gap__host_expect(dev, addr, 1001, 0x0102030405060708, 7);
  assert_int_equal(gap__host_faults(dev), 0);
  gap__host_expect(dev, addr, 1002, 0x0102030405060708, 7); /* the last byte alone differs */
  assert_int_equal(gap__host_faults(dev), 1);
  gap__host_expect(dev, addr + 1, 8, 0x0102030405060708, 7);
  assert_int_equal(gap__host_faults(dev), 2);
  gap__dev_destroy(dev);
}

static void test_use_of_unmapped_memory_is_a_fault(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = false);
  gap_addr addr = window(dev, 2 * PAGE);
  put(dev, addr, PAGE);
  assert_int_equal(gap__host_fill(dev, addr, PAGE + 1, 1, 7), GAP_EINVAL);
  assert_int_equal(gap__host_faults(dev), 1);
  assert_int_equal(gap__host_fill(dev, UINT64_MAX - 1, 8, 1, 7), GAP_EINVAL);
  assert_int_equal(gap__host_faults(dev), 2);
  gap__dev_destroy(dev);
}

static void test_unmap_under_queued_work_is_a_fault(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = true);
  gap_addr addr = window(dev, 2 * PAGE);
  put(dev, addr, PAGE);
  put(dev, addr + PAGE, PAGE);
  gap__host_fill(dev, addr, 8, 1, 7);
  assert_int_equal(gap__dev_unmap(dev, addr + PAGE, PAGE), 0); /* not used: fine */
  assert_int_equal(gap__host_faults(dev), 0);
  assert_int_equal(gap__dev_unmap(dev, addr, PAGE), 0); /* returns at once, as the driver does */
  assert_int_equal(gap__host_faults(dev), 1);
  put(dev, addr, PAGE); /* other memory at the address: the queued work meant the old */
  gap__host_run_all(dev);
  assert_int_equal(gap__host_faults(dev), 2);
  gap__host_expect(dev, addr, PAGE, 0, 7); /* and it was not written */
  gap__host_run_all(dev);
  assert_int_equal(gap__host_faults(dev), 2);
  assert_int_equal(gap__dev_unmap(dev, addr, PAGE), 0); /* no use was left over */
  assert_int_equal(gap__host_faults(dev), 2);
  gap__dev_destroy(dev);
}

/* The move the allocator makes: alias first, unmap the old address when its event has passed. */
static void test_alias_first_is_no_fault(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = true);
  gap_addr old = window(dev, PAGE), new = window(dev, PAGE);
  gap__chunk chunk = put(dev, old, PAGE);
  gap__event event = 0;
  gap__dev_event_create(dev, 7, &event);
  gap__host_fill(dev, old, PAGE, 0xaa, 7);
  gap__dev_event_record(dev, event, 7);
  assert_int_equal(gap__dev_map(dev, new, PAGE, chunk), 0);
  assert_int_equal(gap__dev_set_access(dev, new, PAGE), 0);
  gap__host_expect(dev, new, PAGE, 0xaa, 7);
  gap__host_fill(dev, new, PAGE, 0xbb, 7);
  gap__host_run(dev, 7, 2); /* the fill and the event */
  assert_int_equal(gap__dev_event_query(dev, event), 0);
  assert_int_equal(gap__dev_unmap(dev, old, PAGE), 0);
  gap__host_run_all(dev);
  gap__host_expect(dev, new, PAGE, 0xbb, 7);
  gap__host_run_all(dev);
  assert_int_equal(gap__host_faults(dev), 0);
  gap__dev_destroy(dev);
}

static void test_misuse_is_a_fault(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = false);
  gap_addr addr = window(dev, PAGE);
  assert_int_equal(gap__dev_chunk_release(dev, 4711), GAP_EINVAL);
  assert_int_equal(gap__dev_unmap(dev, addr, PAGE), GAP_EINVAL);
  assert_int_equal(gap__dev_segment_free(dev, addr), GAP_EINVAL);
  assert_int_equal(gap__dev_event_query(dev, 4711), GAP_EINVAL);
  assert_int_equal(gap__host_faults(dev), 4);
  gap__dev_destroy(dev);
}

static void test_run_counts(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = true);
  gap__event events[3];
  for (int i = 0; i < 3; i++) {
    gap__dev_event_create(dev, 7, &events[i]);
    gap__dev_event_record(dev, events[i], 7);
  }
  gap__host_run(dev, 8, UINT64_MAX); /* another stream */
  assert_int_equal(gap__dev_event_query(dev, events[0]), GAP_EAGAIN);
  gap__host_run(dev, 7, 2);
  assert_int_equal(gap__dev_event_query(dev, events[1]), 0);
  assert_int_equal(gap__dev_event_query(dev, events[2]), GAP_EAGAIN);
  gap__dev_event_wait(dev, events[2]);
  assert_int_equal(gap__dev_event_query(dev, events[2]), 0);
  gap__dev_destroy(dev);
}

static void test_waiting_runs_no_more_than_needed(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = true);
  gap__event early = 0, late = 0, other = 0;
  gap__dev_event_create(dev, 7, &early);
  gap__dev_event_create(dev, 7, &late);
  gap__dev_event_create(dev, 8, &other);
  gap__dev_event_record(dev, early, 7);
  gap__dev_event_record(dev, late, 7);
  gap__dev_event_record(dev, other, 8);
  gap__dev_event_wait(dev, early);
  assert_int_equal(gap__dev_event_query(dev, late), GAP_EAGAIN);
  assert_int_equal(gap__dev_event_query(dev, other), GAP_EAGAIN);
  gap__dev_destroy(dev);
}

static void test_reused_memory_is_clean(void **state) {
  (void)state;
  struct gap__dev *dev = host(.total_bytes = 2 * PAGE);
  gap_addr addr = window(dev, 2 * PAGE);
  for (int round = 0; round < 3; round++) {
    gap__chunk chunk = put(dev, addr, 2 * PAGE);
    gap__host_expect(dev, addr, 2 * PAGE, 0, 7);
    gap__host_fill(dev, addr, 2 * PAGE, UINT64_MAX, 7);
    assert_int_equal(gap__dev_unmap(dev, addr, 2 * PAGE), 0);
    assert_int_equal(gap__dev_chunk_release(dev, chunk), 0);
  }
  assert_int_equal(gap__host_faults(dev), 0);
  assert_int_equal(gap__host_chunk_bytes(dev), 0);
  gap__dev_destroy(dev);
}

static void test_window_limits(void **state) {
  (void)state;
  struct gap__dev *dev = host(.window_max_bytes = 4 * PAGE, .address_budget_bytes = 6 * PAGE);
  gap_addr addr = 0, segment = 0;
  assert_int_equal(gap__dev_reserve(dev, 8 * PAGE, PAGE, &addr), GAP_ENOTSUP);
  addr = window(dev, 4 * PAGE);
  assert_int_equal(gap__dev_segment_alloc(dev, 8 * PAGE, &segment), 0); /* not of the caller's budget */
  assert_int_equal(gap__dev_reserve(dev, 4 * PAGE, PAGE, &addr), GAP_ENOMEM);
  assert_int_equal(gap__dev_unreserve(dev, addr, 4 * PAGE), 0);
  window(dev, 4 * PAGE);
  gap__dev_destroy(dev);
}

static int count(void *arg, const struct gap__dev_mapping *mapping) {
  uint64_t *bytes = arg;
  assert_true(mapping->accessible);
  *bytes += mapping->bytes + (mapping->chunk == 0);
  return 0;
}

static void test_walk(void **state) {
  (void)state;
  struct gap__dev *dev = host(.manual = false);
  gap_addr segment = 0;
  uint64_t bytes = 0;
  put(dev, window(dev, 4 * PAGE), 4 * PAGE);
  gap__dev_segment_alloc(dev, PAGE, &segment);
  assert_int_equal(gap__host_walk(dev, count, &bytes), 0);
  assert_int_equal(bytes, 5 * PAGE + 1);
  gap__dev_destroy(dev);
}

struct worker {
  struct gap__dev *dev;
  gap_stream stream;
  pthread_t thread;
};

static void *churn(void *arg) {
  const struct worker *worker = arg;
  struct gap__dev *dev = worker->dev;
  gap_addr addr = 0;
  gap__event event = 0;
  gap__dev_reserve(dev, 2 * PAGE, PAGE, &addr);
  gap__dev_event_create(dev, worker->stream, &event);
  for (uint64_t round = 0; round < 60; round++) {
    gap__chunk chunk = 0;
    gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &chunk);
    gap__dev_map(dev, addr, PAGE, chunk);
    gap__dev_set_access(dev, addr, PAGE);
    gap__host_fill(dev, addr, 65536, round << 8 | worker->stream, worker->stream);
    gap__dev_map(dev, addr + PAGE, PAGE, chunk);
    gap__dev_set_access(dev, addr + PAGE, PAGE);
    gap__host_expect(dev, addr + PAGE, 65536, round << 8 | worker->stream, worker->stream);
    gap__dev_event_record(dev, event, worker->stream);
    gap__dev_event_wait(dev, event);
    gap__dev_unmap(dev, addr, PAGE);
    gap__dev_chunk_release(dev, chunk);
    gap__dev_unmap(dev, addr + PAGE, PAGE);
  }
  gap__dev_event_destroy(dev, event);
  gap__dev_unreserve(dev, addr, 2 * PAGE);
  return NULL;
}

static void threads_churn(bool manual) {
  struct gap__dev *dev = host(.manual = manual);
  struct worker workers[4];
  for (unsigned i = 0; i < 4; i++) {
    workers[i] = (struct worker){.dev = dev, .stream = 100 + i};
    assert_int_equal(pthread_create(&workers[i].thread, NULL, churn, &workers[i]), 0);
  }
  for (unsigned i = 0; i < 4; i++) pthread_join(workers[i].thread, NULL);
  assert_int_equal(gap__host_faults(dev), 0);
  assert_int_equal(gap__host_chunk_bytes(dev), 0);
  assert_int_equal(dev->counters.calls[GAP__CALL_unmap], 4 * 60 * 2);
  gap__dev_destroy(dev);
}

static void test_threads(void **state) {
  (void)state;
  threads_churn(false);
  threads_churn(true);
}

struct gate {
  struct gap__dev *dev;
  gap_addr addr;
  atomic_bool opened;
};

static void *open_gate(void *arg) {
  struct gate *gate = arg;
  atomic_store(&gate->opened, true);
  gap__dev_write_value(gate->dev, 8, gate->addr, 1);
  return NULL;
}

static void test_wait_value_is_released_by_another_thread(void **state) {
  (void)state;
  struct gate gate = {.dev = host(.manual = false)};
  gate.addr = window(gate.dev, PAGE);
  put(gate.dev, gate.addr, PAGE);
  gap__event event = 0;
  gap__dev_event_create(gate.dev, 7, &event);
  gap__dev_wait_value(gate.dev, 7, gate.addr, 1);
  gap__dev_event_record(gate.dev, event, 7);
  assert_int_equal(gap__dev_event_query(gate.dev, event), GAP_EAGAIN);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, open_gate, &gate), 0);
  assert_int_equal(gap__dev_event_wait(gate.dev, event), 0);
  assert_true(atomic_load(&gate.opened));
  pthread_join(thread, NULL);
  assert_int_equal(gap__host_faults(gate.dev), 0);
  gap__dev_destroy(gate.dev);
}

static void *own_stream_id(void *arg) {
  struct worker *worker = arg;
  uint64_t id = 0;
  gap__dev_stream_id(worker->dev, 2, &id);
  worker->stream = id;
  return NULL;
}

static void test_per_thread_stream(void **state) {
  (void)state;
  struct worker worker = {.dev = host(.manual = false)};
  uint64_t own = 0;
  gap__dev_stream_id(worker.dev, 2, &own);
  assert_int_equal(pthread_create(&worker.thread, NULL, own_stream_id, &worker), 0);
  pthread_join(worker.thread, NULL);
  assert_true(worker.stream != 0 && worker.stream != own);
  gap__dev_destroy(worker.dev);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wrong_contents_are_a_fault),
      cmocka_unit_test(test_use_of_unmapped_memory_is_a_fault),
      cmocka_unit_test(test_unmap_under_queued_work_is_a_fault),
      cmocka_unit_test(test_alias_first_is_no_fault),
      cmocka_unit_test(test_misuse_is_a_fault),
      cmocka_unit_test(test_run_counts),
      cmocka_unit_test(test_waiting_runs_no_more_than_needed),
      cmocka_unit_test(test_reused_memory_is_clean),
      cmocka_unit_test(test_window_limits),
      cmocka_unit_test(test_walk),
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_wait_value_is_released_by_another_thread),
      cmocka_unit_test(test_per_thread_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
