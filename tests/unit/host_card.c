/* A card of `host` that processes share: what one holds the others do not get, and what a killed one held is free again. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev/host/card.h"
#include "dev/host/host.h"

#define PAGE GAP__PAGE
#define CARD (32 * PAGE)

static char folder[64], path[100];

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/gapless-card-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/card", folder);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

static struct gap__dev *open_device(void) {
  struct gap__host_params params = {.total_bytes = CARD, .card = path};
  struct gap__dev *dev = NULL;
  assert_int_equal(gap__host_create(0, &params, &dev), 0);
  return dev;
}

static uint64_t free_pages(struct gap__dev *dev) {
  uint64_t left = 0, total = 0;
  assert_int_equal(gap__dev_mem_info(dev, &left, &total), 0);
  assert_int_equal(total, CARD);
  return left / PAGE;
}

static gap__chunk take(struct gap__dev *dev, uint64_t pages) {
  gap__chunk chunk = 0;
  assert_int_equal(gap__dev_chunk_create(dev, pages * PAGE, GAP__PLACE_DEVICE, &chunk), 0);
  return chunk;
}

static void devices_compete_for_the_room(void **state) {
  (void)state;
  struct gap__dev *a = open_device(), *b = open_device();
  gap__chunk none, held = take(a, 20);
  assert_memory_equal(a->caps.uuid, b->caps.uuid, 16);
  assert_int_equal(free_pages(b), 12);
  assert_int_equal(gap__dev_chunk_create(b, 13 * PAGE, GAP__PLACE_DEVICE, &none), GAP_ENOMEM);
  gap_addr segment;
  assert_int_equal(gap__dev_segment_alloc(b, 13 * PAGE, &segment), GAP_ENOMEM);
  assert_int_equal(gap__dev_segment_alloc(b, 10 * PAGE, &segment), 0);
  gap__chunk host_memory;
  assert_int_equal(gap__dev_chunk_create(b, 13 * PAGE, GAP__PLACE_HOST, &host_memory), 0);
  assert_int_equal(free_pages(a), 2); /* the host's memory is not the card's */
  assert_int_equal(gap__dev_chunk_release(a, held), 0);
  assert_int_equal(free_pages(b), 22);
  assert_int_equal(gap__dev_segment_free(b, segment), 0);
  take(a, 32);
  assert_int_equal(free_pages(b), 0);
  gap__dev_destroy(a);
  assert_int_equal(free_pages(b), 32);
  assert_int_equal(gap__host_faults(b), 0);
  gap__dev_destroy(b);
}

static void the_killed_hold_nothing(void **state) {
  (void)state;
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take(open_device(), 30);
    if (write(ready[1], "r", 1) != 1) _exit(2);
    for (;;) pause();
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  struct gap__dev *dev = open_device();
  gap__chunk none;
  assert_int_equal(free_pages(dev), 2);
  assert_int_equal(gap__dev_chunk_create(dev, 3 * PAGE, GAP__PLACE_DEVICE, &none), GAP_ENOMEM);
  kill(child, SIGSTOP); /* who is stopped keeps what it has */
  assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
  assert_int_equal(free_pages(dev), 2);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  assert_int_equal(free_pages(dev), 32);
  take(dev, 32);
  gap__dev_destroy(dev);
}

/* Processes that each want more than half: whoever has got it has it alone. */
static void contend(_Atomic int *owners, unsigned turns) {
  struct gap__card *card;
  unsigned got = 0;
  if (gap__card_open(path, CARD, &card)) _exit(1);
  while (got < turns) {
    if (gap__card_take(card, CARD / 2 + PAGE)) continue;
    if (atomic_fetch_add(owners, 1) != 0) _exit(2);
    if (gap__card_free_bytes(card) != CARD / 2 - PAGE) _exit(3);
    atomic_fetch_sub(owners, 1);
    gap__card_give(card, CARD / 2 + PAGE);
    got++;
  }
  _exit(0);
}

static void nobody_gets_what_another_has(void **state) {
  (void)state;
  enum { PROCESSES = 4 };
  pid_t children[PROCESSES];
  _Atomic int *owners = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(owners != MAP_FAILED);
  for (int i = 0; i < PROCESSES; i++)
    if ((children[i] = fork()) == 0) contend(owners, 200);
  for (int i = 0, status; i < PROCESSES; i++) {
    waitpid(children[i], &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
  munmap((void *)owners, 4096);
}

static void what_is_no_card_is_refused(void **state) {
  (void)state;
  struct gap__card *card;
  char link_path[120];
  assert_int_equal(gap__card_open(path, CARD, &card), 0);
  struct gap__card *others[64];
  int count = 0, rc = 0;
  for (; count < 64 && (rc = gap__card_open(path, CARD, &others[count])) == 0; count++) continue;
  assert_int_equal(rc, GAP_ELIMIT);
  assert_int_equal(count, 63);
  while (count) gap__card_close(others[--count]);
  gap__card_close(card);
  assert_int_equal(gap__card_open(path, 2 * CARD, &card), GAP_EFORMAT); /* another size */
  snprintf(link_path, sizeof link_path, "%s/link", folder);
  assert_int_equal(symlink(path, link_path), 0);
  assert_int_equal(gap__card_open(link_path, CARD, &card), GAP_EIO);
  unlink(link_path);
  assert_int_equal(gap__card_open(folder, CARD, &card), GAP_EIO);
  int fd = open(path, O_WRONLY);
  assert_int_equal(pwrite(fd, "x", 1, 0), 1);
  assert_int_equal(gap__card_open(path, CARD, &card), GAP_EFORMAT);
  assert_int_equal(ftruncate(fd, 100), 0);
  assert_int_equal(gap__card_open(path, CARD, &card), GAP_EFORMAT);
  assert_int_equal(ftruncate(fd, 0), 0); /* empty: it is made */
  assert_int_equal(gap__card_open(path, CARD, &card), 0);
  gap__card_close(card);
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_compete_for_the_room),
      cmocka_unit_test(the_killed_hold_nothing),
      cmocka_unit_test(nobody_gets_what_another_has),
      cmocka_unit_test(what_is_no_card_is_refused),
  };
  return cmocka_run_group_tests_name("host_card", tests, set_up, tear_down);
}
