#include "dev/host/card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gapless/gapless.h"

enum { HOLDERS_MAX = 64, VERSION = 1, TABLE_LOCK = 0, HOLDER_LOCK = 1 };
static const char magic[8] = "gapcard";

/* The file.  Byte TABLE_LOCK is locked by whoever takes memory, byte HOLDER_LOCK + i by holder i for as long as it lives. */
struct table {
  char magic[8];
  uint32_t version, holders;
  unsigned char uuid[GAP__CARD_UUID_BYTES];
  uint64_t total_bytes;
  _Atomic uint64_t held[HOLDERS_MAX];
};

struct gap__card {
  int fd;
  unsigned holder;
  struct table *table;
};

/* ---- locks: of the open file, so that several devices of one process are told apart ---- */

static bool lock_byte(int fd, off_t at, short type, bool wait) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  int rc;
  while ((rc = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock)) < 0 && errno == EINTR) continue;
  return rc == 0;
}

static bool lock_table(int fd) { return lock_byte(fd, TABLE_LOCK, F_WRLCK, true); }
static void unlock_table(int fd) { lock_byte(fd, TABLE_LOCK, F_UNLCK, false); }

static bool holds(const struct gap__card *card, unsigned holder) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = HOLDER_LOCK + holder, .l_len = 1};
  if (holder == card->holder) return true;
  return fcntl(card->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ---- memory ---- */

uint64_t gap__card_free_bytes(struct gap__card *card) {
  uint64_t held = 0, total = card->table->total_bytes;
  for (unsigned i = 0; i < HOLDERS_MAX; i++) {
    uint64_t bytes = atomic_load(&card->table->held[i]);
    if (bytes && holds(card, i)) held += bytes;
  }
  return held < total ? total - held : 0;
}

int gap__card_take(struct gap__card *card, uint64_t bytes) {
  if (!lock_table(card->fd)) return GAP_EIO;
  int rc = bytes <= gap__card_free_bytes(card) ? 0 : GAP_ENOMEM;
  if (!rc) atomic_fetch_add(&card->table->held[card->holder], bytes);
  unlock_table(card->fd);
  return rc;
}

void gap__card_give(struct gap__card *card, uint64_t bytes) {
  atomic_fetch_sub(&card->table->held[card->holder], bytes);
}

void gap__card_uuid(const struct gap__card *card, unsigned char out[GAP__CARD_UUID_BYTES]) {
  memcpy(out, card->table->uuid, GAP__CARD_UUID_BYTES);
}

/* ---- opening, under the table's lock ---- */

static int make_table(int fd, uint64_t total_bytes) {
  struct table table = {.version = VERSION, .holders = HOLDERS_MAX, .total_bytes = total_bytes};
  memcpy(table.magic, magic, sizeof magic);
  if (getrandom(table.uuid, sizeof table.uuid, 0) != (ssize_t)sizeof table.uuid) return GAP_EIO;
  return pwrite(fd, &table, sizeof table, 0) == (ssize_t)sizeof table ? 0 : GAP_EIO;
}

static int check_file(int fd, uint64_t total_bytes) {
  struct stat about;
  if (fstat(fd, &about) || !S_ISREG(about.st_mode) || about.st_uid != geteuid()) return GAP_EIO;
  if (about.st_size == 0) return make_table(fd, total_bytes);
  return about.st_size == (off_t)sizeof(struct table) ? 0 : GAP_EFORMAT;
}

static int map_table(struct gap__card *card, uint64_t total_bytes) {
  void *table = mmap(NULL, sizeof *card->table, PROT_READ | PROT_WRITE, MAP_SHARED, card->fd, 0);
  if (table == MAP_FAILED) return GAP_EIO;
  card->table = table;
  bool fits = !memcmp(card->table->magic, magic, sizeof magic) && card->table->version == VERSION &&
              card->table->holders == HOLDERS_MAX && card->table->total_bytes == total_bytes;
  return fits ? 0 : GAP_EFORMAT;
}

/* What one that was killed has left behind is taken away before its place is locked: who looks without a lock must not count it. */
static int become_holder(struct gap__card *card) {
  unsigned i = 0;
  card->holder = HOLDERS_MAX;
  while (i < HOLDERS_MAX && holds(card, i)) i++;
  if (i == HOLDERS_MAX) return GAP_ELIMIT;
  atomic_store(&card->table->held[i], 0);
  if (!lock_byte(card->fd, HOLDER_LOCK + (off_t)i, F_WRLCK, false)) return GAP_EIO;
  card->holder = i;
  return 0;
}

static int open_locked(struct gap__card *card, uint64_t total_bytes) {
  int rc = check_file(card->fd, total_bytes);
  if (!rc) rc = map_table(card, total_bytes);
  return rc ? rc : become_holder(card);
}

int gap__card_open(const char *path, uint64_t total_bytes, struct gap__card **out) {
  struct gap__card *card = calloc(1, sizeof *card);
  if (!card) return GAP_ENOMETA;
  card->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR);
  int rc = card->fd >= 0 && lock_table(card->fd) ? open_locked(card, total_bytes) : GAP_EIO;
  if (card->fd >= 0) unlock_table(card->fd);
  if (rc) gap__card_close(card);
  else *out = card;
  return rc;
}

/* Closing the file takes the holder's lock away, and with it what the holder held. */
void gap__card_close(struct gap__card *card) {
  if (!card) return;
  if (card->table) munmap(card->table, sizeof *card->table);
  if (card->fd >= 0) close(card->fd);
  free(card);
}
