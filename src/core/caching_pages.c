/* The pages of an expandable segment.  Each is a physical handle of its own, as in torch: 2 MiB for small requests,
 * large_segment_size for large ones. */
#include "core/caching.h"

/* torch reserves 9/8 of the card, so that pages unmapped early can be used at the end.  No card has more than this. */
#define RESERVE_MOST ((uint64_t)2 << 40)

static uint64_t page_size(const struct caching *c, enum gap__stat_kind kind) {
  uint64_t wanted = kind == GAP__KIND_SMALL ? CACHING_SMALL_SEGMENT : c->conf.large_segment_size;
  return (wanted + GAP__PAGE - 1) / GAP__PAGE * GAP__PAGE;
}

static uint64_t pages_for(uint64_t bytes, uint64_t page) { return (bytes + page - 1) / page; }

static uint64_t pages_wanted(const struct caching *c, uint64_t page) {
  uint64_t total = c->dev->dev->caps.total_bytes, wanted = total + total / 8;
  return pages_for(wanted < RESERVE_MOST ? wanted : RESERVE_MOST, page);
}

/* Where the driver refuses, half as much, as long as the request itself fits. */
static int reserve(struct caching *c, struct caching_segment *segment, uint64_t least) {
  gap_addr addr = 0;
  int rc = GAP_ENOMEM;
  if (segment->page_count < least) segment->page_count = least;
  for (; segment->page_count >= least; segment->page_count /= 2) {
    rc = gap__dev_reserve(c->dev->dev, segment->page_count * segment->page_bytes, GAP__PAGE, &addr);
    if (rc != GAP_ENOMEM && rc != GAP_ENOTSUP) break;
  }
  if (rc) return rc == GAP_ENOTSUP ? GAP_ENOMEM : rc;
  segment->node = (struct gap__tree_node){.major = addr, .minor = segment->page_count * segment->page_bytes};
  segment->pages = gap__meta_map(segment->page_count * sizeof *segment->pages);
  if (segment->pages) return 0;
  gap__dev_unreserve(c->dev->dev, addr, segment->node.minor);
  return GAP_ENOMETA;
}

/* *out is the segment's only block, a hole. */
int gap__caching_segment_open(struct caching *c, const struct caching_request *request, uint32_t *out) {
  struct caching_segment made = {.page_bytes = page_size(c, request->kind)};
  made.page_count = pages_wanted(c, made.page_bytes);
  int rc = gap__addrmap_reserve(&c->map);
  uint32_t index = rc ? 0 : gap__slab_take(&c->segments), block = index ? gap__slab_take(&c->blocks) : 0;
  if (!block) rc = GAP_ENOMETA;
  if (!rc) rc = reserve(c, &made, pages_for(request->bytes, made.page_bytes));
  if (rc) {
    if (index) gap__slab_give(&c->segments, index);
    if (block) gap__slab_give(&c->blocks, block);
    return rc;
  }
  *caching_segment_at(c, index) = made;
  gap__tree_insert(&c->segment_tree, &c->segments, index);
  *caching_block_at(c, block) = (struct caching_block){.node = {.tag = request->bin, .minor = ++c->age},
                                                       .addr = made.node.major,
                                                       .bytes = made.node.minor,
                                                       .segment = index};
  gap__addrmap_put(&c->map, made.node.major, block);
  gap__caching_dig(c, block);
  caching_pool_at(c, request->pool)->segments++;
  *out = block;
  return 0;
}

static void keep(struct caching_segment *segment, struct caching_page *page, bool kept) {
  segment->kept_count += (uint64_t)kept - (uint64_t)page->kept;
  page->kept = kept;
}

