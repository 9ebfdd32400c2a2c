/* How much address space this process may still take.
 *
 * The allocator reserves generously and touches little; where that is not free of charge, it asks here and takes a part.
 * Cold paths only: /proc is read where there is a limit. */
#ifndef GAP_ROOM_H
#define GAP_ROOM_H

#include <stdint.h>

#define GAP__ROOM_UNLIMITED UINT64_MAX

/* For addresses without memory: RLIMIT_AS counts them. */
uint64_t gap__room_addresses(void);
/* For memory that is not touched yet: a kernel that does not overcommit (vm.overcommit_memory 2) counts it too. */
uint64_t gap__room_memory(void);

#endif
