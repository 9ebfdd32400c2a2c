/* The cuda backend on the fake driver: what the probe gives up and says, entry points missing by name, errors, and that a call
 * leaves no trace in the calling thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev/cuda/state.h"
#include "dev/host/host.h"
#include "support/fake_cuda.h"

#define PAGE GAP__PAGE

static struct {
  unsigned count;
  char last[512];
} lines;

static void log_line(void *arg, int level, const char *line) {
  (void)arg;
  (void)level;
  lines.count++;
  snprintf(lines.last, sizeof lines.last, "%s", line);
}

static int start(void **state) {
  (void)state;
  lines.count = 0;
  lines.last[0] = '\0';
  gap_set_log(log_line, NULL);
  return 0;
}

static int create(const struct fake_cuda_settings *settings, struct gap__dev **out) {
  fake_cuda_reset(settings);
  return gap__cuda_create(1, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA, .rdma = true}, out);
}

static struct gap__dev *open_device(const struct fake_cuda_settings *settings) {
  struct gap__dev *dev = NULL;
  assert_int_equal(create(settings, &dev), 0);
  return dev;
}

/* Every test ends so: nothing wrong was done, the context is given back. */
static void close_device(struct gap__dev *dev) {
  gap__dev_destroy(dev);
  assert_int_equal(fake_cuda_wrong(), 0);
  assert_int_equal(fake_cuda_retained(1), 0);
  assert_int_equal(fake_cuda_depth(), 0);
  assert_int_equal(fake_cuda_capture_mode(), GAP__CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void assert_said(const char *part) {
  if (!strstr(lines.last, part)) fail_msg("\"%s\" does not say \"%s\"", lines.last, part);
}

static void test_everything_works(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  const struct gap__cuda_info *info = gap__cuda_info(dev);
  assert_true(info->vmm && info->exportable && info->rdma && info->host_chunks && info->wait_values &&
              info->stream_ids);
  assert_true(dev->caps.vmm && dev->caps.exportable && dev->caps.rdma && dev->caps.host_chunks &&
              dev->caps.wait_values);
  assert_int_equal(info->driver_version, 13000);
  assert_string_equal(info->name, "Fake 1");
  assert_int_equal(info->uuid[15], 0xA1);
  assert_int_equal(dev->caps.uuid[15], 0xA1);
  assert_int_equal(info->capability_major, 9);
  assert_string_equal(info->missing, "");
  assert_string_equal(info->fallback, "");
  assert_int_equal(lines.count, 0);
  assert_int_equal(gap__host_chunk_bytes(fake_cuda_host(1)), 0); /* the probe left nothing behind */
  close_device(dev);
}

static void test_flags_are_given_up_one_by_one(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){.refuses = FAKE_CUDA_RDMA});
  const struct gap__cuda_info *info = gap__cuda_info(dev);
  assert_true(info->vmm && info->exportable && !info->rdma);
  assert_non_null(strstr(info->fallback, "network card may reach: cuMemCreate: CUDA_ERROR_NOT_SUPPORTED (801)"));
  close_device(dev);
  dev = open_device(&(struct fake_cuda_settings){.refuses = FAKE_CUDA_RDMA | FAKE_CUDA_EXPORT});
  info = gap__cuda_info(dev);
  assert_true(info->vmm && !info->exportable && !info->rdma);
  int fd;
  assert_int_equal(gap__dev_chunk_export(dev, 1, &fd), GAP_ENOTSUP);
  close_device(dev);
  dev = open_device(&(struct fake_cuda_settings){.lacks = FAKE_CUDA_RDMA | FAKE_CUDA_EXPORT | FAKE_CUDA_HOST_CHUNKS});
  info = gap__cuda_info(dev);
  assert_true(info->vmm && !info->exportable && !info->rdma && !info->host_chunks);
  assert_string_equal(info->fallback, ""); /* not claimed, so not tried in vain */
  gap__chunk none;
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_HOST, &none), GAP_ENOTSUP);
  close_device(dev);
  assert_int_equal(lines.count, 0);
}

static void test_host_chunks_and_values_are_tried(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){.refuses = FAKE_CUDA_HOST_CHUNKS | FAKE_CUDA_VALUES});
  assert_true(dev->caps.vmm && dev->caps.exportable && !dev->caps.host_chunks && !dev->caps.wait_values);
  assert_non_null(strstr(gap__cuda_info(dev)->fallback, "no host page"));
  assert_non_null(strstr(gap__cuda_info(dev)->fallback, "no waiting for values"));
  assert_int_equal(gap__dev_write_value(dev, 0, PAGE, 1), GAP_ENOTSUP);
  close_device(dev);
}

