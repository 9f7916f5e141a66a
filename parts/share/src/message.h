/* SPDX-License-Identifier: MIT */
/* The token, and the messages between an importer and an owner (message.c). Both sides are processes of one machine,
 * so numbers are in its byte order. Everything that is read is checked here before any other code sees it. */
#ifndef SHARE_MESSAGE_H
#define SHARE_MESSAGE_H

#include <loch/loch.h>
#include <loch/share.h>
#include <loch/virtual.h>
#include <stdbool.h>

#define SHARE_MAGIC 0x6c63687au /* in tokens and messages */
#define SHARE_VERSION 2
#define SHARE_FIRST 1              /* sequence of the first request of a connection */
#define SHARE_KEY_BYTES 16         /* of the owner's id and of a parcel's secret */
#define SHARE_CHUNK 32             /* handles in one reply: the system passes at most 253 descriptors at once */
#define SHARE_HANDLES_MAX 0x100000 /* handles under one buffer */
#define SHARE_EVENT_BYTES 64       /* CUipcEventHandle */
#define SHARE_DRIVER_BYTES 16      /* name of a driver, with its final zero */

/* A random number that names a process or proves that a process has a token. */
typedef struct share_key {
    uint8_t bytes[SHARE_KEY_BYTES];
} share_key;

/* Compares two keys in a time that does not depend on them. */
bool lochi_share_key_is(const share_key *one, const share_key *other);

/* What a token says. */
typedef struct share_token {
    share_key owner;  /* id of the owning process: its socket is named by it */
    share_key secret; /* of the parcel */
    uint64_t parcel;  /* id of the parcel in its owner */
    uint64_t span;    /* id of the span in its owner: equal for buffers in one piece of memory */
    uint64_t bytes;   /* size of the buffer */
    uint64_t offset;  /* start of the buffer in the span */
    uint64_t span_bytes;
    uint32_t pid; /* of the owner, for sentences */
    uint8_t share;
    uint8_t access;
    char driver[SHARE_DRIVER_BYTES];
    bool has_fabric; /* the span is one handle, and `fabric` is how another machine imports it */
    uint8_t fabric[LOCH_SHARE_BYTES_MAX];
} share_token;

/* Writes a token to `out`, which has LOCH_PARCEL_TOKEN_MAX bytes. Returns its size. */
size_t lochi_share_token_write(const share_token *token, uint8_t *out);

/* Reads a token. E_INVALID: it is damaged. E_UNSUPPORTED: it comes from another version. */
loch_status lochi_share_token_read(const void *bytes, size_t count, share_token *out);

/* What an importer asks for. */
typedef enum share_kind {
    SHARE_IMPORT = 1, /* a lease on a parcel; with handles from `first` on if `wants` is set */
    SHARE_FETCH,      /* more handles of a lease, from `first` on */
    SHARE_READY,      /* whether the work that the parcel waits for has ended */
    SHARE_RELEASE,    /* the end of a lease; has no reply */
    SHARE_KIND_END
} share_kind;

typedef struct share_request {
    uint32_t magic;
    uint16_t version;
    uint16_t kind; /* share_kind */
    uint64_t parcel;
    uint64_t lease; /* number that the importer chose for the lease; not used by another lease of the connection */
    /* Repeated in the reply: a reply that comes too late is told from the next one. Begins at SHARE_FIRST, so that an
     * owner can refuse a connection before it has read a request. */
    uint64_t sequence;
    share_key secret;
    uint32_t first;
    uint32_t wants;
} share_request;

/* What became of a request. */
typedef enum share_result {
    SHARE_OK,
    SHARE_NO_PARCEL, /* the parcel has gone, or the secret is wrong */
    SHARE_NO_USER,   /* the parcel is not for this user */
    SHARE_NO_VERSION,
    SHARE_NO_DESCRIPTOR, /* the owner has no descriptor left */
    SHARE_NO_MEMORY,
    SHARE_IS_STALE,
    SHARE_FAILED, /* the driver refused to export a handle */
    SHARE_RESULT_END
} share_result;

typedef struct share_reply {
    uint32_t magic;
    uint16_t version;
    uint16_t result; /* share_result */
    uint64_t sequence;
    uint64_t span; /* id of the span in its owner, which the token may not tell truly */
    uint64_t span_bytes;
    uint64_t offset;
    uint64_t bytes;
    uint32_t handles; /* of the whole span */
    uint32_t first;   /* number of the first handle in this reply */
    uint32_t count;   /* handles in this reply; as many descriptors come with it, if `share` is LOCH_SHARE_FD */
    uint32_t share;   /* loch_share */
    uint32_t access;  /* loch_access */
    uint32_t is_ready;
    uint32_t has_event; /* `event` can be waited for */
    uint32_t code;      /* error number of the driver, for SHARE_FAILED */
    uint8_t event[SHARE_EVENT_BYTES];
    uint64_t handle_bytes[SHARE_CHUNK];
    uint8_t fabric[SHARE_CHUNK][LOCH_SHARE_BYTES_MAX]; /* sent only if `share` is LOCH_SHARE_FABRIC */
} share_reply;

/* Bytes of a reply without what follows `handle_bytes`. */
#define SHARE_REPLY_BYTES offsetof(share_reply, fabric)

/* Return whether a request or a reply can be trusted as far as its own members tell. */
bool lochi_share_request_is_sound(const void *bytes, size_t count, share_request *out);
bool lochi_share_reply_is_sound(const void *bytes, size_t count, share_reply *out);

#endif
