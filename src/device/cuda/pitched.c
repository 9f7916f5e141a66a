/* SPDX-License-Identifier: MIT */
/* Copies of rows on a CUDA device. One call copies all planes if the driver can express their distance, which it
 * counts in rows; otherwise one call copies each plane. The driver has a largest pitch: rows further apart, which
 * are rare, are copied by one call each. */
#include "device/cuda/pitched.h"
#include "base/fail.h"
#include "device/cuda/frame.h"
#include "device/cuda/stream.h"

typedef struct pitched_job {
    const lochi_cuda_device *device, *source; /* source: device of the source of a copy between peers */
    loch_direction direction;
    char *to;
    const char *from;
    loch_pitched shape;
    void *stream;
} pitched_job;

static cu_choice pitched_type(bool is_host)
{
    return is_host ? LOCHI_CU_MEMORYTYPE_HOST : LOCHI_CU_MEMORYTYPE_DEVICE;
}

static loch_status pitched_2d(const pitched_job *job)
{
    const loch_pitched *shape = &job->shape;
    const cu_copy_2d copy = {.srcMemoryType = pitched_type(job->direction == LOCH_HOST_TO_DEVICE),
                             .srcHost = job->from,
                             .srcDevice = lochi_cuda_address(job->from),
                             .srcPitch = shape->from_row_pitch,
                             .dstMemoryType = pitched_type(job->direction == LOCH_DEVICE_TO_HOST),
                             .dstHost = job->to,
                             .dstDevice = lochi_cuda_address(job->to),
                             .dstPitch = shape->to_row_pitch,
                             .WidthInBytes = shape->row_bytes,
                             .Height = shape->rows};
    cu_result result;
    LOCHI_CUDA_CALL(result, job->device, AS_IS, cuMemcpy2DAsync_v2, (&copy, job->stream));
    return LOCHI_CUDA_STATUS(result, cuMemcpy2DAsync);
}

static loch_status pitched_3d(const pitched_job *job)
{
    const loch_pitched *shape = &job->shape;
    const cu_copy_3d copy = {.srcMemoryType = pitched_type(job->direction == LOCH_HOST_TO_DEVICE),
                             .srcHost = job->from,
                             .srcDevice = lochi_cuda_address(job->from),
                             .srcPitch = shape->from_row_pitch,
                             .srcHeight = shape->from_plane_pitch / shape->from_row_pitch,
                             .dstMemoryType = pitched_type(job->direction == LOCH_DEVICE_TO_HOST),
                             .dstHost = job->to,
                             .dstDevice = lochi_cuda_address(job->to),
                             .dstPitch = shape->to_row_pitch,
                             .dstHeight = shape->to_plane_pitch / shape->to_row_pitch,
                             .WidthInBytes = shape->row_bytes,
                             .Height = shape->rows,
                             .Depth = shape->planes};
    cu_result result;
    LOCHI_CUDA_CALL(result, job->device, AS_IS, cuMemcpy3DAsync_v2, (&copy, job->stream));
    return LOCHI_CUDA_STATUS(result, cuMemcpy3DAsync);
}

static loch_status pitched_peer(const pitched_job *job)
{
    const loch_pitched *shape = &job->shape;
    const bool is_deep = shape->planes > 1;
    const cu_copy_3d_peer copy = {.srcMemoryType = LOCHI_CU_MEMORYTYPE_DEVICE,
                                  .srcDevice = lochi_cuda_address(job->from),
                                  .srcContext = job->source->context,
                                  .srcPitch = shape->from_row_pitch,
                                  .srcHeight = is_deep ? shape->from_plane_pitch / shape->from_row_pitch : 0,
                                  .dstMemoryType = LOCHI_CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = lochi_cuda_address(job->to),
                                  .dstContext = job->device->context,
                                  .dstPitch = shape->to_row_pitch,
                                  .dstHeight = is_deep ? shape->to_plane_pitch / shape->to_row_pitch : 0,
                                  .WidthInBytes = shape->row_bytes,
                                  .Height = shape->rows,
                                  .Depth = shape->planes};
    cu_result result;
    LOCHI_CUDA_CALL(result, job->device, AS_IS, cuMemcpy3DPeerAsync, (&copy, job->stream));
    return LOCHI_CUDA_STATUS(result, cuMemcpy3DPeerAsync);
}

static loch_status pitched_row_by_row(const pitched_job *job)
{
    const loch_pitched *shape = &job->shape;
    for (size_t row = 0; row < shape->rows; row++)
        LOCH_TRY_RETURN(lochi_cuda_copy((void *)(uintptr_t)job->device, job->direction,
                                        job->to + row * shape->to_row_pitch, job->from + row * shape->from_row_pitch,
                                        shape->row_bytes, (void *)(uintptr_t)job->source, job->stream));
    return LOCH_OK;
}

static loch_status pitched_queue(const pitched_job *job)
{
    const loch_pitched *shape = &job->shape;
    const size_t pitch_max = job->device->pitch_max;
    if (shape->rows > 1 && (shape->to_row_pitch > pitch_max || shape->from_row_pitch > pitch_max))
        return pitched_row_by_row(job);
    if (job->direction == LOCH_PEER_TO_PEER) return pitched_peer(job);
    return shape->planes > 1 ? pitched_3d(job) : pitched_2d(job);
}

loch_status lochi_cuda_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                    const loch_pitched *shape, void *peer, void *stream)
{
    pitched_job job = {self, peer, direction, to, from, *shape, stream};
    const size_t pitch_max = job.device->pitch_max;
    const bool is_whole =
        shape->planes == 1 ||
        (shape->to_plane_pitch % shape->to_row_pitch == 0 && shape->from_plane_pitch % shape->from_row_pitch == 0 &&
         shape->to_row_pitch <= pitch_max && shape->from_row_pitch <= pitch_max);
    if (is_whole) return pitched_queue(&job);
    job.shape.planes = 1;
    for (size_t plane = 0; plane < shape->planes; plane++) {
        job.to = (char *)to + plane * shape->to_plane_pitch;
        job.from = (const char *)from + plane * shape->from_plane_pitch;
        LOCH_TRY_RETURN(pitched_queue(&job));
    }
    return LOCH_OK;
}
