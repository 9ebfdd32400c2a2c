/* The driver's interface in our own words, so that no toolkit is needed to build.  Names of constants are those of cuda.h with
 * GAP__ before them; members of structs are called as there. */
#ifndef GAP_CUDA_ABI_H
#define GAP_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
#define GAP_CUDA_VALUE(name, value) GAP__##name = value,
#define GAP_CUDA_STRUCT(ours, theirs)
#define GAP_CUDA_FIELD(ours, theirs, path)
#define GAP_CUDA_MEMBER(ours, path, theirs, their_path)
#include "dev/cuda/abi.def"
#undef GAP_CUDA_VALUE
#undef GAP_CUDA_STRUCT
#undef GAP_CUDA_FIELD
#undef GAP_CUDA_MEMBER
};

typedef unsigned gap__cuda_result; /* an enum there */
typedef int gap__cuda_device;
typedef uint64_t gap__cuda_addr;
typedef uint64_t gap__cuda_handle;
typedef struct gap__cuda_opaque *gap__cuda_context;
typedef struct gap__cuda_opaque *gap__cuda_stream;
typedef struct gap__cuda_opaque *gap__cuda_event;
typedef struct gap__cuda_opaque *gap__cuda_graph;
typedef struct gap__cuda_opaque *gap__cuda_node;
typedef struct gap__cuda_opaque *gap__cuda_module;
typedef struct gap__cuda_opaque *gap__cuda_function;

struct gap__cuda_uuid {
  unsigned char bytes[16];
};

struct gap__cuda_location {
  unsigned type;
  int id;
};

struct gap__cuda_prop {
  unsigned type;
  unsigned requestedHandleTypes;
  struct gap__cuda_location location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};

struct gap__cuda_access {
  struct gap__cuda_location location;
  unsigned flags;
};

/* CUstreamBatchMemOpParams of a write or a wait, which look the same. */
union gap__cuda_memop {
  unsigned operation;
  struct {
    unsigned operation;
    gap__cuda_addr address;
    union {
      uint32_t value;
      uint64_t value64;
    } number;
    unsigned flags;
    gap__cuda_addr alias; /* the driver's */
  } value;
  uint64_t pad[6];
};

/* What dlsym finds; everything else is asked of it. */
typedef gap__cuda_result gap__cuda_get_proc_address(const char *name, void **out, int version, uint64_t flags,
                                                    unsigned *status);

#endif
