// SPDX-License-Identifier: MIT
// Copies, peers, and where memory lies.
#include "allocator.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <loch/device.h>

namespace loch_torch
{

void Allocator::copy_data(void *to, const void *from, size_t bytes) const
{
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyKind::cudaMemcpyDeviceToDevice));
}

// Loch maps memory of its own, so the segment of a block is the block itself for what others do with it.
void *Allocator::getBaseAllocation(void *ptr, size_t *size)
{
    Pool *pool = find_owner(ptr);
    TORCH_CHECK(pool, "invalid device pointer: ", ptr);
    loch_block block{};
    block.size = sizeof block;
    check("find a block", loch_allocator_find(pool->loch, ptr, &block));
    if (size) *size = block.allocated_bytes;
    return block.address;
}

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex to)
{
    if (settings().is_simulated || device == to) return;
    const c10::cuda::CUDAGuard guard(device);
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
        (void)cudaGetLastError(); // clears it
    else
        C10_CUDA_CHECK(error);
    // Loch maps the memory of `to` for `device`, now and later.
    check("let a device read another one's memory",
          loch_device_enable_peer(open_device(to).loch, open_device(device).loch));
}

cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                   cudaStream_t stream, bool p2p_enabled)
{
    // Mapped memory without access for peers is copied by the peer call only.
    if (p2p_enabled || to_device == from_device)
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

} // namespace loch_torch
