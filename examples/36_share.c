/* SPDX-License-Identifier: MIT */
/* Shares a buffer with another process: the program runs itself again, and both see one memory.
 *
 *   36_share [DEVICE]     cpu, cuda:0 (default: cpu) */
#include <loch/share.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)

/* The second process: imports the buffer, reads it, writes an answer into it, and lets go. */
static void import(const char *name, int socket)
{
    char text[64];
    loch_device *device;
    loch_buffer *buffer;
    LOCH_CHECK(loch_device_open(name, &device));
    LOCH_CHECK(loch_parcel_receive(device, socket, NULL, &buffer));
    LOCH_CHECK(loch_copy(text, loch_buffer_get_address(buffer), sizeof text));
    printf("the other process reads: %s\n", text);
    snprintf(text, sizeof text, "written by the importer");
    LOCH_CHECK(loch_copy(loch_buffer_get_address(buffer), text, sizeof text));
    loch_buffer_release(buffer);
    loch_device_release(device);
}

/* Starts the second process before a device is opened, because CUDA does not survive a fork. */
static pid_t start(const char *name, int sockets[2])
{
    char number[16];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) exit(1);
    snprintf(number, sizeof number, "%d", sockets[1]);
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "36_share", name, number, (char *)NULL);
        _exit(127);
    }
    close(sockets[1]);
    return child;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "cpu";
    if (count > 2) {
        import(name, atoi(arguments[2]));
        return 0;
    }
    int sockets[2], code;
    char text[64] = "written by the owner";
    const pid_t child = start(name, sockets);

    loch_device *device;
    loch_allocator *pool;
    loch_buffer *buffer;
    loch_parcel *parcel;
    loch_parcel_info info = {.size = sizeof info};
    LOCH_CHECK(loch_device_open(name, &device));
    LOCH_CHECK(
        loch_pool_create(device, "shared",
                         &(loch_pool_options){.size = sizeof(loch_pool_options),
                                              .handle = {.size = sizeof(loch_handle_options), .share = LOCH_SHARE_FD}},
                         &pool));
    LOCH_CHECK(loch_buffer_create(pool, BYTES, NULL, &buffer));
    LOCH_CHECK(loch_copy(loch_buffer_get_address(buffer), text, sizeof text));
    LOCH_CHECK(loch_parcel_create(buffer, NULL, &parcel));
    LOCH_CHECK(loch_parcel_send(parcel, sockets[0]));

    waitpid(child, &code, 0); /* a process that has ended holds nothing */
    LOCH_CHECK(loch_copy(text, loch_buffer_get_address(buffer), sizeof text));
    printf("the owner reads: %s\n", text);
    LOCH_CHECK(loch_parcel_get_info(parcel, &info));
    size_t bytes;
    (void)loch_parcel_get_token(parcel, &bytes);
    printf("%zu KiB were shared by a token of %zu bytes\n", info.bytes / 1024, bytes);
    loch_parcel_destroy(parcel);
    loch_buffer_release(buffer);
    loch_allocator_release(pool);
    loch_device_release(device);
    close(sockets[0]);
    return code != 0;
}
