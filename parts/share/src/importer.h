/* SPDX-License-Identifier: MIT */
/* Imports from other processes (importer.c). */
#ifndef SHARE_IMPORTER_H
#define SHARE_IMPORTER_H

#include "message.h"

/* Imports a buffer. `link` is a connection to the owner that was received with the token, which the call takes; -1 for
 * none. */
loch_status share_importer_import(loch_device *device, const share_token *token,
                                  const loch_parcel_import_options *options, int link, loch_buffer **out);

/* Closes the sockets, in the child of a fork. */
void share_importer_forked(void);

#endif
