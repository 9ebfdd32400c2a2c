/* A real card: streams of our own stand for the recorded ones, and two words of pinned memory a stream for the work that keeps it
 * busy.  A queued wait for a word to reach the next number is the work; writing that number ends it.  The words are written by the
 * processor, not by another stream: streams share hardware queues, so that a write may lie behind the very wait that it should end.
 *
 *   hold word   between a hold and its release
 *   lag word    every recorded event waits until the timer thread writes its number, one lag later
 *
 * The device's own table of calls is copied, and two calls of it are replaced: event_record, for the lag, and event_wait, which ends all
 * holds first, since the thread that waits is the one that would release them.  (destroy, too, to take the streams down with it.) */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/map.h"
#include "replay/card.h"

enum { STREAMS_MAX = 4096, WORDS_BYTES = 8 * STREAMS_MAX, SPIN_NS = 80000 };

struct word {
  _Atomic uint32_t *at;
  uint32_t queued; /* the last number waited for */
};

struct stream {
  gap_stream handle;
  struct word hold, lag;
};

struct due {
  uint64_t at_ns;
  uint32_t stream, number;
};

struct real {
  struct gap__card card;
  struct gap__dev_ops ops; /* the device's, with two calls replaced; found from the device by its address */
  const struct gap__dev_ops *inner;
  _Atomic uint32_t *words; /* pinned; two a stream */

  pthread_mutex_t lock; /* guards all below */
  pthread_cond_t wake;
  struct gap__map by_recorded, by_handle; /* -> index */
  struct stream streams[STREAMS_MAX];
  uint32_t stream_count;
  uint64_t lag_ns;
  struct due *due; /* a ring, in order of time */
  uint32_t due_first, due_count, due_room;
  bool stop;
  pthread_t timer;
  bool timer_runs;
};

static struct real *real_of(struct gap__card *card) { return (struct real *)card; }
static struct real *real_of_dev(struct gap__dev *dev) {
  return (struct real *)(void *)((char *)(uintptr_t)dev->ops - offsetof(struct real, ops));
}

static int queue_wait(struct real *real, gap_stream on, struct word *word) {
  int rc = real->inner->wait_value(real->card.dev, on, (uintptr_t)word->at, word->queued + 1);
  if (rc == 0) word->queued++;
  return rc;
}

/* Lets everything up to `number` go. */
static void write_word(struct word *word, uint32_t number) {
  if (atomic_load(word->at) < number) atomic_store(word->at, number);
}

/* ---- streams ---- */

static int add_stream(struct real *real, uint64_t recorded, gap_stream *out) {
  uint32_t index = real->stream_count;
  if (index == STREAMS_MAX) return GAP_ELIMIT;
  struct stream *made = &real->streams[index];
  int rc = real->inner->stream_create(real->card.dev, &made->handle);
  if (rc) return rc;
  made->hold.at = real->words + 2 * (size_t)index;
  made->lag.at = made->hold.at + 1;
  rc = gap__map_put(&real->by_recorded, recorded, index);
  if (rc == 0) rc = gap__map_put(&real->by_handle, made->handle, index);
  if (rc) {
    real->inner->stream_destroy(real->card.dev, made->handle);
    return rc;
  }
  real->stream_count++;
  *out = made->handle;
  return 0;
}

static int stream(struct gap__card *card, uint64_t recorded, gap_stream *out) {
  struct real *real = real_of(card);
  uint64_t index;
  int rc = 0;
  pthread_mutex_lock(&real->lock);
  if (gap__map_get(&real->by_recorded, recorded, &index)) *out = real->streams[index].handle;
  else rc = add_stream(real, recorded, out);
  pthread_mutex_unlock(&real->lock);
  return rc;
}

static struct stream *find_stream(struct real *real, gap_stream handle) {
  uint64_t index;
  return gap__map_get(&real->by_handle, handle, &index) ? &real->streams[index] : NULL;
}

/* ---- holds ---- */

