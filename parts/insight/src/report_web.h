/* SPDX-License-Identifier: MIT */
/* The files of web/, as web/embed.cmake writes them into a C file at build time. */
#ifndef LOCH_INSIGHT_REPORT_WEB_H
#define LOCH_INSIGHT_REPORT_WEB_H

#include <stddef.h>

typedef struct report_web {
    const unsigned char *data;
    size_t bytes;
    const char *sha256; /* 64 hexadecimal digits */
} report_web;

extern const report_web lochi_insight_report_body, lochi_insight_report_style, lochi_insight_report_script;

#endif
