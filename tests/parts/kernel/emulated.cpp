// SPDX-License-Identifier: MIT
// Loch's own kernels on the host. The files are those that scripts/ptx compiles; here are the few words of CUDA that
// they use. A block with shared memory runs twice: in the first pass every thread ends at the barrier, in the second
// pass every thread does the part before it again, with the results that it had, and goes on.
#include "emulated.h"
#include <csetjmp>
#include <cstdint>
#include <cstring>

#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)
#include <cuda/job.h>
#include <cuda/type.h>

struct uint2 {
    u32 x, y;
};
struct uint4 {
    u32 x, y, z, w;
};
static inline uint2 make_uint2(u32 x, u32 y)
{
    return {x, y};
}
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w)
{
    return {x, y, z, w};
}
static inline u32 __umulhi(u32 a, u32 b)
{
    return (u32)((u64)a * b >> 32);
}

static inline u32 __byte_perm(u32 a, u32 b, u32 selector)
{
    const u64 both = (u64)b << 32 | a;
    u32 result = 0;
    for (int i = 0; i < 4; i++)
        result |= (u32)(both >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
    return result;
}

static struct {
    u32 x;
} blockIdx, threadIdx;
static emulated_marks emulated;
static bool is_first_pass, has_barrier;
static jmp_buf thread_end;

static inline u32 mark_from()
{
    return emulated.from;
}
static inline u32 mark_to()
{
    return emulated.to;
}
static inline u32 mark_from_bytes()
{
    return emulated.from_bytes;
}
static inline u32 mark_to_bytes()
{
    return emulated.to_bytes;
}

static inline void __syncthreads()
{
    has_barrier = true;
    if (is_first_pass) longjmp(thread_end, 1);
}

#include <cuda/chunks.cu>
#include <cuda/fill.cu>
#include <cuda/rows.cu>
#include <cuda/tiles.cu>

namespace
{

template <typename job_type> void run_blocks(void (*kernel)(job_type), unsigned blocks, const void *job)
{
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        is_first_pass = true;
        has_barrier = false;
        for (threadIdx.x = 0; threadIdx.x < KERNEL_BLOCK; threadIdx.x++)
            if (!setjmp(thread_end)) kernel(*(const job_type *)job);
        is_first_pass = false;
        if (!has_barrier) continue;
        for (threadIdx.x = 0; threadIdx.x < KERNEL_BLOCK; threadIdx.x++)
            kernel(*(const job_type *)job);
    }
}

} // namespace

#define EMULATED(kernel)                                                                                               \
    if (!std::strcmp(name, #kernel)) {                                                                                 \
        run_blocks(kernel, blocks, job);                                                                               \
        return true;                                                                                                   \
    }
#define EMULATED_TO(kind, F) EMULATED(kind##F##_1) EMULATED(kind##F##_2) EMULATED(kind##F##_4) EMULATED(kind##F##_8)
#define EMULATED_ALL(kind) EMULATED_TO(kind, 1) EMULATED_TO(kind, 2) EMULATED_TO(kind, 4) EMULATED_TO(kind, 8)
#define EMULATED_BYTES(kind) EMULATED(kind##1) EMULATED(kind##2) EMULATED(kind##4) EMULATED(kind##8) EMULATED(kind##16)

bool emulated_run(const char *name, emulated_marks marks, unsigned blocks, const void *job)
{
    emulated = marks;
    EMULATED_ALL(loch_chunks_)
    EMULATED(loch_each)
    EMULATED_ALL(loch_tiles_)
    EMULATED(loch_each_16_16)
    EMULATED(loch_tiles_16_16)
    EMULATED_BYTES(loch_fill_)
    EMULATED_BYTES(loch_gather_)
    EMULATED_BYTES(loch_scatter_)
    return false;
}
