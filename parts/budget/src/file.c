/* SPDX-License-Identifier: MIT */
/* The file is made without a name, filled, and then given its name: no process ever sees a half-made one, and one that
 * dies meanwhile leaves nothing. It is read and written by system calls, so that a file that was cut short gives an
 * error, and no signal. */
#include "file.h"
#include "folder.h"
#include "kit/fail.h"
#include "kit/backoff.h"
#include "kit/now.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static loch_status file_fail(const budget_file *file, const char *what)
{
    const int error = errno;
    const loch_status status = error == ENOENT ? LOCH_E_NOT_FOUND : error == ENOMEM ? LOCH_E_HOST_MEMORY : LOCH_E_IO;
    return loch_error_set(status, "system", error, "budget file %s: %s: %s", file->path, what, strerror(error));
}

/* --- names --- */

static bool file_name_is_valid(const char *name)
{
    const size_t length = strlen(name);
    if (!length || length >= BUDGET_NAME_BYTES || *name == '.') return false;
    return strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

loch_status lochi_budget_file_begin(budget_file *file, const char *name)
{
    memset(file, 0, sizeof *file);
    file->fd = -1;
    pthread_mutex_init(&file->mutex, NULL);
    if (!name || !*name) return LOCH_FAIL(INVALID, "a budget needs a name");
    const char *last = strrchr(name, '/');
    if (last) {
        if (!last[1] || strlen(name) >= sizeof file->path)
            return LOCH_FAIL(INVALID, "\"%.60s\" is not the path of a file", name);
        snprintf(file->path, sizeof file->path, "%s", name);
        snprintf(file->name, sizeof file->name, "%.*s", (int)sizeof file->name - 1, last + 1);
        char *suffix = strstr(file->name, BUDGET_SUFFIX);
        if (suffix && suffix != file->name && !suffix[strlen(BUDGET_SUFFIX)]) *suffix = '\0';
        return LOCH_OK;
    }
    if (!file_name_is_valid(name))
        return LOCH_FAIL(INVALID, "\"%.60s\" is not the name of a budget: up to 47 letters, digits, '.', '_' and '-'",
                         name);
    file->is_placed = true;
    snprintf(file->name, sizeof file->name, "%s", name);
    return LOCH_OK;
}

/* Sets the path of a name in a folder. */
static void file_place(budget_file *file, const char *folder)
{
    snprintf(file->path, sizeof file->path, "%s/%s" BUDGET_SUFFIX, folder, file->name);
}

void lochi_budget_file_end(budget_file *file)
{
    lochi_budget_file_close(file);
    pthread_mutex_destroy(&file->mutex);
}

/* --- opening --- */

loch_status lochi_budget_file_read_head(const budget_file *file, budget_head *head)
{
    memset(head, 0, sizeof *head);
    if (pread(file->fd, head, sizeof *head, 0) < 0) return file_fail(file, "read");
    if (memcmp(head->magic, BUDGET_MAGIC, sizeof head->magic) != 0)
        return LOCH_FAIL(CORRUPT, "%s is not a budget", file->path);
    if (head->version != BUDGET_VERSION)
        return LOCH_FAIL(UNSUPPORTED,
                         "budget file %s was made by another version of the library: it has format %u, not %d",
                         file->path, head->version, BUDGET_VERSION);
    if (head->slot_bytes != sizeof(budget_slot) || !head->total || !head->chunk ||
        (head->state != BUDGET_FILE_LIVE && head->state != BUDGET_FILE_REMOVED) || head->high > BUDGET_SLOTS)
        return LOCH_FAIL(CORRUPT, "budget file %s is damaged", file->path);
    head->name[sizeof head->name - 1] = '\0';
    return LOCH_OK;
}

/* Checks that the file is this user's own, is a budget, and has its size. */
static loch_status file_check(const budget_file *file)
{
    struct stat found;
    budget_head head;
    if (fstat(file->fd, &found) != 0) return file_fail(file, "stat");
    if (!S_ISREG(found.st_mode)) return LOCH_FAIL(CORRUPT, "%s is not a file, and so not a budget", file->path);
    if (found.st_uid != geteuid())
        return LOCH_FAIL(INVALID, "budget file %s belongs to the user %ld", file->path, (long)found.st_uid);
    if (found.st_mode & 077)
        return LOCH_FAIL(INVALID, "budget file %s is open to other users (mode %03o)", file->path,
                         (unsigned)found.st_mode & 0777);
    const loch_status status = lochi_budget_file_read_head(file, &head);
    if (status != LOCH_OK || found.st_size == (off_t)BUDGET_FILE_BYTES) return status;
    return LOCH_FAIL(CORRUPT, "budget file %s is damaged: it has %lld bytes, not %zu", file->path,
                     (long long)found.st_size, BUDGET_FILE_BYTES);
}

/* Maps the file, so that the kernel has an address to sleep on. */
static loch_status file_map(budget_file *file)
{
    void *page = mmap(NULL, BUDGET_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (page == MAP_FAILED) return file_fail(file, "map");
    file->page = page;
    return LOCH_OK;
}

static loch_status file_open_path(budget_file *file)
{
    file->fd = open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (file->fd < 0) return file_fail(file, "open");
    loch_status status = file_check(file);
    if (status == LOCH_OK) status = file_map(file);
    if (status != LOCH_OK) lochi_budget_file_close(file);
    return status;
}

loch_status lochi_budget_file_open(budget_file *file)
{
    if (!file->is_placed) return file_open_path(file);
    loch_status status = LOCH_E_NOT_FOUND;
    size_t usable = 0;
    for (size_t i = 0; i < BUDGET_FOLDERS; i++) {
        char folder[BUDGET_FOLDER_BYTES];
        const loch_status there = lochi_budget_folder_path(i, folder);
        if (there == LOCH_E_NOT_FOUND) continue;
        loch_status found = there == LOCH_OK ? lochi_budget_folder_check(folder) : there;
        usable += found == LOCH_OK || found == LOCH_E_NOT_FOUND;
        if (found == LOCH_OK) {
            file_place(file, folder);
            found = file_open_path(file);
            if (found != LOCH_E_NOT_FOUND) return found;
        }
        if (found == LOCH_E_INVALID)
            status = found; /* the folder of another user: its sentence stays */
        else if (found != LOCH_E_NOT_FOUND)
            return found;
    }
    if (status == LOCH_E_INVALID && !usable) return status;
    return LOCH_FAIL(NOT_FOUND, "there is no budget \"%s\" of this user", file->name);
}

void lochi_budget_file_close(budget_file *file)
{
    if (file->page) munmap(file->page, BUDGET_FILE_BYTES);
    if (file->fd >= 0) close(file->fd);
    file->page = NULL;
    file->fd = -1;
}

/* Makes a file without a name in the folder of the path. */
static loch_status file_make_unnamed(budget_file *file)
{
    char folder[sizeof file->path];
    snprintf(folder, sizeof folder, "%s", file->path);
    char *last = strrchr(folder, '/');
    last[last == folder] = '\0'; /* the root keeps its slash */
    file->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file->fd >= 0) return LOCH_OK;
    if (errno == EOPNOTSUPP || errno == EISDIR)
        return loch_error_set(LOCH_E_UNSUPPORTED, "system", errno,
                              "the file system of %s has no unnamed files: put the budget in /dev/shm", folder);
    return file_fail(file, "make");
}

static loch_status file_make_path(budget_file *file, const budget_head *head)
{
    char own[32];
    loch_status status = file_make_unnamed(file);
    if (status != LOCH_OK) return status;
    snprintf(own, sizeof own, "/proc/self/fd/%d", file->fd);
    if (fchmod(file->fd, 0600) != 0 || ftruncate(file->fd, (off_t)BUDGET_FILE_BYTES) != 0)
        status = file_fail(file, "make");
    if (status == LOCH_OK) status = lochi_budget_file_write(file, 0, head, sizeof *head);
    if (status == LOCH_OK) status = file_map(file);
    if (status == LOCH_OK && linkat(AT_FDCWD, own, AT_FDCWD, file->path, AT_SYMLINK_FOLLOW) != 0)
        status = errno == EEXIST ? LOCH_E_EXISTS : file_fail(file, "name");
    if (status != LOCH_OK) lochi_budget_file_close(file);
    return status;
}

loch_status lochi_budget_file_make(budget_file *file, const budget_head *head)
{
    if (!file->is_placed) return file_make_path(file, head);
    loch_status status = LOCH_E_NOT_FOUND;
    for (size_t i = 0; i < BUDGET_FOLDERS; i++) {
        char folder[BUDGET_FOLDER_BYTES];
        const loch_status there = lochi_budget_folder_path(i, folder);
        if (there == LOCH_E_NOT_FOUND) continue;
        status = there == LOCH_OK ? lochi_budget_folder_make(folder) : there;
        if (status == LOCH_OK) {
            file_place(file, folder);
            status = file_make_path(file, head);
            if (status == LOCH_E_NOT_FOUND) return LOCH_E_EXISTS; /* the folder went meanwhile */
        }
        const bool is_unusable = status == LOCH_E_INVALID || status == LOCH_E_UNSUPPORTED || status == LOCH_E_IO;
        if (!is_unusable) return status; /* otherwise the next folder: others look there too */
    }
    return status;
}

bool lochi_budget_file_is_named(const budget_file *file)
{
    struct stat named, own;
    return fstat(file->fd, &own) == 0 && lstat(file->path, &named) == 0 && named.st_ino == own.st_ino &&
           named.st_dev == own.st_dev;
}

void lochi_budget_file_unlink(const budget_file *file)
{
    if (!lochi_budget_file_is_named(file)) return;
    (void)unlink(file->path);
    lochi_budget_folder_remove(file->path);
}

/* --- locks --- */

static int file_set_lock(const budget_file *file, short type, size_t byte)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    int result;
    do
        result = fcntl(file->fd, F_OFD_SETLK, &lock);
    while (result != 0 && errno == EINTR);
    return result;
}

