/* Everything that is known about one device of one file: what the words, the advice and the JSON are made of. */
#ifndef GAP_EXPLAIN_SUBJECT_H
#define GAP_EXPLAIN_SUBJECT_H

#include "explain/categories.h"
#include "explain/figures.h"
#include "explain/growth.h"
#include "explain/honest.h"
#include "explain/servable.h"
#include "gapless/explain.h"

/* The last refused request, or the one asked about. */
struct gap__refusal {
  bool recorded;        /* the file has an out-of-memory event */
  uint32_t event;       /* it; the number of events where there is none */
  uint32_t count;       /* refusals in the file */
  uint64_t request;     /* bytes; 0: none is known */
  uint64_t segment;     /* what the native policy asks the driver for to serve it */
  uint64_t driver_free; /* recorded refusals only */
  bool by_limit;        /* the driver had enough: a limit of the program's own refused */
  uint64_t obtainable;  /* what could still be taken from the driver */
  uint64_t others;      /* of the card, neither held nor free: contexts and other programs; 0 unknown */
};

struct gap__bounds {
  uint64_t total;     /* the card; 0 unknown */
  uint64_t limit;     /* on what may be held, as given or recorded; 0 unknown */
  uint64_t target;    /* what advice is checked under; 0: no bound is known */
  bool is_other_card; /* the card that was given cannot be the recorded one */
  bool is_inferred;   /* the target is what was held and free at the refusal */
};

struct gap__segment_counts {    /* of the whole history */
  uint64_t made, freed, bursts; /* bursts: runs of frees that a new segment or a refusal follows */
};

enum { GAP__ADVICE_MAX = 16 };

enum gap__advice_kind {
  GAP__ADVICE_SETTING,
  GAP__ADVICE_LIMIT,
  GAP__ADVICE_GAPLESS,
  GAP__ADVICE_BATCH,
  GAP__ADVICE_CHECKPOINTING,
  GAP__ADVICE_OFFLOAD,
  GAP__ADVICE_CARD,
  GAP__ADVICE_NOTE /* nothing to be done, but worth saying */
};

struct gap__advice {
  enum gap__advice_kind kind;
  char change[160];  /* what to do: "PYTORCH_CUDA_ALLOC_CONF=..." */
  char text[480];    /* a sentence or two with numbers */
  bool checked;      /* by replay */
  bool works;        /* it fitted; meaningful where checked */
  uint64_t reserved; /* most held in the replay, 0 unknown */
};

struct gap__subject {
  struct gap__history *history;
  bool is_live; /* it was asked of a running process */
  uint32_t device;
  gap_explain_options options;
  struct gap__honest honest;
  struct gap__lives lives;
  struct gap__sites sites;
  struct gap__steps steps;
  struct gap__categories categories;
  struct gap__growth growth;
  struct gap__holders holders;
  struct gap__refusal refusal;
  struct gap__bounds bounds;
  struct gap__asker asker;
  struct gap__figures figures; /* at the refusal, or at the end */
  struct gap__segment_counts segment_counts;
  bool has_servable; /* options.request_bytes was looked for */
  struct gap__servable servable;
  uint64_t servable_limit; /* under what it was looked for */
  bool servable_implied;   /* that is the most ever held, for want of a known limit */
  gap_explain_verdict verdict;
  uint64_t largest_servable;
  struct gap__advice advice[GAP__ADVICE_MAX];
  uint32_t advice_count;
  bool advised;
};

/* What the allocator said of itself at the moment explained; NULL: nothing, or of another moment. */
static inline bool gap__subject_is_empty(const struct gap__subject *subject) {
  return subject->honest.is_empty && !subject->is_live; /* a process that holds nothing is known to */
}

static inline const struct gap__hist_facts *gap__subject_facts(const struct gap__subject *subject) {
  const struct gap__hist_facts *facts = &subject->history->devices[subject->device].facts;
  return facts->present && !subject->refusal.recorded ? facts : NULL;
}
/* In words: where the figures come from, and whose memory it is. */
static inline const char *gap__subject_source(const struct gap__subject *subject) {
  return subject->is_live ? "process" : "file";
}
static inline const char *gap__subject_keeper(const struct gap__subject *subject) {
  return subject->history->by_gapless ? "gapless" : "PyTorch";
}

/* P, as far as it is known: by the events; without any, by what the allocator has said. */
uint64_t gap__subject_peak(const struct gap__subject *);

/* Bytes older than the history, which a replay does not know: those live at the peak count as taken all the time, rather too much than too
 * little. */
uint64_t gap__subject_before(const struct gap__subject *);

/* Finds everything but the verdict and the advice. 0, GAP_EINVAL, GAP_ELIMIT, GAP_ENOMETA. */
int gap__subject_study(struct gap__subject *);
void gap__subject_free(struct gap__subject *);

/* Sets refusal.by_limit, .obtainable, .others, the bounds' target, the verdict and largest_servable. */
void gap__verdict_find(struct gap__subject *);
/* The verdict in two or three sentences. */
void gap__verdict_say(const struct gap__subject *, struct gap__text *);

enum { GAP__QUESTIONS = 15 };
const char *gap__words_question(uint32_t index);
void gap__words_answer(const struct gap__subject *, uint32_t index, struct gap__text *);

typedef int gap__replay_fn(const gap_history *, const gap_replay_options *, gap_replay_result *, char *, size_t);
struct gap__replayer { /* the layer above has the replays */
  gap__replay_fn *replay, *least_cap;
};
int gap__advice_find(struct gap__subject *, const struct gap__replayer *, gap_progress_fn, void *arg);

char *gap__subject_json(const struct gap__subject *, const char *file);

#endif