/* Memory comes in segments, and one line says why. */
static void check_segments_only(const struct fake_cuda_settings *settings, const char *why) {
  lines.count = 0;
  struct gap__dev *dev = open_device(settings);
  gap_addr addr;
  gap__chunk chunk;
  assert_false(dev->caps.vmm || dev->caps.exportable || dev->caps.rdma || dev->caps.host_chunks);
  assert_int_equal(dev->caps.granularity_bytes, PAGE);
  assert_int_equal(lines.count, 1);
  assert_said("device 1 (Fake 1): memory comes in segments by cuMemAlloc");
  assert_said(why);
  assert_int_equal(gap__dev_reserve(dev, PAGE, PAGE, &addr), GAP_ENOTSUP);
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &chunk), GAP_ENOTSUP);
  assert_int_equal(gap__dev_segment_alloc(dev, 3 * PAGE, &addr), 0);
  assert_int_equal(gap__dev_segment_free(dev, addr), 0);
  close_device(dev);
}

static void test_without_vmm(void **state) {
  (void)state;
  check_segments_only(&(struct fake_cuda_settings){.lacks = FAKE_CUDA_VMM}, "no virtual memory management");
  check_segments_only(&(struct fake_cuda_settings){.refuses = FAKE_CUDA_VMM}, "no page can be mapped: cuMemCreate");
  check_segments_only(&(struct fake_cuda_settings){.granularity_bytes = 4 * PAGE}, "granularity is not 2 MiB");
  check_segments_only(&(struct fake_cuda_settings){.missing = "cuMemMap cuMemSetAccess"}, "entry points are missing");
  check_segments_only(&(struct fake_cuda_settings){.window_max_bytes = 1},
                      "no page can be mapped: cuMemAddressReserve");
}

static void test_vmm_switched_off(void **state) {
  (void)state;
  struct gap__dev *dev;
  fake_cuda_reset(&(struct fake_cuda_settings){0});
  struct gap__cuda_params params = {.driver = GAP_TEST_FAKE_CUDA, .no_vmm = true};
  assert_int_equal(gap__cuda_create(1, &params, &dev), 0);
  assert_false(dev->caps.vmm);
  assert_said("switched off");
  assert_int_equal(fake_cuda_calls("cuMemCreate"), 0);
  close_device(dev);
}

