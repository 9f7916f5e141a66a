/* SPDX-License-Identifier: MIT */
/* Blocks without an owner object: arrays of elements that are initialised and finished, blocks that grow, and
 * conversions between addresses and buffers. A buffer adopts a block, detaches it again, and is told when its contents
 * were changed outside of Loch. */
#include <loch/loch.h>
#include <stdio.h>
#include <string.h>

typedef struct request {
    char name[16];
    int number;
} request;

/* Numbers the elements; the chosen element fails. */
typedef struct counter {
    int made, ended, fails_at;
} counter;

static loch_status request_init(void *element, void *user)
{
    request *r = element;
    counter *c = user;
    if (c->made == c->fails_at) return loch_error_set(LOCH_E_CANCELLED, NULL, 0, "no more requests than %d", c->made);
    r->number = c->made++;
    snprintf(r->name, sizeof r->name, "request %d", r->number);
    return LOCH_OK;
}

static void request_fini(void *element, void *user)
{
    (void)element;
    ((counter *)user)->ended++;
}

/* Initialises all elements or none: if one fails, the elements before it are finished and the memory is freed. */
static int typed(loch_allocator *allocator)
{
    counter c = {.fails_at = 100};
    const loch_type type = {.size = sizeof type,
                            .bytes = sizeof(request),
                            .alignment = _Alignof(request),
                            .init = request_init,
                            .fini = request_fini,
                            .user = &c};
    void *array, *none;
    LOCH_CHECK(loch_alloc_typed(allocator, &type, 10, NULL, &array));
    const request *requests = array;
    const int named = !strcmp(requests[9].name, "request 9");
    LOCH_CHECK(loch_free_typed(allocator, array, &type, 10));
    const int finished = c.ended;
    c = (counter){.fails_at = 4};
    const loch_status failed = loch_alloc_typed(allocator, &type, 10, NULL, &none);
    printf("typed: %d of 10 finished; then %s, %d made, %d finished\n", finished, loch_status_name(failed), c.made,
           c.ended);
    return named && finished == 10 && failed == LOCH_E_CANCELLED && c.ended == 4;
}

/* Plain numbers: the product of count and size is checked. A free with a size checks the size too. */
static int plain(loch_allocator *allocator)
{
    void *numbers, *none;
    LOCH_CHECK(loch_alloc_array(allocator, 1000, sizeof(float), NULL, &numbers));
    const loch_status overflow = loch_alloc_array(allocator, SIZE_MAX / 2, sizeof(float), NULL, &none);
    const loch_status wrong = loch_allocator_free_sized(allocator, numbers, 999 * sizeof(float));
    LOCH_CHECK(loch_allocator_free_sized(allocator, numbers, 1000 * sizeof(float)));
    printf("plain: too many are %s, a wrong size is %s\n", loch_status_name(overflow), loch_status_name(wrong));
    return overflow == LOCH_E_OVERFLOW && wrong == LOCH_E_INVALID;
}

/* A list that doubles its size: the contents stay, the address may change. */
static int grow(loch_allocator *allocator)
{
    void *list = NULL;
    size_t bytes = 1024, sum = 0;
    LOCH_CHECK(loch_allocator_realloc(allocator, NULL, bytes, NULL, &list)); /* without an old block it allocates */
    memset(list, 1, bytes);
    for (int i = 0; i < 6; i++) {
        void *larger; /* NULL on failure; the old block is unchanged */
        LOCH_CHECK(loch_allocator_realloc(allocator, list, 2 * bytes, NULL, &larger));
        list = larger;
        memset((char *)list + bytes, 1, bytes);
        bytes *= 2;
    }
    for (size_t i = 0; i < bytes; i++)
        sum += (size_t)((char *)list)[i];
    printf("grown to %zu bytes\n", bytes);
    LOCH_CHECK(loch_free(allocator, list));
    return bytes == 64 * 1024 && sum == bytes;
}

static loch_status make(loch_allocator *allocator, loch_buffer **out)
{
    void *block;
    *out = NULL;
    LOCH_RETURN(loch_alloc(allocator, 4096, &block));
    LOCH_AUTO(buffer) buffer = NULL;
    const loch_status status = loch_buffer_adopt(allocator, block, &buffer); /* the buffer owns the block from now on */
    if (status != LOCH_OK) {
        const loch_status freed = loch_free(allocator, block);
        return freed == LOCH_OK ? status : freed;
    }
    LOCH_RETURN(loch_buffer_fill(buffer, "b", 1, NULL));
    *out = loch_buffer_take(&buffer); /* the caller owns it now */
    return LOCH_OK;
}

static int own(loch_allocator *allocator)
{
    loch_buffer *buffer;
    void *block;
    LOCH_CHECK(make(allocator, &buffer));
    int right = loch_buffer_get_allocator(buffer) == allocator && loch_buffer_get_access(buffer) == LOCH_READ_WRITE;
    const uint64_t before = loch_buffer_get_version(buffer);
    memset(loch_buffer_get_address(buffer), 'c', 4096); /* a write that Loch cannot see, like that of a kernel */
    loch_buffer_touch(buffer);                          /* raises the version: cached copies are out of date */
    right = right && loch_buffer_get_version(buffer) > before;
    LOCH_CHECK(loch_buffer_detach(buffer, &block)); /* the block leaves the buffer, which is then empty */
    loch_buffer_release(buffer);
    right = right && ((char *)block)[4095] == 'c';
    printf("owned: the block is %s\n", right ? "as it was written" : "wrong");
    LOCH_CHECK(loch_free(allocator, block));
    return right;
}

int main(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    loch_stats stats = {.size = sizeof stats};
    int right = 0;
    LOCH_CHECK(loch_device_open("cpu", &device));
    LOCH_CHECK(loch_pool_create(device, "blocks", NULL, &pool));
    right += typed(pool);
    right += plain(pool);
    right += grow(pool);
    right += own(pool);
    LOCH_CHECK(loch_allocator_get_stats(pool, &stats));
    return right == 4 && stats.blocks == 0 ? 0 : 1;
}
