/* SPDX-License-Identifier: MIT */
/* Private names that cross the border between libloch, libloch_tensor and libloch_engine. */
#ifndef LOCHI_SHARED_H
#define LOCHI_SHARED_H

/* Exports a private function or variable under the symbol version LOCH_PRIVATE_<release>, for the other libraries of
 * this release (docs/architecture.md, "Libraries"). Stands at the declaration. */
#define LOCHI_SHARED __attribute__((visibility("default")))

#endif
