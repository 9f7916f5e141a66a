/* SPDX-License-Identifier: MIT */
/* A shared library that has the names of cuBLAS and NCCL which Loch needs, and carries the name libcublas.so.12 in
 * itself: test_library.c finds it by that and by its file. Nothing but versions is ever asked of it. */

#define FAKE __attribute__((visibility("default")))

FAKE int cublasCreate_v2(void **handle);
FAKE int cublasDestroy_v2(void *handle);
FAKE int cublasSetStream_v2(void *handle, void *stream);
FAKE int cublasGetProperty(int property, int *value);
FAKE int ncclGetVersion(int *version);
FAKE int ncclCommInitAll(void **communicators, int count, const int *devices);
FAKE int ncclCommDestroy(void *communicator);
FAKE const char *ncclGetErrorString(int result);
FAKE void fake_nccl_fails(int result);

static int nccl_result;

int cublasCreate_v2(void **handle)
{
    (void)handle;
    return 1;
}

int cublasDestroy_v2(void *handle)
{
    (void)handle;
    return 1;
}

int cublasSetStream_v2(void *handle, void *stream)
{
    (void)handle, (void)stream;
    return 1;
}

int cublasGetProperty(int property, int *value)
{
    *value = property + 12;
    return 0;
}

void fake_nccl_fails(int result)
{
    nccl_result = result;
}

int ncclGetVersion(int *version)
{
    *version = 22805;
    return nccl_result;
}

int ncclCommInitAll(void **communicators, int count, const int *devices)
{
    (void)communicators, (void)count, (void)devices;
    return 1;
}

int ncclCommDestroy(void *communicator)
{
    (void)communicator;
    return 1;
}

const char *ncclGetErrorString(int result)
{
    return result == 3 ? "the fake has had enough" : "another code";
}
