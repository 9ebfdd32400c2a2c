/* Memory of the strategy `gapless` that other devices may reach: what is mapped already is opened again, for one more. */
#include "core/peer.h"

static bool is_mapped(const struct gap__policy_state *s, uint32_t mapping) {
  return mapping && !gap__mapping_at(s, mapping)->away;
}

/* The next stretch of pages with a mapping, homes and lent ones alike: a kernel may use either. */
static bool next_stretch(const struct gap__policy_state *s, const struct gap__range *range, uint32_t *from,
                         uint32_t *to) {
  for (*from = *to; *from < range->pages && !is_mapped(s, range->slot[*from]);) ++*from;
  for (*to = *from; *to < range->pages && is_mapped(s, range->slot[*to]);) ++*to;
  return *from < range->pages;
}

static int renew_range(struct gap__policy_state *s, const struct gap__range *range) {
  int rc = 0;
  for (uint32_t from = 0, to = 0; !rc && next_stretch(s, range, &from, &to);)
    rc = gap__dev_set_access(s->dev, range->base + ((uint64_t)from << GAP__PAGE_SHIFT),
                             (uint64_t)(to - from) << GAP__PAGE_SHIFT);
  return rc;
}

int gap__peer_renew_access(struct gap__policy_state *s) {
  int rc = 0;
  gap__lock(&s->lock);
  for (uint32_t i = 1; i <= s->range_count && !rc; i++) rc = renew_range(s, gap__range_at(s, i));
  gap__unlock(&s->lock);
  return rc;
}
