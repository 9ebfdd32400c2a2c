/* Files held against limits. */
#ifndef GAP_COMPARE_CHECK_H
#define GAP_COMPARE_CHECK_H

#include "compare/measure.h"
#include "gapless/compare.h"

enum gap__rule_kind {
  GAP__RULE_NONE,
  GAP__RULE_AT_MOST,     /* the amount */
  GAP__RULE_PART_OVER,   /* the baseline and so much of it more; of percent: so many points more */
  GAP__RULE_AMOUNT_OVER, /* the baseline and the amount */
};

struct gap__rule {
  enum gap__rule_kind kind;
  double amount; /* GAP__RULE_PART_OVER: a part of 1 */
};

struct gap__figures_set { /* what is known of one file */
  char *file;
  uint32_t device, devices; /* the one measured; those of the file that hold or ask for memory */
  bool wrapped, torn, contradictory;
  struct gap__figure_value at[GAP__FIGURE_COUNT];
};

struct gap__checked {
  struct gap__figures_set figures;
  struct gap__result {
    gap_limits_answer answer;
    struct gap__figure_value limit;
  } results[GAP__FIGURE_COUNT];
};

struct gap_limits {
  gap_limits_options options;
  struct gap__rule rules[GAP__FIGURE_COUNT];
  struct gap__figures_set baseline; /* file NULL: none */
  struct gap__checked *files;
  uint32_t count, room;
};

/* GAP_EVALUE: it is no limit of that figure. */
int gap__rule_parse(enum gap__figure, const char *text, struct gap__rule *);
/* With a baseline but without a rule that refers to it: those that hold where none is given. */
void gap__rules_default(struct gap_limits *);
bool gap__rules_need_baseline(const struct gap_limits *);
void gap__rules_judge(const struct gap_limits *, struct gap__checked *);
/* Why a result is not known; NULL where it is. */
const char *gap__result_unknown(const struct gap_limits *, const struct gap__checked *, enum gap__figure);
/* "26 GiB (24.76 GiB + 5 %)" */
void gap__rule_say(const struct gap_limits *, const struct gap__checked *, enum gap__figure, struct gap__text *);

/* Figures that were saved: a JSON object.  GAP_ENOTSUP: the file is something else. */
int gap__baseline_read(const char *path, struct gap__figures_set *, char *message, size_t bytes);
char *gap__baseline_json(const struct gap__figures_set *);
void gap__figures_set_free(struct gap__figures_set *);

char *gap__limits_words(const struct gap_limits *);
char *gap__limits_json(const struct gap_limits *, const struct gap__checked *);
char *gap__limits_junit(const struct gap_limits *);

#endif