static void test_a_full_card_proves_nothing(void **state) {
  (void)state;
  struct gap__dev *dev;
  fake_cuda_reset(&(struct fake_cuda_settings){0});
  fake_cuda_fail("cuMemCreate", GAP__CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
  assert_int_equal(gap__cuda_create(1, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, &dev), 0);
  assert_true(dev->caps.vmm && dev->caps.exportable && !dev->caps.rdma); /* not asked for */
  close_device(dev);
}

static void test_missing_entry_points_by_name(void **state) {
  (void)state;
  struct gap__dev *dev = NULL;
  assert_int_equal(create(&(struct fake_cuda_settings){.missing = "cuEventRecord cuMemAlloc"}, &dev), GAP_ENOTSUP);
  assert_said("missing entry points: cuMemAlloc cuEventRecord");
  dev = open_device(&(struct fake_cuda_settings){.missing = "cuStreamGetId cuStreamWaitValue32 cuDeviceGetUuid"});
  assert_string_equal(gap__cuda_info(dev)->missing, "cuDeviceGetUuid cuStreamGetId cuStreamWaitValue32");
  assert_true(dev->caps.vmm && !dev->caps.wait_values);
  uint64_t zero, one, own, other;
  assert_int_equal(gap__dev_stream_id(dev, 0, &zero), 0);
  assert_int_equal(gap__dev_stream_id(dev, 1, &one), 0);
  assert_int_equal(gap__dev_stream_id(dev, 2, &own), 0);
  assert_int_equal(gap__dev_stream_id(dev, 77, &other), 0);
  assert_true(zero == one && own != zero && other == 77);
  close_device(dev);
}

/* Optional, and no answer where an order in the graph is less than one of ends. */
static void test_the_order_of_a_graph_may_be_untold(void **state) {
  (void)state;
  uint64_t capture = 7;
  gap__node node = 0;
  uint32_t count = 1;
  struct gap__dev *dev =
      open_device(&(struct fake_cuda_settings){.missing = "cuStreamGetCaptureInfo cuGraphNodeGetDependencies"});
  assert_int_equal(gap__dev_stream_front(dev, 77, &capture, &node, &count), GAP_ENOTSUP);
  assert_int_equal(gap__dev_node_before(dev, 1, &node, &count), GAP_ENOTSUP);
  close_device(dev);
  dev = open_device(&(struct fake_cuda_settings){0});
  fake_cuda_fail("cuStreamGetCaptureInfo", GAP__CUDA_ERROR_LOSSY_QUERY, 0, 1);
  assert_int_equal(gap__dev_stream_front(dev, 77, &capture, &node, &count), GAP_ENOTSUP);
  fake_cuda_fail("cuGraphNodeGetDependencies", GAP__CUDA_ERROR_LOSSY_QUERY, 0, 1);
  assert_int_equal(gap__dev_node_before(dev, 1, &node, &count), GAP_ENOTSUP);
  assert_int_equal(gap__dev_stream_front(dev, 0, &capture, &node, &count), 0); /* the legacy stream is in no capture */
  assert_true(capture == 0 && count == 0);
  close_device(dev);
}

static void test_no_driver_no_device(void **state) {
  (void)state;
  struct gap__dev *dev = NULL;
  int count = -1;
  struct gap__cuda_params none = {.driver = "libno-such-driver.so"}, fake = {.driver = GAP_TEST_FAKE_CUDA};
  assert_int_equal(gap__cuda_create(0, &none, &dev), GAP_ENOTSUP);
  assert_int_equal(gap__cuda_device_count(&none, &count), GAP_ENOTSUP);
  assert_said("libno-such-driver.so");
  struct gap__cuda_params old = {.driver = "libm.so.6"}; /* has no cuGetProcAddress_v2 either */
  lines.count = 0;
  assert_int_equal(gap__cuda_create(0, &old, &dev), GAP_ENOTSUP);
  assert_said("a driver for CUDA 12.0 or newer is needed");
  assert_int_equal(lines.count, 1);
  fake_cuda_reset(&(struct fake_cuda_settings){.device_count = 2});
  assert_int_equal(gap__cuda_device_count(&fake, &count), 0);
  assert_int_equal(count, 2);
  assert_int_equal(gap__cuda_create(2, &fake, &dev), GAP_EDEVICE);
  assert_said("CUDA_ERROR_INVALID_DEVICE (101)");
  fake_cuda_fail("cuInit", GAP__CUDA_ERROR_NO_DEVICE, 0, 1);
  assert_int_equal(gap__cuda_create(0, &fake, &dev), GAP_EDEVICE);
  assert_said("CUDA_ERROR_NO_DEVICE (100)");
}

/* Opening fails at every call in turn: nothing is left behind. */
static void test_opening_fails_anywhere(void **state) {
  (void)state;
  unsigned opened = 0, refused = 0;
  for (uint64_t after = 0; after < 400; after++) {
    struct gap__dev *dev = NULL;
    fake_cuda_reset(&(struct fake_cuda_settings){0});
    fake_cuda_fail(NULL, GAP__CUDA_ERROR_LAUNCH_FAILED, after, UINT64_MAX);
    int rc = gap__cuda_create(1, &(struct gap__cuda_params){.driver = GAP_TEST_FAKE_CUDA}, &dev);
    fake_cuda_fail(NULL, 0, 0, 0);
    assert_true(rc == 0 || rc == GAP_EDEVICE);
    opened += rc == 0;
    refused += rc != 0;
    if (rc == 0) gap__dev_destroy(dev);
  }
  assert_true(opened > 100 && refused > 50);
}

static void test_errors_have_words(void **state) {
  (void)state;
  char text[256];
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  gap_addr addr;
  const struct {
    unsigned theirs;
    int ours;
  } codes[] = {{GAP__CUDA_ERROR_OUT_OF_MEMORY, GAP_ENOMEM},   {GAP__CUDA_ERROR_INVALID_VALUE, GAP_EINVAL},
               {GAP__CUDA_ERROR_NOT_SUPPORTED, GAP_ENOTSUP},  {GAP__CUDA_ERROR_NOT_READY, GAP_EAGAIN},
               {GAP__CUDA_ERROR_DEINITIALIZED, GAP_EDEVICE},  {GAP__CUDA_ERROR_INVALID_CONTEXT, GAP_EDEVICE},
               {GAP__CUDA_ERROR_CAPTURED_EVENT, GAP_EDEVICE}, {12345, GAP_EDEVICE},
               {GAP__CUDA_ERROR_INVALID_HANDLE, GAP_EINVAL},  {GAP__CUDA_ERROR_NOT_PERMITTED, GAP_ENOTSUP}};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    fake_cuda_fail("cuMemAlloc", codes[i].theirs, 0, 1);
    assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &addr), codes[i].ours);
  }
  fake_cuda_fail("cuMemAlloc", GAP__CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &addr), GAP_ENOMEM);
  gap__dev_last_error(dev, text, sizeof text);
  assert_string_equal(text, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): as the fake driver was told");
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &addr), 0); /* success says nothing about the last failure */
  gap__dev_last_error(dev, text, 11);
  assert_string_equal(text, "cuMemAlloc");
  assert_int_equal(gap__dev_segment_free(dev, addr), 0);
  assert_int_equal(lines.count, 0);
  close_device(dev);
}

