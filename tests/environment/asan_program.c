/* SPDX-License-Identifier: MIT */
/* Built with AddressSanitizer, whatever the library is built with: test_asan runs it. */
#include "checker_program.h"

int main(int argc, char **argv)
{
    return argc > 1 ? checker_run(argv[1]) : 1;
}
