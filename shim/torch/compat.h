// What differs between torch releases, in one place: 2.8 to 2.15.
#pragma once

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/csrc/api/include/torch/version.h>
#endif

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/ApproximateClock.h>

#define GAP_TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

static_assert(GAP_TORCH_AT_LEAST(8), "the shim knows torch 2.8 and newer");

namespace gapless {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

using Pool = c10::cuda::MempoolId_t;
using torch_cuda::AllocatorState;
using torch_cuda::BlockInfo;
using torch_cuda::CheckpointDelta;
using torch_cuda::CUDAAllocator;
using torch_cuda::DeviceStats;
using torch_cuda::RecordContext;
using torch_cuda::SegmentInfo;
using torch_cuda::ShareableHandle;
using torch_cuda::SnapshotInfo;
using torch_cuda::TraceEntry;

#if GAP_TORCH_AT_LEAST(11)
using StreamField = void *;  // of TraceEntry and SegmentInfo
#else
using StreamField = cudaStream_t;
#endif

#if GAP_TORCH_AT_LEAST(11)
using PoolOwner = std::shared_ptr<CUDAAllocator>;
#else
using PoolOwner = CUDAAllocator *;
#endif

}  // namespace gapless
