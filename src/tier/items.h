/* Items: byte strings of the device kept in host memory or on the disk, one by one and without a wait of the host.
 *
 *   put    room is taken; to host memory the copies are queued at once, on a stream of our own; to the disk a thread carries them
 *   get    the same; a join waits for the threads that compare checksums meanwhile.  What is asked for before its checksum was made has lain
 *          for a moment only, and is not looked at
 *   drop   the item has no name any more; its room goes back when nothing of it is under way, in one of the next calls
 *
 * An item lies in one place as a whole, in pieces (image.h) whose addresses are offsets in the string.
 * Who guards what: the device's mutex the room, the list `gone`, and who begins something; the items' own mutex, which is the second of the
 * two, the names and what is under way.  Threads of ours take the second only, so that a device that sleeps over the disk for seconds holds
 * none of them up. */
#ifndef GAP_TIER_ITEMS_H
#define GAP_TIER_ITEMS_H

#include "base/meta.h"
#include "tier/beds.h"
#include "tier/carry.h"
#include "tier/hands.h"

struct gap__tier;
struct tier_device;

struct tier_item {
  uint32_t next; /* in `gone`: an index, 0 the end; the first member, since a free record's first bytes are a link */
  uint32_t generation;
  uint64_t bytes;
  struct tier_pieces kept;
  bool on_disk, named;
  bool stuck;             /* the driver does not say when its copies are over: its room is not given back */
  gap_stream unmarked;    /* has copies that `event` is not behind, since that failed; 0: none */
  gap__event event;       /* behind the newest copies */
  uint32_t jobs;          /* under way */
  uint32_t holders;       /* callers that wait for something of it */
  uint32_t awaited;       /* of these: a join waits for their ends */
  bool unsummed;          /* its checksums are being made */
  int lost, failed;       /* why the bytes are not here; why the newest get failed, until somebody was told */
  char *words;            /* of these; NULL: the code says all */
  struct tier_job *ended; /* streams may wait for their events still */
};

struct tier_items {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct gap__slab records;
  uint32_t gone, gone_last; /* those without a name whose room is taken still, the oldest first */
  uint32_t live;            /* records that are */
  gap_stream out, in;
  struct gap__hands arrivals,  /* one thread that waits for copies out */
      sums,                    /* many that add up and compare */
      disk;                    /* one */
  struct gap__carrier carrier; /* of the disk's thread */
  struct gap__disk door;
  bool ready_disk;
};

/* Something to be done for an item by the threads. */
enum tier_job_kind { TIER_JOB_SUM, TIER_JOB_CHECK, TIER_JOB_WRITE, TIER_JOB_READ };
struct tier_job {
  struct gap__task task;
  struct tier_job *next; /* in its item's list */
  struct tier_device *d;
  struct tier_item *item;
  enum tier_job_kind kind;
  gap__event ready;      /* behind what the caller's stream had been given */
  uint32_t first, count; /* pieces that it is about */
  _Atomic uint32_t left; /* parts */
  _Atomic int rc;        /* of the first part that failed */
  bool stuck;
  struct gap__spans spans; /* of `copies` */
  gap_span copies[];
};

void gap__items_init(struct tier_items *);
void gap__items_free(struct tier_items *);   /* of a device that was never begun */
void gap__items_end(struct tier_device *);   /* waits for what is under way */
void gap__items_sweep(struct tier_device *); /* the device's mutex is held */
/* The same, and waits for what was dropped and is under way still; the mutex is given up meanwhile. */
void gap__items_settle(struct tier_device *);

/* Why a driver that works does not copy. */
extern const char gap__items_unreachable[];

/* What threads do; a job is theirs from the call on. */
int gap__items_work_begin(struct tier_device *);
int gap__items_disk_begin(struct tier_device *); /* the disk is open, and the carrier staged */
struct tier_job *gap__items_job_new(struct tier_device *, struct tier_item *, enum tier_job_kind, const gap_span *,
                                    uint32_t count);
void gap__items_job_start(struct tier_job *);
void gap__items_job_drop(struct tier_job *); /* one that was not started */

#endif