static void test_a_lost_device_is_reported_once(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  uint64_t left, total;
  gap_addr addr;
  fake_cuda_fail(NULL, GAP__CUDA_ERROR_ILLEGAL_ADDRESS, 25, UINT64_MAX);
  int rc = 0;
  for (int i = 0; i < 100; i++) rc = gap__dev_mem_info(dev, &left, &total);
  assert_int_equal(rc, GAP_EDEVICE);
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &addr), GAP_EDEVICE);
  assert_int_equal(lines.count, 1);
  assert_said("device 1 is lost");
  assert_said("CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  fake_cuda_fail(NULL, 0, 0, 0);
  gap__dev_destroy(dev);
}

/* At exit the driver may go first. */
static void test_a_driver_that_is_gone_fails_quietly(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  gap_addr addr;
  bool capturing;
  gap__event event;
  fake_cuda_fail(NULL, GAP__CUDA_ERROR_DEINITIALIZED, 0, UINT64_MAX);
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &addr), GAP_EDEVICE);
  assert_int_equal(gap__dev_stream_capturing(dev, 0, &capturing), GAP_EDEVICE);
  assert_int_equal(gap__dev_event_create(dev, 0, &event), GAP_EDEVICE);
  gap__dev_destroy(dev);
  assert_int_equal(lines.count, 0);
}

/* Every operation, with whatever the thread had current. */
static void whole_round(struct gap__dev *dev, gap_stream stream) {
  gap_addr addr, segment;
  gap__chunk chunk;
  gap__event event;
  uint64_t id, left, total;
  bool capturing;
  static char memory[4096];
  assert_int_equal(gap__dev_reserve(dev, 2 * PAGE, PAGE, &addr), 0);
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &chunk), 0);
  assert_int_equal(gap__dev_map(dev, addr, PAGE, chunk), 0);
  assert_int_equal(gap__dev_set_access(dev, addr, PAGE), 0);
  assert_int_equal(gap__dev_segment_alloc(dev, PAGE, &segment), 0);
  assert_int_equal(gap__dev_copy(dev, segment, addr, 512, stream), 0);
  assert_int_equal(gap__dev_write_value(dev, stream, addr, 3), 0);
  assert_int_equal(gap__dev_wait_value(dev, stream, addr, 3), 0);
  assert_int_equal(gap__dev_event_create(dev, stream, &event), 0);
  assert_int_equal(gap__dev_event_record(dev, event, stream), 0);
  assert_int_equal(gap__dev_stream_wait(dev, 2, event), 0);
  assert_int_equal(gap__dev_event_wait(dev, event), 0);
  assert_int_equal(gap__dev_event_query(dev, event), 0);
  assert_int_equal(gap__dev_event_destroy(dev, event), 0);
  assert_int_equal(gap__dev_stream_id(dev, stream, &id), 0);
  assert_int_equal(gap__dev_stream_capturing(dev, stream, &capturing), 0);
  assert_int_equal(gap__dev_pin(dev, memory, sizeof memory), 0);
  assert_int_equal(gap__dev_unpin(dev, memory, sizeof memory), 0);
  assert_int_equal(gap__dev_mem_info(dev, &left, &total), 0);
  assert_int_equal(gap__dev_segment_free(dev, segment), 0);
  assert_int_equal(gap__dev_unmap(dev, addr, PAGE), 0);
  assert_int_equal(gap__dev_chunk_release(dev, chunk), 0);
  assert_int_equal(gap__dev_unreserve(dev, addr, 2 * PAGE), 0);
}

