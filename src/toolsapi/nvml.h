/* What NVIDIA's management library says of the cards: who uses how much of them, whatever serves their memory.
 *
 * libnvidia-ml.so.1 comes with the driver and is loaded when it is there; nothing here makes a context or asks a card to do anything. */
#ifndef GAP_TOOLSAPI_NVML_H
#define GAP_TOOLSAPI_NVML_H

#include <stdint.h>

enum { GAP__NVML_CARDS = 32, GAP__NVML_PROCESSES = 64 };

struct gap__nvml_process {
  int64_t process;
  uint64_t bytes; /* UINT64_MAX: it is not told */
};

struct gap__nvml_card {
  char name[96];
  unsigned char uuid[16];
  uint64_t total_bytes, used_bytes, free_bytes;
  uint32_t process_count;
  struct gap__nvml_process processes[GAP__NVML_PROCESSES];
};

struct gap__nvml {
  void *library; /* NULL: there is none */
  uint32_t count;
  struct gap__nvml_card cards[GAP__NVML_CARDS];
};

/* NULL: no host memory; else to be closed.  Where there is no library, or it does not start, there are no cards. */
struct gap__nvml *gap__nvml_open(void);
void gap__nvml_look(struct gap__nvml *);
void gap__nvml_close(struct gap__nvml *);
/* NULL: not among them. */
const struct gap__nvml_card *gap__nvml_card_of(const struct gap__nvml *, const unsigned char uuid[16]);

#endif
