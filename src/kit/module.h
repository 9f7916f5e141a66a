/* SPDX-License-Identifier: MIT */
/* The files of Loch's own code among the modules of a process. */
#ifndef LOCHI_MODULE_H
#define LOCHI_MODULE_H

#include <stdbool.h>
#include <stddef.h>

/* Tells whether a path of `length` bytes ends with the file of libloch, libloch_tensor or libloch_engine, with any
 * version behind it: libloch.so, libloch_tensor.so.0.3. Frames there say nothing about the program. */
bool lochi_module_is_loch(const char *path, size_t length);

#endif