static void test_the_thread_keeps_its_context(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  gap__cuda_context before, after;
  whole_round(dev, 0); /* none is current */
  assert_int_equal(fake_cuda_depth(), 0);
  fake_cuda_push(0, false); /* another device's */
  assert_int_equal(cuda_of(dev)->driver.cuCtxGetCurrent(&before), 0);
  whole_round(dev, fake_cuda_stream(1, true));
  assert_int_equal(fake_cuda_depth(), 1);
  assert_int_equal(cuda_of(dev)->driver.cuCtxGetCurrent(&after), 0);
  assert_ptr_equal(before, after);
  fake_cuda_pop();
  fake_cuda_push(1, true); /* the right one: nothing needs to be pushed */
  uint64_t pushes = fake_cuda_calls("cuCtxPushCurrent");
  whole_round(dev, 0);
  assert_int_equal(fake_cuda_calls("cuCtxPushCurrent"), pushes);
  assert_int_equal(gap__cuda_current_device(dev), 1);
  fake_cuda_pop();
  assert_int_equal(gap__cuda_current_device(dev), 0);
  close_device(dev);
}

/* An event can be recorded on streams of its own context only. */
static void test_events_are_made_in_the_streams_context(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  gap_stream foreign = fake_cuda_stream(1, false), ours = fake_cuda_stream(1, true);
  gap__event event, other;
  assert_int_equal(gap__dev_event_create(dev, foreign, &event), 0);
  assert_int_equal(gap__dev_event_record(dev, event, foreign), 0);
  assert_int_equal(gap__dev_event_wait(dev, event), 0);
  assert_int_equal(gap__dev_event_record(dev, event, ours), GAP_EINVAL);
  assert_int_equal(gap__dev_event_create(dev, ours, &other), 0);
  assert_int_equal(gap__dev_event_record(dev, other, ours), 0);
  assert_int_equal(fake_cuda_depth(), 0);
  close_device(dev);
}

/* A capture in global mode forbids most calls to every thread outside relaxed mode: the fake driver counts offences. */
static void test_all_works_while_a_stream_captures(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  gap_stream graph = fake_cuda_stream(1, true), other = fake_cuda_stream(1, true);
  bool capturing = false;
  fake_cuda_capture(1, graph, true);
  gap_addr addr;
  fake_cuda_push(1, true);
  assert_int_equal(cuda_of(dev)->driver.cuMemAlloc(&addr, PAGE),
                   GAP__CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* so it is */
  assert_int_equal(fake_cuda_wrong(), 1);
  fake_cuda_pop();
  whole_round(dev, other);
  assert_int_equal(fake_cuda_wrong(), 1);
  assert_int_equal(gap__dev_stream_capturing(dev, graph, &capturing), 0);
  assert_true(capturing);
  assert_int_equal(gap__dev_stream_capturing(dev, 0, &capturing), 0); /* barred: as good as capturing */
  assert_true(capturing);
  assert_int_equal(gap__dev_stream_capturing(dev, other, &capturing), 0);
  assert_false(capturing);
  uint64_t id = 77, other_id;
  assert_int_equal(gap__dev_stream_id(dev, graph, &id), GAP_EAGAIN); /* to ask the driver would spoil the capture */
  assert_int_equal(gap__dev_stream_id(dev, 0, &id), GAP_EAGAIN);
  assert_int_equal(id, 77);
  assert_int_equal(gap__dev_stream_id(dev, other, &other_id), 0);
  fake_cuda_capture(1, graph, false);
  assert_int_equal(gap__dev_stream_capturing(dev, 0, &capturing), 0);
  assert_false(capturing);
  assert_int_equal(lines.count, 0);
  assert_int_equal(fake_cuda_capture_mode(), GAP__CU_STREAM_CAPTURE_MODE_GLOBAL);
  gap__dev_destroy(dev);
}

static gap_addr mapped_page(struct gap__dev *dev, gap__chunk chunk) {
  gap_addr addr;
  assert_int_equal(gap__dev_reserve(dev, PAGE, PAGE, &addr), 0);
  assert_int_equal(gap__dev_map(dev, addr, PAGE, chunk), 0);
  assert_int_equal(gap__dev_set_access(dev, addr, PAGE), 0);
  return addr;
}

static void test_peers(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0});
  gap__chunk chunk;
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &chunk), 0);
  gap_addr addr = mapped_page(dev, chunk);
  assert_int_equal(fake_cuda_readers(), 1 << 1);
  assert_int_equal(gap__dev_peer_enable(dev, 1), GAP_EINVAL);
  assert_int_equal(gap__dev_peer_enable(dev, 9), GAP_EDEVICE);
  assert_int_equal(gap__dev_peer_enable(dev, 0), 0);
  assert_int_equal(gap__dev_peer_enable(dev, 3), 0);
  assert_int_equal(gap__dev_peer_enable(dev, 3), 0);
  assert_int_equal(fake_cuda_retained(3), 1);
  assert_int_equal(gap__dev_set_access(dev, addr, PAGE), 0); /* one call for all */
  assert_int_equal(fake_cuda_readers(), 1 << 0 | 1 << 1 | 1 << 3);
  assert_int_equal(gap__dev_peer_disable(dev, 0), 0);
  assert_int_equal(gap__dev_peer_disable(dev, 0), GAP_EINVAL);
  assert_int_equal(gap__dev_set_access(dev, addr, PAGE), 0);
  assert_int_equal(fake_cuda_readers(), 1 << 1 | 1 << 3);
  close_device(dev);
  assert_int_equal(fake_cuda_retained(3), 0);
  dev = open_device(&(struct fake_cuda_settings){.refuses = FAKE_CUDA_PEERS});
  assert_int_equal(gap__dev_peer_enable(dev, 0), GAP_ENOTSUP);
  close_device(dev);
}

