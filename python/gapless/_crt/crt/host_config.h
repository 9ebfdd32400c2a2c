/* Stands in for CUDA's header of this name, which has nothing for a host compiler that is not nvcc's; see host_defines.h. */