/* Back to the driver; what it does not take is kept. */
static int put_back(struct caching *c, struct caching_segment *segment, uint64_t at) {
  struct caching_page *page = &segment->pages[at];
  struct gap__dev *dev = c->dev->dev;
  int rc = 0;
  if (!page->chunk) return 0;
  if (page->mapped) rc = gap__dev_unmap(dev, segment->node.major + at * segment->page_bytes, segment->page_bytes);
  if (!rc) {
    page->mapped = false;
    rc = gap__dev_chunk_release(dev, page->chunk);
  }
  keep(segment, page, rc != 0);
  if (rc) return rc;
  page->chunk = 0;
  atomic_fetch_sub(&c->dev->held_bytes, segment->page_bytes);
  return 0;
}

/* With all the pages that it still has. */
void gap__caching_segment_close(struct caching *c, uint32_t index) {
  struct caching_segment *segment = caching_segment_at(c, index);
  for (uint64_t at = 0; at < segment->page_end; at++) put_back(c, segment, at);
  gap__dev_unreserve(c->dev->dev, segment->node.major, segment->node.minor);
  gap__meta_unmap(segment->pages, segment->page_count * sizeof *segment->pages);
  gap__tree_erase(&c->segment_tree, &c->segments, index);
  gap__slab_give(&c->segments, index);
}

static void spend(struct caching *c, struct caching_credit *credit, uint64_t bytes) {
  uint64_t charged = bytes < credit->bytes ? bytes : credit->bytes;
  credit->bytes -= charged;
  atomic_fetch_add(&c->dev->held_bytes, bytes - charged);
}

static int create_page(struct caching *c, struct caching_segment *segment, uint64_t at, struct caching_credit *credit) {
  struct caching_page *page = &segment->pages[at];
  if (page->chunk) {
    keep(segment, page, false);
    return 0;
  }
  int rc = gap__dev_chunk_create(c->dev->dev, segment->page_bytes, GAP__PLACE_DEVICE, &page->chunk);
  if (rc) page->chunk = 0;
  else spend(c, credit, segment->page_bytes);
  return rc;
}

static int map_page(struct caching *c, struct caching_segment *segment, uint64_t at) {
  struct caching_page *page = &segment->pages[at];
  if (page->mapped) return 0;
  gap_addr addr = segment->node.major + at * segment->page_bytes;
  int rc = gap__dev_map(c->dev->dev, addr, segment->page_bytes, page->chunk);
  page->mapped = rc == 0;
  return rc;
}

/* All pages are created before the first is mapped, as in torch: a driver without memory has then mapped nothing. */
int gap__caching_pages_map(struct caching *c, uint32_t index, gap_addr addr, uint64_t bytes,
                           struct caching_credit *credit) {
  struct caching_segment *segment = caching_segment_at(c, index);
  uint64_t first = (addr - segment->node.major) / segment->page_bytes, end = first + bytes / segment->page_bytes;
  uint64_t created = first;
  int rc = 0;
  while (!rc && created < end) {
    rc = create_page(c, segment, created, credit);
    created += rc == 0;
  }
  if (created > segment->page_end) segment->page_end = created;
  for (uint64_t at = first; at < end && !rc; at++) rc = map_page(c, segment, at);
  if (!rc) rc = gap__dev_set_access(c->dev->dev, addr, bytes);
  for (uint64_t at = first; at < created && rc; at++) put_back(c, segment, at);
  return rc;
}

int gap__caching_pages_unmap(struct caching *c, uint32_t index, gap_addr addr, uint64_t bytes) {
  struct caching_segment *segment = caching_segment_at(c, index);
  uint64_t first = (addr - segment->node.major) / segment->page_bytes, end = first + bytes / segment->page_bytes;
  int rc = 0;
  for (uint64_t at = first; at < end; at++) {
    int one = put_back(c, segment, at);
    if (!rc) rc = one;
  }
  return rc;
}

int gap__caching_pages_return(struct caching *c, uint32_t index) {
  struct caching_segment *segment = caching_segment_at(c, index);
  int rc = 0;
  for (uint64_t at = 0; at < segment->page_end && segment->kept_count; at++) {
    int one = segment->pages[at].kept ? put_back(c, segment, at) : 0;
    if (!rc) rc = one;
  }
  return rc;
}