static void test_export_and_import(void **state) {
  (void)state;
  struct gap__dev *dev = open_device(&(struct fake_cuda_settings){0}), *host = fake_cuda_host(1);
  gap__chunk chunk, again;
  int fd = -1;
  assert_int_equal(gap__dev_chunk_create(dev, PAGE, GAP__PLACE_DEVICE, &chunk), 0);
  assert_int_equal(gap__dev_chunk_export(dev, chunk, &fd), 0);
  assert_int_equal(gap__dev_chunk_import(dev, fd, &again), 0);
  assert_int_equal(close(fd), 0);
  gap_addr one = mapped_page(dev, chunk), two = mapped_page(dev, again);
  assert_int_equal(gap__host_fill(host, one, PAGE, 5, 9), 0);
  assert_int_equal(gap__host_expect(host, two, PAGE, 5, 9), 0);
  assert_int_equal(gap__dev_unmap(dev, one, PAGE), 0);
  assert_int_equal(gap__dev_chunk_release(dev, chunk), 0);
  assert_int_equal(gap__host_chunk_bytes(host), PAGE); /* the other handle holds it */
  assert_int_equal(gap__dev_unmap(dev, two, PAGE), 0);
  assert_int_equal(gap__dev_chunk_release(dev, again), 0);
  assert_int_equal(gap__host_chunk_bytes(host), 0);
  close_device(dev);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_everything_works, start),
      cmocka_unit_test_setup(test_flags_are_given_up_one_by_one, start),
      cmocka_unit_test_setup(test_host_chunks_and_values_are_tried, start),
      cmocka_unit_test_setup(test_without_vmm, start),
      cmocka_unit_test_setup(test_the_order_of_a_graph_may_be_untold, start),
      cmocka_unit_test_setup(test_vmm_switched_off, start),
      cmocka_unit_test_setup(test_a_full_card_proves_nothing, start),
      cmocka_unit_test_setup(test_missing_entry_points_by_name, start),
      cmocka_unit_test_setup(test_no_driver_no_device, start),
      cmocka_unit_test_setup(test_opening_fails_anywhere, start),
      cmocka_unit_test_setup(test_errors_have_words, start),
      cmocka_unit_test_setup(test_a_lost_device_is_reported_once, start),
      cmocka_unit_test_setup(test_a_driver_that_is_gone_fails_quietly, start),
      cmocka_unit_test_setup(test_the_thread_keeps_its_context, start),
      cmocka_unit_test_setup(test_events_are_made_in_the_streams_context, start),
      cmocka_unit_test_setup(test_all_works_while_a_stream_captures, start),
      cmocka_unit_test_setup(test_peers, start),
      cmocka_unit_test_setup(test_export_and_import, start),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
