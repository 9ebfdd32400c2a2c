/* Reads what running processes publish of their memory (api/sheet.h).  Nothing in a sheet is trusted: lengths are checked, and texts become
 * such that cannot harm a terminal. */
#ifndef GAP_TOOLSAPI_SHEETS_H
#define GAP_TOOLSAPI_SHEETS_H

#include "api/sheet.h"

/* One process, copied. */
struct gap__sheet_view {
  int64_t process;
  uid_t user;
  bool is_of_process; /* this user has a process of that number here; false for one of a container */
  char program[64], release[24];
  uint32_t period_ms;
  uint64_t looked_ns;                          /* CLOCK_MONOTONIC: when it was last at work; 0: it was not yet */
  uint32_t device_count, figure_count, stride; /* stride: bytes of a device here */
  char *names;                                 /* each ended by a NUL */
  unsigned char *devices;                      /* struct gap__sheet_device with its figures behind it, each */
};

/* Where a sheet is read from: `bytes` at `offset` into `out`.  False: there are no so many. */
typedef bool gap__sheet_read_fn(void *arg, void *out, size_t bytes, uint64_t offset);

/* 0; GAP_EFORMAT: it is no sheet, or one laid out in a way that is not known; GAP_ENOMETA.  A device that is written all the time is left
 * out. */
int gap__sheet_parse(gap__sheet_read_fn *, void *arg, struct gap__sheet_view *out);
void gap__sheet_view_free(struct gap__sheet_view *);

const struct gap__sheet_device *gap__sheet_device(const struct gap__sheet_view *, uint32_t index);
/* False: the library of that process has no such figure. */
bool gap__sheet_figure(const struct gap__sheet_view *, uint32_t device, const char *name, int64_t *out);
/* The same; 0 where there is none. */
int64_t gap__sheet_value(const struct gap__sheet_view *, uint32_t device, const char *name);

struct gap__sheets { /* in order of the process's number, which several may say is theirs */
  struct gap__sheet_view *views;
  uint32_t count, capacity;
  uint32_t unknown; /* sheets that could not be read: of another version */
};

/* The processes that publish, of this user; root sees those of all.  `folder`: only those whose sheets are there, as one that belongs to a
 * container; NULL: the usual ones.  `process`: that one only; 0: all.  What processes that are gone have left is taken away.  0, GAP_ENOMETA;
 * GAP_EIO, GAP_EINVAL: `folder` is not there, or not its user's alone. */
int gap__sheets_read(const char *folder, long process, struct gap__sheets *out);
void gap__sheets_free(struct gap__sheets *);

#endif
