/* SPDX-License-Identifier: MIT */
/* Fuzz target: tokens of parcels and the messages between importer and owner. A token that is accepted is written as
 * the same bytes again; a message that is accepted has sizes that agree. A token with a good sum is tried as an import,
 * which finds no owner. */
#include "fuzz.h"
#include "message.h"

static loch_device *parcel_device;

static void parcel_try_token(const uint8_t *data, size_t bytes)
{
    share_token token;
    uint8_t again[LOCH_PARCEL_TOKEN_MAX];
    loch_buffer *buffer = TEST_UNTOUCHED;
    const loch_status status = lochi_share_token_read(data, bytes, &token);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
        FUZZ_FAILED(loch_parcel_import(parcel_device, data, bytes, NULL, &buffer),
                    TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
        FUZZ_EXPECT(!buffer);
        return;
    }
    FUZZ_EXPECT(lochi_share_token_write(&token, again) == bytes && memcmp(again, data, bytes) == 0);
    FUZZ_EXPECT(token.bytes && token.offset + token.bytes <= token.span_bytes);
    FUZZ_FAILED(loch_parcel_import(parcel_device, data, bytes, NULL, &buffer),
                TEST_SET(INVALID) | TEST_SET(NOT_FOUND) | TEST_SET(UNSUPPORTED) | TEST_SET(DEVICE_MEMORY));
    FUZZ_EXPECT(!buffer);
}

static void parcel_try_messages(const uint8_t *data, size_t bytes)
{
    share_request request;
    share_reply reply;
    if (lochi_share_request_is_sound(data, bytes, &request)) FUZZ_EXPECT(request.first < SHARE_HANDLES_MAX);
    if (!lochi_share_reply_is_sound(data, bytes, &reply) || reply.result != SHARE_OK) return;
    uint64_t sum = 0;
    FUZZ_EXPECT(reply.count <= SHARE_CHUNK && reply.first + reply.count <= reply.handles);
    for (uint32_t i = 0; i < reply.count; i++)
        sum += reply.handle_bytes[i];
    FUZZ_EXPECT(sum <= reply.span_bytes && reply.offset + reply.bytes <= reply.span_bytes && reply.bytes);
}

/* Puts the right sum behind a token, so that what is in it is reached. */
static void parcel_try_summed(const uint8_t *data, size_t bytes)
{
    uint8_t copy[LOCH_PARCEL_TOKEN_MAX];
    uint32_t sum = 2166136261u;
    if (bytes < sizeof sum || bytes > sizeof copy) return;
    memcpy(copy, data, bytes);
    for (size_t i = 0; i < bytes - sizeof sum; i++)
        sum = (sum ^ copy[i]) * 16777619u;
    memcpy(copy + bytes - sizeof sum, &sum, sizeof sum);
    parcel_try_token(copy, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!parcel_device) CHECK_OK(loch_device_open("cpu", &parcel_device)); /* stays open */
    loch_error_clear();
    parcel_try_token(data, bytes);
    parcel_try_summed(data, bytes);
    parcel_try_messages(data, bytes);
    return 0;
}
