/* SPDX-License-Identifier: MIT */
/* Fuzz target: what the CPU driver reads of the system. The input is the text of a machine's files, one behind the
 * other, each ended by a zero byte. Nothing there fails; what cannot be read is unknown. */
#include "device/cpu/system.h"
#include "fuzz.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char system_root[] = "/tmp/loch-fuzz-XXXXXX";

/* A folder stands before what is in it. */
static const char *const system_folders[] = {"/proc",
                                             "/proc/self",
                                             "/proc/sys",
                                             "/proc/sys/vm",
                                             "/sys",
                                             "/sys/fs",
                                             "/sys/fs/cgroup",
                                             "/sys/fs/cgroup/app",
                                             "/sys/fs/cgroup/memory",
                                             "/sys/devices",
                                             "/sys/devices/system",
                                             "/sys/devices/system/node",
                                             "/sys/devices/system/node/node0",
                                             "/sys/devices/system/cpu",
                                             "/sys/devices/system/cpu/cpu0",
                                             "/sys/devices/system/cpu/cpu0/cache",
                                             "/sys/devices/system/cpu/cpu0/cache/index0"};

static const char *const system_files[] = {"/proc/meminfo",
                                           "/proc/self/cgroup",
                                           "/sys/fs/cgroup/app/memory.max",
                                           "/sys/fs/cgroup/app/memory.current",
                                           "/sys/fs/cgroup/app/memory.stat",
                                           "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                           "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                           "/sys/fs/cgroup/memory/memory.stat",
                                           "/sys/devices/system/node/online",
                                           "/sys/devices/system/node/node0/meminfo",
                                           "/proc/sys/vm/max_map_count",
                                           "/proc/cpuinfo",
                                           "/sys/devices/system/cpu/cpu0/cache/index0/size"};

#define FOLDERS (sizeof system_folders / sizeof *system_folders)
#define FILES (sizeof system_files / sizeof *system_files)

static void system_remove(void)
{
    char path[128];
    for (size_t i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s%s", system_root, system_files[i]);
        unlink(path);
    }
    for (size_t i = FOLDERS; i-- > 0;) {
        snprintf(path, sizeof path, "%s%s", system_root, system_folders[i]);
        rmdir(path);
    }
    rmdir(system_root);
}

static void system_make(void)
{
    char path[128];
    FUZZ_EXPECT(mkdtemp(system_root));
    atexit(system_remove);
    for (size_t i = 0; i < FOLDERS; i++) {
        snprintf(path, sizeof path, "%s%s", system_root, system_folders[i]);
        FUZZ_EXPECT(mkdir(path, 0700) == 0);
    }
}

/* Writes the next file; one that the input does not reach is not there. */
static void system_put(const char *name, fuzz_input *input)
{
    char path[128];
    snprintf(path, sizeof path, "%s%s", system_root, name);
    unlink(path);
    if (!input->bytes) return;
    const uint8_t *end = memchr(input->data, 0, input->bytes);
    const size_t length = end ? (size_t)(end - input->data) : input->bytes;
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_EXPECT(file >= 0 && write(file, input->data, length) == (ssize_t)length);
    close(file);
    input->data += length + (end != NULL);
    input->bytes -= length + (end != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool is_made;
    fuzz_input input = {data, bytes};
    loch_memory_info memory = {.size = sizeof memory};
    char model[32];
    if (!is_made) system_make();
    is_made = true;
    for (size_t i = 0; i < FILES; i++)
        system_put(system_files[i], &input);
    fuzz_begin();
    lochi_cpu_read_memory(system_root, -1, &memory);
    lochi_cpu_read_memory(system_root, 0, &memory);
    FUZZ_EXPECT(lochi_cpu_has_node(system_root, 0) && !lochi_cpu_has_node(system_root, 1));
    FUZZ_EXPECT(lochi_cpu_last_node(system_root) >= -1);
    (void)lochi_cpu_mapping_limit(system_root);
    (void)lochi_cpu_read_cache(system_root);
    memset(model, 'x', sizeof model);
    lochi_cpu_read_model(system_root, model, sizeof model);
    FUZZ_EXPECT(memchr(model, 0, sizeof model));
    fuzz_end();
    return 0;
}
