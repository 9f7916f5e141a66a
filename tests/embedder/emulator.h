/* SPDX-License-Identifier: MIT */
/* Runs CUDA kernels on the host, block by block: each thread of a block is a fiber with a stack of its own. A fiber
 * runs until it has to wait for others (a barrier, a shuffle, a product of a warp), then the next one runs. Slow and
 * exact: for kernels whose results are compared with a formula where there is no GPU. */
#ifndef EMBEDDER_EMULATOR_H
#define EMBEDDER_EMULATOR_H

#include <cmath>
#include <cstring>
#include <functional>
#include <loch/loch.h>
#include <loch/tensor.h>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct dimensions {
    int x, y, z;
};
struct float4 {
    float x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};

static dimensions blockIdx, blockDim, threadIdx;

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

static inline float __int_as_float(unsigned bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

/* --- fibers --- */

namespace emulator
{

enum { WARP = 32, WARPS = 16, STACK_BYTES = 1 << 16 };

struct fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool has_ended;
};

static std::vector<fiber> fibers;
static ucontext_t scheduler;
static int current; /* index of the fiber that runs */
static std::function<void()> kernel;

/* A barrier of a warp, or of the block behind the warps. */
static struct {
    int arrived;
    unsigned generation;
} barriers[WARPS + 1];

static int warp()
{
    return current / WARP;
}

static int lane()
{
    return current % WARP;
}

static int count_running(int first, int end)
{
    int count = 0;
    for (int i = first; i < end && i < (int)fibers.size(); i++)
        count += !fibers[i].has_ended;
    return count;
}

static void wait_for(int barrier, int count)
{
    const unsigned generation = barriers[barrier].generation;
    if (++barriers[barrier].arrived == count) {
        barriers[barrier].arrived = 0;
        barriers[barrier].generation++;
    }
    while (barriers[barrier].generation == generation)
        swapcontext(&fibers[current].context, &scheduler);
}

static void wait_for_warp()
{
    wait_for(warp(), count_running(warp() * WARP, (warp() + 1) * WARP));
}

static void run_fiber()
{
    kernel();
    fibers[current].has_ended = true;
    swapcontext(&fibers[current].context, &scheduler);
}

static void run_block()
{
    for (fiber &one : fibers) {
        one.stack.resize(STACK_BYTES);
        one.has_ended = false;
        getcontext(&one.context);
        one.context.uc_stack.ss_sp = one.stack.data();
        one.context.uc_stack.ss_size = one.stack.size();
        makecontext(&one.context, run_fiber, 0);
    }
    while (count_running(0, (int)fibers.size()))
        for (current = 0; current < (int)fibers.size(); current++) {
            threadIdx = {current, 0, 0};
            if (!fibers[current].has_ended) swapcontext(&scheduler, &fibers[current].context);
        }
}

/* Runs a kernel, given as a call of it with its arguments, for each block of a grid. */
static void launch(dimensions grid, int threads, const std::function<void()> &call)
{
    kernel = call;
    blockDim = {threads, 1, 1};
    fibers.resize(threads);
    for (int z = 0; z < grid.z; z++)
        for (int y = 0; y < grid.y; y++)
            for (int x = 0; x < grid.x; x++) {
                blockIdx = {x, y, z};
                run_block();
            }
}

} // namespace emulator

/* --- what lanes do together --- */

static inline void __syncwarp()
{
    emulator::wait_for_warp();
}

static inline void __syncthreads()
{
    emulator::wait_for(emulator::WARPS, emulator::count_running(0, (int)emulator::fibers.size()));
}

static inline float __shfl_xor_sync(unsigned, float x, int mask)
{
    static float all[emulator::WARPS][emulator::WARP];
    all[emulator::warp()][emulator::lane()] = x;
    emulator::wait_for_warp();
    const float result = all[emulator::warp()][emulator::lane() ^ mask];
    emulator::wait_for_warp();
    return result;
}

/* --- in place of apps/embedder/instructions.h --- */

#define EMBEDDER_INSTRUCTIONS_H

typedef unsigned short half;

static inline float widen(half x)
{
    float value = 0;
    (void)!loch_convert(LOCH_F32, &value, LOCH_F16, &x, 1, NULL); /* valid types: it cannot fail */
    return value;
}

static inline half narrow(float x)
{
    half bits = 0;
    (void)!loch_convert(LOCH_F16, &bits, LOCH_F32, &x, 1, NULL); /* valid types: it cannot fail */
    return bits;
}

static inline unsigned pack(float low, float high)
{
    return narrow(low) | (unsigned)narrow(high) << 16;
}

/* sum += a b by the layout of mma.m16n8k16 in the manual of PTX. */
static inline void multiply(float sum[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    struct operands {
        half a[4][2], b[2][2];
    };
    static operands all[emulator::WARPS][emulator::WARP];
    operands *lanes = all[emulator::warp()], *own = &lanes[emulator::lane()];
    memcpy(own->a, a, sizeof own->a);
    memcpy(own->b[0], &b0, sizeof b0);
    memcpy(own->b[1], &b1, sizeof b1);
    emulator::wait_for_warp();
    for (int i = 0; i < 4; i++) {
        const int row = emulator::lane() / 4 + i / 2 * 8, column = emulator::lane() % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++)
            sum[i] += widen(lanes[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2][k % 2]) *
                      widen(lanes[column * 4 + k % 8 / 2].b[k / 8][k % 2]);
    }
    emulator::wait_for_warp();
}

/* Loads by the layout of ldmatrix.x4.trans. */
static inline void load_turned(const half *row, unsigned b[4])
{
    static const half *all[emulator::WARPS][emulator::WARP];
    const half **rows = all[emulator::warp()];
    rows[emulator::lane()] = row;
    emulator::wait_for_warp();
    const int pair = emulator::lane() % 4 * 2, column = emulator::lane() / 4;
    for (int i = 0; i < 4; i++)
        b[i] = rows[i * 8 + pair][column] | (unsigned)rows[i * 8 + pair + 1][column] << 16;
    emulator::wait_for_warp();
}

#endif
