/* SPDX-License-Identifier: MIT */
/* OpenCL whose calls fail in turn. The functions of the driver's table are replaced by functions that count, and that
 * return an error of OpenCL in the place of the real call, or after it if the call waits. Calls that give something
 * back are not replaced: OpenCL refuses them only for handles that are wrong. */
#ifndef LOCH_TEST_FAILING_OPENCL_H
#define LOCH_TEST_FAILING_OPENCL_H

#include "api.h"
#include "failing_heap.h"

/* Puts the functions into the table, once OpenCL is loaded; takes them out again. */
void failing_opencl_install(void);
void failing_opencl_remove(void);

/* From now on: `after` calls succeed, then they fail as said, with `result`. The count starts again. */
void failing_opencl_set(test_failing mode, uint64_t after, cl_result result);
uint64_t failing_opencl_count(void);

/* From now on, or no longer for 0: work that was queued ends with this error. */
void failing_opencl_set_work(cl_result result);

#endif
