/* SPDX-License-Identifier: MIT */
/* Imports from other processes (importer.c). */
#ifndef SHARE_IMPORTER_H
#define SHARE_IMPORTER_H

#include "message.h"

/* Imports a buffer until the deadline. `link` is the connection that was received with the token, which the call takes;
 * -1 to connect to the owner that the token names. */
loch_status lochi_share_importer_import(loch_device *device, const share_token *token,
                                        const loch_parcel_import_options *options, uint64_t deadline_ns, int link,
                                        loch_buffer **out);

/* Closes the sockets, in the child of a fork. */
void lochi_share_importer_forked(void);

#endif
