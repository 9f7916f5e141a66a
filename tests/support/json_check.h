/* SPDX-License-Identifier: MIT */
/* Whether a text is one well-formed JSON value: a strict reader that keeps nothing. */
#ifndef LOCH_TEST_JSON_CHECK_H
#define LOCH_TEST_JSON_CHECK_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static const char *json_value(const char *at);

static const char *json_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* Each returns what is behind the thing, or NULL. */
static const char *json_string(const char *at)
{
    if (*at++ != '"') return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return NULL;
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            for (int i = 0; i < 4; i++)
                if (!isxdigit((unsigned char)*++at)) return NULL;
        } else if (!*at || !strchr("\"\\/bfnrt", *at)) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *json_number(const char *at)
{
    if (*at == '-') at++;
    if (!isdigit((unsigned char)*at) || (*at == '0' && isdigit((unsigned char)at[1]))) return NULL;
    while (isdigit((unsigned char)*at))
        at++;
    if (*at != '.') return at;
    if (!isdigit((unsigned char)*++at)) return NULL;
    while (isdigit((unsigned char)*at))
        at++;
    return at;
}

static const char *json_members(const char *at, char close, bool has_keys)
{
    at = json_space(at + 1);
    if (*at == close) return at + 1;
    for (;;) {
        if (has_keys) {
            at = json_string(json_space(at));
            if (!at) return NULL;
            at = json_space(at);
            if (*at++ != ':') return NULL;
        }
        at = json_value(at);
        if (!at) return NULL;
        at = json_space(at);
        if (*at == close) return at + 1;
        if (*at++ != ',') return NULL;
    }
}

static const char *json_value(const char *at)
{
    at = json_space(at);
    if (*at == '{') return json_members(at, '}', true);
    if (*at == '[') return json_members(at, ']', false);
    if (*at == '"') return json_string(at);
    if (!strncmp(at, "null", 4) || !strncmp(at, "true", 4)) return at + 4;
    if (!strncmp(at, "false", 5)) return at + 5;
    return json_number(at);
}

__attribute__((unused)) static bool json_is_valid(const char *text)
{
    const char *end = json_value(text);
    return end && !*json_space(end);
}

#endif
