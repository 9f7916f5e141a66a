/* SPDX-License-Identifier: MIT */
/* Memory and events of the CUDA driver for tests between real processes. A test double: see fake.h.
 *
 * Exported memory is a file in memory, and its descriptor is what is handed over. What a real driver knows by number,
 * fabric handles and events, names a descriptor of the process that has it: /proc/PROCESS/fd/NUMBER. */
#include "fake.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "memfd:loch-fake-cuda"

/* What a handle of 64 bytes has in it. */
typedef struct share_name {
    char mark[16];
    int process, descriptor;
    uint64_t inode;
} share_name;

static const char share_mark[16] = "loch fake cuda";

/* Opens the file that a name means; -1 for a name that means none. */
static int name_open(const share_name *name)
{
    char path[64];
    struct stat about;
    if (memcmp(name->mark, share_mark, sizeof share_mark) != 0) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", name->process, name->descriptor);
    const int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return -1;
    if (fstat(descriptor, &about) == 0 && about.st_ino == name->inode) return descriptor;
    close(descriptor);
    return -1;
}

static share_name name_make(int descriptor)
{
    share_name name = {.process = (int)getpid(), .descriptor = descriptor};
    struct stat about = {0};
    memcpy(name.mark, share_mark, sizeof name.mark);
    if (fstat(descriptor, &about) == 0) name.inode = about.st_ino;
    return name;
}

/* --- memory --- */

#ifndef FAKE_OLD
static fake_handle *handle_find(cu_memory memory)
{
    fake_handle *handle = fake.handles;
    while (handle && (uintptr_t)handle != memory)
        handle = handle->next;
    return handle;
}

cu_result cuMemExportToShareableHandle(void *shared, cu_memory memory, cu_choice_handle_type type,
                                       unsigned long long flags)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    fake_take();
    const fake_handle *handle = handle_find(memory);
    if (!handle || flags || !(handle->types & type)) return fake_drop(LOCHI_CUDA_ERROR_INVALID_VALUE);
    if (type == LOCHI_CU_MEM_HANDLE_TYPE_FABRIC) {
        const share_name name = name_make(handle->physical->descriptor);
        memset(shared, 0, 64);
        memcpy(shared, &name, sizeof name);
        return fake_drop(LOCHI_CUDA_SUCCESS);
    }
    const int descriptor = fcntl(handle->physical->descriptor, F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) return fake_drop(LOCHI_CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(shared, &descriptor, sizeof descriptor);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

/* Tells whether a descriptor is of memory that a driver like this one has made. */
static bool is_ours(int descriptor)
{
    char path[64], target[128];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return false;
    target[length] = '\0';
    return strstr(target, NAME) != NULL;
}

/* Finds the memory of this process that a file is. */
static fake_physical *physical_find(uint64_t inode)
{
    for (const fake_handle *handle = fake.handles; handle; handle = handle->next)
        if (handle->physical->inode == inode) return handle->physical;
    for (size_t i = 0; i < fake.maps.count; i++)
        if (fake.maps.items[i]->physical->inode == inode) return fake.maps.items[i]->physical;
    return NULL;
}

/* Takes the descriptor over. */
static fake_physical *physical_import(int descriptor)
{
    struct stat about = {0};
    fake_physical *physical = fstat(descriptor, &about) == 0 ? physical_find(about.st_ino) : NULL;
    if (physical) {
        physical->refs++;
        close(descriptor);
        return physical;
    }
    physical = calloc(1, sizeof *physical);
    if (!physical) abort(); /* a test double on a machine without memory */
    *physical = (fake_physical){.refs = 1,
                                .bytes = (size_t)about.st_size,
                                .device = fake_current_device(),
                                .descriptor = descriptor,
                                .inode = about.st_ino,
                                .is_foreign = true};
    return physical;
}

cu_result cuMemImportFromShareableHandle(cu_memory *memory, void *shared, cu_choice_handle_type type)
{
    FAKE_BEGIN(FAKE_STARTED | FAKE_LIVE | FAKE_UNSAFE);
    int descriptor = -1;
    if (type == LOCHI_CU_MEM_HANDLE_TYPE_FABRIC) {
        share_name name;
        memcpy(&name, shared, sizeof name);
        descriptor = name_open(&name);
    } else if (type == LOCHI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && is_ours((int)(intptr_t)shared)) {
        descriptor = fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 0);
    }
    if (descriptor < 0) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    fake_take();
    fake_handle *handle = calloc(1, sizeof *handle);
    if (!handle) abort(); /* a test double on a machine without memory */
    *handle = (fake_handle){.next = fake.handles, .physical = physical_import(descriptor), .types = type};
    fake.handles = handle;
    *memory = (uintptr_t)handle;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}
#endif

/* --- events --- */

cu_result fake_shared_open(cu_event *event)
{
    event->descriptor = memfd_create("loch-fake-cuda-event", MFD_CLOEXEC);
    if (event->descriptor < 0 || ftruncate(event->descriptor, FAKE_PAGE) != 0) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    void *memory = mmap(NULL, FAKE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, event->descriptor, 0);
    if (memory == MAP_FAILED) return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    event->shared = memory;
    atomic_store_explicit(&event->shared->owner, (int)getpid(), memory_order_release);
    return LOCHI_CUDA_SUCCESS;
}

void fake_shared_close(cu_event *event)
{
    if (event->shared) munmap(event->shared, FAKE_PAGE);
    if (event->descriptor >= 0) close(event->descriptor);
}

/* Waits for a record of another process, or for its end. With 0 it only asks whether that process has ended. Without
 * the lock, except with 0. */
bool fake_shared_await(const cu_event *event, uint64_t number)
{
    const int owner = atomic_load_explicit(&event->shared->owner, memory_order_acquire);
    if (!number) return kill(owner, 0) != 0 && errno == ESRCH;
    while (atomic_load_explicit(&event->shared->done, memory_order_acquire) < number) {
        if (kill(owner, 0) != 0 && errno == ESRCH) return true;
        usleep(100);
    }
    return true;
}

cu_result cuIpcGetEventHandle(fake_ipc_handle *out, cu_event *event)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    fake_take();
    if (!fake_object_is(event, FAKE_EVENT) || !event->is_shared || event->is_foreign)
        return fake_drop(LOCHI_CUDA_ERROR_INVALID_HANDLE);
    const share_name name = name_make(event->descriptor);
    memset(out, 0, sizeof *out);
    memcpy(out, &name, sizeof name);
    return fake_drop(LOCHI_CUDA_SUCCESS);
}

cu_result cuIpcOpenEventHandle(cu_event **out, fake_ipc_handle handle)
{
    FAKE_BEGIN(FAKE_IN_CONTEXT | FAKE_UNSAFE);
    share_name name;
    memcpy(&name, &handle, sizeof name);
    const int descriptor = name.process == (int)getpid() ? -1 : name_open(&name);
    if (descriptor < 0) return LOCHI_CUDA_ERROR_INVALID_VALUE;
    void *memory = mmap(NULL, FAKE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) {
        close(descriptor);
        return LOCHI_CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_take();
    cu_event *event = fake_object_make(FAKE_EVENT, sizeof *event);
    if (!event) abort(); /* a test double on a machine without memory */
    event->refs = 1;
    event->context = fake_current();
    event->is_shared = event->is_foreign = true;
    event->shared = memory;
    event->descriptor = descriptor;
    *out = event;
    return fake_drop(LOCHI_CUDA_SUCCESS);
}