static int hold(struct gap__card *card, gap_stream handle) {
  struct real *real = real_of(card);
  pthread_mutex_lock(&real->lock);
  struct stream *at = find_stream(real, handle);
  int rc = at ? queue_wait(real, handle, &at->hold) : GAP_EINVAL;
  pthread_mutex_unlock(&real->lock);
  return rc;
}

static int release(struct gap__card *card, gap_stream handle) {
  struct real *real = real_of(card);
  pthread_mutex_lock(&real->lock);
  struct stream *at = find_stream(real, handle);
  if (at) write_word(&at->hold, at->hold.queued);
  pthread_mutex_unlock(&real->lock);
  return at ? 0 : GAP_EINVAL;
}

static int event_wait(struct gap__dev *dev, gap__event event) {
  struct real *real = real_of_dev(dev);
  pthread_mutex_lock(&real->lock);
  for (uint32_t i = 0; i < real->stream_count; i++) write_word(&real->streams[i].hold, real->streams[i].hold.queued);
  pthread_mutex_unlock(&real->lock);
  return real->inner->event_wait(dev, event);
}

/* ---- the lag ---- */

static int push_due(struct real *real, struct due due) {
  if (real->due_count == real->due_room) {
    uint32_t room = real->due_room ? 2 * real->due_room : 256;
    struct due *more = malloc(room * sizeof *more);
    if (!more) return GAP_ENOMETA;
    for (uint32_t i = 0; i < real->due_count; i++) more[i] = real->due[(real->due_first + i) % real->due_room];
    free(real->due);
    real->due = more;
    real->due_first = 0;
    real->due_room = room;
  }
  real->due[(real->due_first + real->due_count++) % real->due_room] = due;
  pthread_cond_signal(&real->wake);
  return 0;
}

/* The stream gets here one lag later than the program. */
static void fall_behind(struct real *real, gap_stream handle) {
  struct stream *at = find_stream(real, handle);
  if (!at || !real->lag_ns || queue_wait(real, handle, &at->lag)) return;
  struct due due = {real->inner->now_ns(real->card.dev) + real->lag_ns, (uint32_t)(at - real->streams), at->lag.queued};
  if (push_due(real, due)) write_word(&at->lag, at->lag.queued);
}

static int event_record(struct gap__dev *dev, gap__event event, gap_stream handle) {
  struct real *real = real_of_dev(dev);
  pthread_mutex_lock(&real->lock);
  fall_behind(real, handle);
  pthread_mutex_unlock(&real->lock);
  return real->inner->event_record(dev, event, handle);
}

static void sleep_locked(struct real *real, uint64_t ns) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  ns += (uint64_t)until.tv_nsec;
  until.tv_sec += (time_t)(ns / 1000000000u);
  until.tv_nsec = (long)(ns % 1000000000u);
  pthread_cond_timedwait(&real->wake, &real->lock, &until);
}

static void *run_timer(void *arg) {
  struct real *real = arg;
  pthread_mutex_lock(&real->lock);
  while (!real->stop) {
    if (!real->due_count) {
      pthread_cond_wait(&real->wake, &real->lock);
      continue;
    }
    struct due due = real->due[real->due_first];
    uint64_t now = real->inner->now_ns(real->card.dev);
    if (due.at_ns > now) {
      sleep_locked(real, due.at_ns - now);
      continue;
    }
    write_word(&real->streams[due.stream].lag, due.number);
    real->due_first = (real->due_first + 1) % real->due_room;
    real->due_count--;
  }
  pthread_mutex_unlock(&real->lock);
  return NULL;
}

static void lag_set(struct gap__card *card, uint64_t us) {
  struct real *real = real_of(card);
  pthread_mutex_lock(&real->lock);
  real->lag_ns = us * 1000;
  pthread_mutex_unlock(&real->lock);
}

/* ---- time ---- */

static void wait_until(struct gap__card *card, uint64_t ns) {
  struct real *real = real_of(card);
  for (uint64_t now; (now = real->inner->now_ns(card->dev)) < ns;) {
    if (ns - now <= SPIN_NS) continue;
    uint64_t nap = ns - now - SPIN_NS;
    nanosleep(&(struct timespec){(time_t)(nap / 1000000000u), (long)(nap % 1000000000u)}, NULL);
  }
}

