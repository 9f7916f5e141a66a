/* SPDX-License-Identifier: MIT */
/* Images of modules: PTX and cubins (image.c). */
#ifndef LOCH_KERNEL_IMAGE_H
#define LOCH_KERNEL_IMAGE_H

#include <loch/status.h>

typedef enum lochi_image_kind { LOCHI_IMAGE_PTX, LOCHI_IMAGE_CUBIN } lochi_image_kind;

/* Tells PTX from a cubin, and checks that the image is whole: the driver takes no length and would read beyond the end.
 * E_INVALID: the image is neither, or is cut off. */
loch_status lochi_kernel_image_check(const void *image, size_t bytes, lochi_image_kind *out);

/* Returns the architecture that an image was made for, 90 for sm_90; 0 if the image does not say. The image has passed
 * lochi_kernel_image_check. */
unsigned lochi_kernel_image_architecture(const void *image, size_t bytes, lochi_image_kind kind);

#endif
