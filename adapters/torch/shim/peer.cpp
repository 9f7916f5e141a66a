// SPDX-License-Identifier: MIT
// Copies, peers, and where memory lies.
#include "allocator.h"
#include "peers.h"

#include <c10/cuda/CUDAException.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
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

// Opens a mapped range to a device. Returns 0 or CUDA's error. Warns once: for a range that is mapped later, no caller
// gets the error.
static int open_range(void *address, size_t bytes, int reader)
{
    using SetAccess = decltype(&cuMemSetAccess);
    static const auto set_access = [] {
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); // the process has it: PyTorch uses a GPU
        return library ? reinterpret_cast<SetAccess>(dlsym(library, "cuMemSetAccess")) : nullptr;
    }();
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = reader;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult result = set_access ? set_access(reinterpret_cast<CUdeviceptr>(address), bytes, &access, 1)
                                       : CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
    if (result == CUDA_SUCCESS) return 0;
    try {
        TORCH_WARN_ONCE("Loch: CUDA cannot open mapped memory to device ", reader, ": error ",
                        static_cast<int>(result));
    } catch (...) { // Loch calls from C
    }
    return result;
}

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex to)
{
    static Peers &peers = *new Peers(open_range); // never destroyed: Loch calls it until the process ends
    if (settings().is_simulated || device == to) return;
    loch_device *memory = open_device(to).loch;
    check("let a device use another one's memory", loch_device_enable_peer(open_device(device).loch, memory));
    int error = 0;
    check("observe the memory of a device", peers.add(device, to, memory, &error));
    TORCH_CHECK(!error, "Loch: CUDA cannot open the memory of device ", static_cast<int>(to), " to device ",
                static_cast<int>(device), ": error ", error);
}

cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                   cudaStream_t stream, bool p2p_enabled)
{
    if (to_device == from_device) return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    // Needs no access of peers to the memory.
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

} // namespace loch_torch