/* ---- life ---- */

static void end_all_waits(struct real *real) {
  for (uint32_t i = 0; i < real->stream_count; i++) {
    write_word(&real->streams[i].hold, real->streams[i].hold.queued);
    write_word(&real->streams[i].lag, real->streams[i].lag.queued);
  }
}

static void give_words(struct real *real) {
  if (!real->words) return;
  real->inner->unpin(real->card.dev, real->words, WORDS_BYTES);
  munmap(real->words, WORDS_BYTES);
}

/* Waits for what is queued on the stream. */
static int drain(struct real *real, gap_stream handle) {
  struct gap__dev *dev = real->card.dev;
  gap__event end;
  int rc = real->inner->event_create(dev, handle, &end);
  if (rc) return rc;
  rc = real->inner->event_record(dev, end, handle);
  if (rc == 0) rc = real->inner->event_wait(dev, end);
  real->inner->event_destroy(dev, end);
  return rc;
}

/* The words go only when nothing waits for them any more. */
static void give_stream(struct real *real, gap_stream handle) {
  drain(real, handle);
  real->inner->stream_destroy(real->card.dev, handle);
}

static void stop_timer(struct real *real) {
  pthread_mutex_lock(&real->lock);
  real->stop = true;
  end_all_waits(real);
  pthread_cond_signal(&real->wake);
  pthread_mutex_unlock(&real->lock);
  if (real->timer_runs) pthread_join(real->timer, NULL);
}

/* The heap is gone: so is all that used the streams and the words. */
static void destroy(struct gap__dev *dev) {
  struct real *real = real_of_dev(dev);
  stop_timer(real);
  for (uint32_t i = 0; i < real->stream_count; i++) give_stream(real, real->streams[i].handle);
  give_words(real);
  dev->ops = real->inner;
  dev->ops->destroy(dev);
}

static void close_card(struct gap__card *card) {
  struct real *real = real_of(card);
  gap__map_free(&real->by_recorded);
  gap__map_free(&real->by_handle);
  pthread_cond_destroy(&real->wake);
  pthread_mutex_destroy(&real->lock);
  free(real->due);
  free(real);
}

static const struct gap__card_ops ops = {wait_until, stream, hold, release, lag_set, close_card};

static int make_words(struct real *real) {
  void *words = mmap(NULL, WORDS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (words == MAP_FAILED) return GAP_ENOMETA;
  int rc = real->inner->pin(real->card.dev, words, WORDS_BYTES);
  if (rc) munmap(words, WORDS_BYTES);
  else real->words = words;
  return rc;
}

static void init_locks(struct real *real) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&real->wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&real->lock, NULL);
}

int gap__card_real(struct gap__dev *dev, const gap_replay_options *options, struct gap__card **out) {
  struct real *real = calloc(1, sizeof *real);
  if (!real) {
    gap__dev_destroy(dev);
    return GAP_ENOMETA;
  }
  real->card = (struct gap__card){.ops = &ops, .dev = dev, .maker = GAP__MAKER_THREAD};
  real->inner = dev->ops;
  real->ops = *dev->ops;
  real->ops.event_record = event_record;
  real->ops.event_wait = event_wait;
  real->ops.destroy = destroy;
  dev->ops = &real->ops;
  real->lag_ns = options->lag_us * 1000;
  init_locks(real);
  int rc = dev->caps.wait_values && dev->caps.vmm && !dev->caps.stepped ? 0 : GAP_ENOTSUP;
  if (rc == 0) rc = make_words(real);
  if (rc == 0) rc = pthread_create(&real->timer, NULL, run_timer, real) ? GAP_ENOMETA : 0;
  real->timer_runs = rc == 0;
  if (rc == 0) *out = &real->card;
  else {
    gap__dev_destroy(dev);
    close_card(&real->card);
  }
  return rc;
}