loch_status lochi_budget_file_lock(budget_file *file, uint64_t patience_ns)
{
    const uint64_t start = lochi_now_ns();
    unsigned turn = LOCHI_BACKOFF_AWAKE; /* a process that holds the lock writes a file */
    loch_status status = LOCH_OK;
    pthread_mutex_lock(&file->mutex);
    while (file_set_lock(file, F_WRLCK, 0) != 0) {
        if (errno != EAGAIN && errno != EACCES) {
            status = file_fail(file, "lock");
            break;
        }
        if (lochi_now_ns() - start >= patience_ns) {
            status = LOCH_FAIL(BUSY, "budget file %s is locked by another process that does not go on", file->path);
            break;
        }
        lochi_backoff(&turn);
    }
    if (status != LOCH_OK) pthread_mutex_unlock(&file->mutex);
    return status;
}

void lochi_budget_file_unlock(budget_file *file)
{
    (void)file_set_lock(file, F_UNLCK, 0);
    pthread_mutex_unlock(&file->mutex);
}

loch_status lochi_budget_file_mark(const budget_file *file, size_t slot, bool is_held)
{
    return file_set_lock(file, is_held ? F_WRLCK : F_UNLCK, 1 + slot) == 0 ? LOCH_OK : file_fail(file, "mark");
}

