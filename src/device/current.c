/* SPDX-License-Identifier: MIT */
/* Devices that are current in a thread (current.h). */
#include "device/current.h"
#include "base/fail.h"
#include "base/logging.h"
#include "base/room.h"
#include "device/calls.h"
#include "device/driver.h"

loch_status lochi_stay_begin(lochi_stay *stay, loch_device *device)
{
    *stay = (lochi_stay){0};
    if (!lochi_device_enters(device)) return LOCH_OK;
    lochi_room *room = lochi_room_get();
    if (!room) return LOCH_FAIL(HOST_MEMORY, "no memory for the thread-local data of Loch");
    loch_status status;
    void *before = NULL;
    LOCHI_CALL(status, device, enter, (device->self, &before));
    if (status != LOCH_OK) return status;
    *stay = (lochi_stay){.below = room->stay, .device = device, .before = before};
    room->stay = stay;
    return LOCH_OK;
}

/* Removes a stay from the thread's list. Returns the nearest stay of its driver that was begun later; NULL if there
 * is no such stay. The list ends with the room of its thread. */
static lochi_stay *stay_unlink(const lochi_stay *stay)
{
    lochi_room *room = lochi_room_own;
    if (!room) return NULL;
    lochi_stay **link = &room->stay, *above = NULL;
    for (; *link && *link != stay; link = &(*link)->below)
        if ((*link)->device->driver == stay->device->driver) above = *link;
    if (!*link) return NULL;
    *link = stay->below;
    return above;
}

void lochi_stay_end(lochi_stay *stay)
{
    loch_device *device = stay->device;
    if (!device) return;
    lochi_stay *above = stay_unlink(stay);
    if (above) {
        above->before = stay->before;
    } else {
        loch_status status;
        const loch_error saved = lochi_error_save();
        LOCHI_CALL(status, device, leave, (device->self, stay->before));
        if (status != LOCH_OK)
            LOCHI_LOG(ERROR, "the device that was current before %s could not be made current again: %s", device->name,
                      loch_error_get()->sentence);
        lochi_error_restore(&saved);
    }
    *stay = (lochi_stay){0};
}
