"""Which of PyTorch's tests upstream.py runs: patterns over FILE.CLASS.TEST, each with its reason."""

import fnmatch

# what test_cuda.py tests of memory; the rest of it (arithmetic, autocast, random numbers, NVML) is left out
CHOSEN = {
    # allocation, its figures and limits
    "test_cuda.TestCuda.test_*memory*": "figures, the memory fraction, out of memory, keys for pinned memory",
    "test_cuda.TestCuda.test_caching_allocator*": "record_stream when memory is short",
    "test_cuda.TestCuda.test_record_stream*": "blocks used by other streams",
    "test_cuda.TestCuda.test_cublas_workspace*": "workspaces come from the allocator",
    "test_cuda.TestCuda.test_streaming_backwards*": "autograd's threads free what the main thread allocated",
    # graphs and their pools
    "test_cuda.TestCuda.test_*graph*": "capture, replay, pools, out of memory while capturing",
    "test_cuda.TestCudaOptimsCUDA.test_graph*": "optimizers inside graphs",
    "test_cuda.TestBlockStateAbsorption.test_*": "checkpoint and restore, for cudagraph trees",
    # the caching allocator: snapshots, history, settings, observers (the name of the class misleads)
    "test_cuda.TestCudaMallocAsync.test_*memory_*": "snapshots, history, the viewer's plots",
    "test_cuda.TestCudaMallocAsync.test_direct_traceback": "the stacks of history",
    "test_cuda.TestCudaMallocAsync.test_cycles": "observers of garbage on the card",
    "test_cuda.TestCudaMallocAsync.test_*allocator*": "settings, random allocation",
    "test_cuda.TestCudaMallocAsync.test_cachingAllocator*": "raw allocation, the base pointer",
    "test_cuda.TestCudaMallocAsync.test_*expandable": "settings' combinations",
    "test_cuda.TestCudaMallocAsync.test_*_oom*": "what is raised, and who is told",
    "*.TestMemPool.test_*": "pools by name, with an allocator of their own, from several threads",
    # beside test_cuda.py
    "test_cuda_multigpu.TestCudaMultiGPU.test_*mem*": "figures that agree after each step; on two cards too",
    "test_multiprocessing.TestMultiprocessing.test_*cuda*": "memory shared between processes",
    "test_multiprocessing.TestMultiprocessing.test_event*": "events between processes, which guard that memory",
    "test_cuda_trace.TestCudaTrace.test_*memory*": "trace trackers",
    "test_cuda_sanitizer.TestArgumentHandler.*": "the sanitizer, which lives on those; its other tests have no tensor",
    "test_memory_profiler.*CUDA.test_*": "the profiler's memory timeline",
    "test_cudagraph_trees.*": "torch.compile with cudagraph trees",
}

LEFT_OUT = {
    "test_cuda.*.test_device_memory_used": "NVML, no allocator",
    "test_cuda.*.test_no_triton_on_import": "nothing of memory",
    "test_cuda.*.test_noncontiguous_pinned_memory": "host memory only",
    "test_cuda.*.test_caching_pinned_memory": "host memory only",
}

# these take most of the card: no neighbour may be there (what neighbours spoil otherwise is tried again alone)
ALONE = [
    "test_cuda.TestCuda.test_out_of_memory_retry",
    "test_cuda.TestCuda.test_set_per_process_memory_fraction",
]

# minutes each: by --files only
SLOW = ["test_cudagraph_trees"]


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def is_chosen(name):
    return matches(name, CHOSEN) and not matches(name, LEFT_OUT)


def wants_the_card(name):
    return matches(name, ALONE)