bool lochi_budget_file_is_marked(const budget_file *file, size_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(1 + slot), .l_len = 1};
    return fcntl(file->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* --- contents --- */

loch_status lochi_budget_file_read(const budget_file *file, size_t place, void *data, size_t bytes)
{
    const ssize_t done = pread(file->fd, data, bytes, (off_t)place);
    if (done < 0) return file_fail(file, "read");
    if ((size_t)done == bytes) return LOCH_OK;
    return LOCH_FAIL(CORRUPT, "budget file %s was cut short", file->path);
}

loch_status lochi_budget_file_write(const budget_file *file, size_t place, const void *data, size_t bytes)
{
    const ssize_t done = pwrite(file->fd, data, bytes, (off_t)place);
    if (done < 0) return file_fail(file, "write");
    if ((size_t)done == bytes) return LOCH_OK;
    return LOCH_FAIL(IO, "budget file %s cannot be written: no space", file->path);
}

/* --- bells --- */

void lochi_budget_file_ring(const budget_file *file, size_t place)
{
    if (file->fd < 0 || !file->page) return;
    const uint32_t fresh = (uint32_t)lochi_now_ns(); /* another number than the last one */
    if (pwrite(file->fd, &fresh, sizeof fresh, (off_t)place) != (ssize_t)sizeof fresh) return;
    (void)syscall(SYS_futex, file->page + place, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t lochi_budget_file_hear(const budget_file *file, size_t place)
{
    uint32_t heard = 0;
    return pread(file->fd, &heard, sizeof heard, (off_t)place) == (ssize_t)sizeof heard ? heard : 0;
}

void lochi_budget_file_sleep(const budget_file *file, size_t place, uint32_t heard, uint64_t timeout_ns)
{
    const struct timespec most = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                                  .tv_nsec = (long)(timeout_ns % 1000000000u)};
    if (syscall(SYS_futex, file->page + place, FUTEX_WAIT, heard, &most, NULL, 0) == 0) return;
    if (errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) return;
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* the page is gone: do not spin */
}
