/* SPDX-License-Identifier: MIT */
/* Call stacks, and the modules that their addresses lie in. */
#include "memory/recorder/stack.h"
#include "kit/cancel.h"
#include "base/heap.h"
#include "base/stack.h"
#include <elf.h>
#include <link.h>
#include <loch/recorder.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STACK_OWN 12 /* frames of the library that may be on top of those of the program */

/* Addresses of the library, if it is a module of its own; otherwise its frames are not told from the program's. */
static uintptr_t stack_own_start, stack_own_end;

static int stack_find_own(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)bytes;
    const uintptr_t here = (uintptr_t)user;
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD) continue;
        if (info->dlpi_addr + part->p_vaddr < start) start = info->dlpi_addr + part->p_vaddr;
        if (info->dlpi_addr + part->p_vaddr + part->p_memsz > end)
            end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    if (here < start || here >= end) return 0;
    if (info->dlpi_name && *info->dlpi_name) { /* the program has no name */
        stack_own_start = start;
        stack_own_end = end;
    }
    return 1;
}

void lochi_recorder_stack_open(void)
{
    dl_iterate_phdr(stack_find_own, (void *)(uintptr_t)lochi_recorder_capture);
}

size_t lochi_recorder_capture(uintptr_t *frames, size_t most)
{
    uintptr_t all[LOCH_RECORDER_STACK_MAX + STACK_OWN];
    size_t count = lochi_stack_capture(all, stack_own_end ? most + STACK_OWN : most, 1), own = 0;
    while (own < count && all[own] >= stack_own_start && all[own] < stack_own_end)
        own++;
    count = count - own < most ? count - own : most;
    memcpy(frames, all + own, count * sizeof *frames);
    return count;
}

static int stack_count_changes(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)bytes;
    *(uint64_t *)user = info->dlpi_adds + 1; /* 0 means that no list was made */
    return 1;
}

static int stack_count(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)info;
    (void)bytes;
    ++*(size_t *)user;
    return 0;
}

/* Copies the build id from a segment of notes. */
static void stack_read_notes(recorder_module *module, const uint8_t *at, size_t bytes)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
        const size_t name = (note->n_namesz + 3u) & ~3u, length = (note->n_descsz + 3u) & ~3u;
        if (name + length > bytes - sizeof *note) return;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz <= sizeof module->id) {
            module->id_bytes = (uint8_t)note->n_descsz;
            memcpy(module->id, at + sizeof *note + name, note->n_descsz);
            return;
        }
        at += sizeof *note + name + length;
        bytes -= sizeof *note + name + length;
    }
}

static int stack_add_module(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)bytes;
    recorder_modules *modules = user;
    if (modules->count == modules->room) return 1;
    recorder_module *module = &modules->list[modules->count];
    memset(module, 0, sizeof *module);
    module->start = UINT64_MAX;
    module->offset = 0 - (uint64_t)info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const uint64_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_NOTE && !module->id_bytes)
            stack_read_notes(module, (const uint8_t *)(uintptr_t)start, part->p_memsz);
        if (part->p_type != PT_LOAD) continue;
        if (start < module->start) module->start = start;
        if (start + part->p_memsz > module->end) module->end = start + part->p_memsz;
    }
    if (module->start >= module->end) return 0;
    snprintf(module->path, sizeof module->path, "%s", info->dlpi_name);
    if (!module->path[0] && !modules->count) { /* the program itself has no name */
        const ssize_t length = readlink("/proc/self/exe", module->path, sizeof module->path - 1);
        module->path[length > 0 ? length : 0] = 0;
    }
    modules->count++;
    return 0;
}

static size_t stack_list_bytes(size_t room)
{
    return sizeof(recorder_modules) + room * sizeof(recorder_module);
}

recorder_modules *lochi_recorder_list_modules(uint64_t changes)
{
    LOCHI_NOT_CANCELLED;
    uint64_t now = 0;
    size_t count = 0;
    dl_iterate_phdr(stack_count_changes, &now);
    if (now == changes) return NULL;
    dl_iterate_phdr(stack_count, &count);
    /* Mapped: an allocator of the program may be built on Loch, and the thread is recording. */
    recorder_modules *modules = lochi_map(stack_list_bytes(count + 4));
    if (!modules) return NULL;
    modules->changes = now;
    modules->count = 0;
    modules->room = count + 4;
    dl_iterate_phdr(stack_add_module, modules);
    return modules;
}

void lochi_recorder_free_modules(recorder_modules *modules)
{
    if (modules) lochi_unmap(modules, stack_list_bytes(modules->room));
}
