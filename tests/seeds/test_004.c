/* SPDX-License-Identifier: MIT */
/* Text 004: TensorFlow's allocators: the interface, attributes of allocators and of allocations, wrappers, statistics
 * and the registry. */
#include "seeds.h"

ROW(004_01, "the interface of an allocator without an implementation")
{
    LOCH_AUTO(allocator) none = NULL;
    const loch_allocator_ops ops = LOCH_SIZED(loch_allocator_ops, .kind = "none");
    CHECK_FAILS(loch_allocator_create(cpu, "none", &ops, NULL, &none), INVALID);
}
ROW(004_02, "AllocateRaw(alignment, num_bytes)")
{
    for (size_t alignment = 1; alignment <= 65536; alignment *= 4) {
        void *block = ask(host, LOCH_REQUEST(.bytes = 1000, .alignment = alignment));
        assert_int_equal((uintptr_t)block % alignment, 0);
        give(host, block);
    }
}
ROW(004_03, "an alignment that is not a power of two is refused")
{
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_alloc(host, LOCH_REQUEST(.bytes = 10, .alignment = 48), &none), INVALID);
    assert_null(none);
}
ROW(004_04, "DeallocateRaw(ptr)")
{
    void *block = ask(host, LOCH_REQUEST(.bytes = 1000, .alignment = 64));
    give(host, block);
    assert_int_equal(live(host), 0);
}
ROW(004_05, "Allocate<T>(num_elements)")
{
    void *numbers, *none;
    CHECK_OK(loch_alloc_array(host, 100, sizeof(double), NULL, &numbers));
    ((double *)numbers)[99] = 1;
    assert_int_equal(find(host, numbers).requested_bytes, 800);
    give(host, numbers);
    CHECK_FAILS(loch_alloc_array(host, SIZE_MAX / 4, sizeof(double), NULL, &none), OVERFLOW);
}
ROW(004_06, "Allocate<T>(num_elements, allocation_attr)")
{
    void *numbers;
    CHECK_OK(loch_alloc_array(host, 100, sizeof(double), LOCH_REQUEST(.flags = LOCH_ALLOC_NO_RETRY), &numbers));
    give(host, numbers);
}
typedef struct element {
    int number;
    char *text;
} element;
static int made, ended;
static loch_status element_init(void *it, void *fail_at)
{
    if (made == *(int *)fail_at) return LOCH_E_CANCELLED;
    *(element *)it = (element){made++, strdup("text")};
    return LOCH_OK;
}
static void element_fini(void *it, void *user)
{
    (void)user;
    ended++;
    assert_int_equal(((element *)it)->number, --made); /* in reverse */
    free(((element *)it)->text);
}
static loch_type elements(int *fail_at)
{
    made = ended = 0;
    return LOCH_SIZED(loch_type, .bytes = sizeof(element), .init = element_init, .fini = element_fini, .user = fail_at);
}
ROW(004_07, "Deallocate<T>(ptr, num_elements): runs the destructors")
{
    int never = -1;
    const loch_type type = elements(&never);
    void *all;
    CHECK_OK(loch_alloc_typed(host, &type, 10, NULL, &all));
    CHECK_FAILS(loch_free_typed(host, all, &type, 9), INVALID);
    CHECK_OK(loch_free_typed(host, all, &type, 10));
    assert_int_equal(ended, 10);
}
ROW(004_08, "TracksAllocationSizes()")
{
    assert_true(loch_allocator_get_traits(host) & LOCH_TRAIT_TRACKS_SIZES);
    assert_int_equal(loch_allocator_get_traits(NULL), 0);
}
ROW(004_09, "ShouldAllocateEmptyTensors()")
{
    assert_false(loch_allocator_get_traits(host) & LOCH_TRAIT_ALLOCATES_EMPTY);
    void *none = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc(host, 0, &none));
    assert_null(none);
}
ROW(004_10, "RequestedSize(ptr)")
{
    void *block = take(memory, 1001);
    assert_int_equal(find(memory, block).requested_bytes, 1001);
    give(memory, block);
}
ROW(004_11, "AllocatedSize(ptr): at least the requested size")
{
    void *block = take(memory, 1001);
    assert_true(find(memory, block).allocated_bytes >= 1001);
    give(memory, block);
}
ROW(004_12, "AllocationId(ptr): the number of this allocation")
{
    void *one = take(memory, 10), *two = take(memory, 10);
    const uint64_t id = find(memory, one).id;
    assert_true(id && id != find(memory, two).id);
    give(memory, one);
    void *again = take(memory, 10);
    assert_int_not_equal(find(memory, again).id, id);
    give(memory, two);
    give(memory, again);
}
ROW(004_13, "AllocatedSizeSlow(ptr): of an allocator that does not know sizes quickly")
{
    const loch_allocator_ops ops = LOCH_SIZED(loch_allocator_ops, .kind = "bare");
    LOCH_AUTO(allocator) wrapper = NULL;
    CHECK_OK(loch_wrapper_create(memory, "bare", &ops, NULL, &wrapper));
    void *block = take(wrapper, 1001);
    assert_true(find(wrapper, block).allocated_bytes >= 1001);
    give(wrapper, block);
}
ROW(004_14, "GetStats(&stats)")
{
    loch_stats stats = LOCH_SIZED(loch_stats), unset = {0};
    CHECK_OK(loch_allocator_get_stats(host, &stats));
    CHECK_FAILS(loch_allocator_get_stats(host, &unset), INVALID);
}
ROW(004_15, "constructors and destructors run for a type that is given")
{
    int never = -1;
    const loch_type type = elements(&never);
    void *all;
    CHECK_OK(loch_alloc_typed(host, &type, 3, NULL, &all));
    assert_string_equal(((element *)all)[2].text, "text");
    CHECK_OK(loch_free_typed(host, all, &type, 3));
}
ROW(004_16, "RunCtor(p, n): for plain types nothing runs")
{
    const loch_type plain = LOCH_SIZED(loch_type, .bytes = sizeof(int));
    void *all;
    CHECK_OK(loch_alloc_typed(memory, &plain, 3, NULL, &all));
    CHECK_OK(loch_free_typed(memory, all, &plain, 3));
}
ROW(004_17, "RunStringCtor(p, n): each of the n elements")
{
    int never = -1;
    const loch_type type = elements(&never);
    void *all;
    CHECK_OK(loch_alloc_typed(host, &type, 7, NULL, &all));
    for (int i = 0; i < 7; i++)
        assert_int_equal(((element *)all)[i].number, i);
    CHECK_OK(loch_free_typed(host, all, &type, 7));
}
ROW(004_18, "RunStringDtor(p, n): each of the n elements, in reverse")
{
    int never = -1;
    const loch_type type = elements(&never);
    void *all;
    CHECK_OK(loch_alloc_typed(host, &type, 7, NULL, &all));
    CHECK_OK(loch_free_typed(host, all, &type, 7));
    assert_int_equal(made, 0);
}
ROW(004_19, "RunResourceCtor: a constructor may fail; the elements before it end, and the memory is freed")
{
    int at = 4;
    const loch_type type = elements(&at);
    void *all = TEST_UNTOUCHED;
    assert_int_equal(loch_alloc_typed(host, &type, 7, NULL, &all), LOCH_E_CANCELLED);
    assert_null(all);
    assert_int_equal(ended, 4);
    assert_int_equal(live(host), 0);
}
ROW(004_20, "RunResourceDtor: not for an address that is not a block")
{
    int never = -1;
    const loch_type type = elements(&never);
    element mine;
    CHECK_FAILS(loch_free_typed(host, &mine, &type, 1), FOREIGN);
    assert_int_equal(ended, 0);
}
ROW(004_21, "RunVariantCtor, RunVariantDtor: any type by a pair of functions, aligned for it")
{
    int never = -1;
    loch_type type = elements(&never);
    type.alignment = 256;
    void *all;
    CHECK_OK(loch_alloc_typed(host, &type, 2, NULL, &all));
    assert_int_equal((uintptr_t)all % 256, 0);
    CHECK_OK(loch_free_typed(host, all, &type, 2));
}
ROW(004_22, "constructors need memory that the host can reach")
{
    int never = -1;
    const loch_type type = elements(&never);
    void *none;
    LOCH_AUTO(device) far = sim_open("sim:64MiB,id=3");
    LOCH_AUTO(allocator) there = NULL;
    CHECK_OK(loch_device_acquire_default(far, &there));
    CHECK_FAILS(loch_alloc_typed(there, &type, 1, NULL, &none), UNSUPPORTED);
}

/* --- AllocatorAttributes --- */

static loch_attributes bits(uint32_t of)
{
    return (loch_attributes){.bits = of};
}
ROW(004_23, "a GPU needs memory of the CPU for DMA: a device is asked with attributes")
{
    LOCH_AUTO(allocator) pinned = NULL;
    CHECK_OK(loch_device_acquire_allocator(gpu, bits(LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE),
                                           LOCH_FALLBACK_NONE, &pinned));
    char *block = take(pinned, 100);
    memset(block, 1, 100);
    loch_address_info info = LOCH_SIZED(loch_address_info);
    CHECK_OK(loch_address_query(block, &info));
    assert_int_equal(info.kind, LOCH_MEMORY_PINNED);
    give(pinned, block);
}
static void check_bit(uint32_t bit, uint32_t number)
{
    assert_int_equal(bit, number);
    assert_false(loch_attributes_has(bits(0), bit));
    assert_true(loch_attributes_has(loch_attributes_with(bits(0), bit), bit));
}
ROW(004_24, "set_on_host(v), on_host()")
{
    check_bit(LOCH_ATTRIBUTE_ON_HOST, 1 << 0);
}
ROW(004_25, "set_nic_compatible(v), nic_compatible()")
{
    check_bit(LOCH_ATTRIBUTE_NIC_COMPATIBLE, 1 << 1);
}
ROW(004_26, "set_gpu_compatible(v), gpu_compatible()")
{
    check_bit(LOCH_ATTRIBUTE_GPU_COMPATIBLE, 1 << 2);
}
ROW(004_27, "set_track_sizes(v), track_sizes()")
{
    check_bit(LOCH_ATTRIBUTE_TRACK_SIZES, 1 << 3);
    assert_true(loch_attributes_has(loch_allocator_get_attributes(host), LOCH_ATTRIBUTE_TRACK_SIZES));
}
ROW(004_28, "Merge(other)")
{
    loch_attributes both;
    CHECK_OK(loch_attributes_merge(bits(LOCH_ATTRIBUTE_ON_HOST), bits(LOCH_ATTRIBUTE_NIC_COMPATIBLE), &both));
    assert_int_equal(both.bits, LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_NIC_COMPATIBLE);
}
ROW(004_29, "IsEqualOrLessRestrictiveThan(other)")
{
    const loch_attributes one = bits(LOCH_ATTRIBUTE_ON_HOST), two = bits(LOCH_ATTRIBUTE_ON_HOST | (1 << 2));
    assert_true(loch_attributes_at_most_as_strict(one, two));
    assert_true(loch_attributes_at_most_as_strict(one, one));
    assert_false(loch_attributes_at_most_as_strict(two, one));
}
ROW(004_30, "value = 0: no attributes is the default")
{
    LOCH_AUTO(allocator) plain = NULL;
    CHECK_OK(loch_device_acquire_allocator(gpu, bits(0), LOCH_FALLBACK_NONE, &plain));
    assert_ptr_equal(plain, memory);
}
ROW(004_31, "the upper 8 bits are reserved for the device")
{
    assert_int_equal(LOCH_ATTRIBUTES_OF_DEVICE, 0xff000000u);
    loch_attributes both;
    CHECK_OK(loch_attributes_merge(bits(0x01000000u), bits(0x80000000u), &both));
    assert_int_equal(both.bits, 0x81000000u);
}

/* --- AllocationAttributes --- */

ROW(004_32, "attributes of one allocation are not those of an allocator")
{
    void *block = ask(host, LOCH_REQUEST(.bytes = 10, .flags = LOCH_ALLOC_ZEROED));
    assert_int_equal(loch_allocator_get_attributes(host).bits & LOCH_ATTRIBUTE_GPU_COMPATIBLE, 0);
    give(host, block);
}
typedef struct pressed {
    void *kept;
    size_t calls;
} pressed;
static size_t press(loch_allocator *of, size_t bytes, void *user)
{
    pressed *it = user;
    (void)bytes;
    it->calls++;
    if (it->kept) give(of, it->kept);
    const size_t freed = it->kept ? 900 * KIB : 0;
    it->kept = NULL;
    return freed;
}
ROW(004_33, "no_retry_on_failure = false: a failed allocation is tried again after the program freed memory")
{
    LOCH_AUTO(allocator) small = NULL;
    CHECK_OK(loch_pool_create(gpu, "small", LOCH_OPTIONS(pool, .limit_bytes = MIB), &small));
    pressed it = {take(small, 900 * KIB), 0};
    CHECK_OK(loch_allocator_add_pressure(small, press, &it));
    give(small, take(small, 500 * KIB));
    assert_int_equal(it.calls, 1);
    CHECK_OK(loch_allocator_remove_pressure(small, press, &it));
}
ROW(004_34, "no_retry_on_failure: if the first attempt fails, no other is made")
{
    LOCH_AUTO(allocator) small = NULL;
    CHECK_OK(loch_pool_create(gpu, "small", LOCH_OPTIONS(pool, .limit_bytes = MIB), &small));
    pressed it = {take(small, 900 * KIB), 0};
    void *none;
    CHECK_OK(loch_allocator_add_pressure(small, press, &it));
    CHECK_FAILS(loch_allocator_alloc(small, LOCH_REQUEST(.bytes = 500 * KIB, .flags = LOCH_ALLOC_NO_RETRY), &none),
                LIMIT);
    assert_int_equal(it.calls, 0);
    CHECK_OK(loch_allocator_remove_pressure(small, press, &it));
    give(small, it.kept);
}
ROW(004_35, "allocation_will_be_logged: whether this allocation is logged")
{
    char path[] = "/tmp/loch-row-XXXXXX", text[4096] = "";
    close(mkstemp(path));
    LOCH_AUTO(allocator) logged = NULL;
    CHECK_OK(loch_logging_create(
        host, NULL, LOCH_OPTIONS(logging, .format = LOCH_LOGGING_CSV, .path = path, .filter = LOCH_LOGGING_FLAGGED),
        &logged));
    give(logged, take(logged, 4321));
    give(logged, ask(logged, LOCH_REQUEST(.bytes = 1234, .flags = LOCH_ALLOC_LOGGED)));
    CHECK_OK(loch_logging_flush(logged));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    unlink(path);
    assert_non_null(strstr(text, ",1234,"));
    assert_null(strstr(text, ",4321,"));
}

/* --- AllocatorWrapper --- */

static loch_status doubles(void *self, const loch_request *request, void **out)
{
    loch_request twice = *request;
    twice.bytes *= 2;
    return loch_allocator_alloc(*(loch_allocator **)self, &twice, out);
}
ROW(004_36, "AllocatorWrapper changes one call of an allocator")
{
    const loch_allocator_ops ops = LOCH_SIZED(loch_allocator_ops, .kind = "doubles", .alloc = doubles);
    loch_allocator *inner = host;
    LOCH_AUTO(allocator) wrapper = NULL;
    CHECK_OK(loch_wrapper_create(host, "doubles", &ops, &inner, &wrapper));
    void *block = take(wrapper, 100);
    assert_int_equal(find(host, block).requested_bytes, 200);
    give(wrapper, block);
}
ROW(004_37, "AllocatorWrapper is a plain cover otherwise: all calls go on to the wrapped allocator")
{
    const loch_allocator_ops ops = LOCH_SIZED(loch_allocator_ops, .kind = "cover");
    LOCH_AUTO(allocator) wrapper = NULL;
    CHECK_OK(loch_wrapper_create(memory, "cover", &ops, NULL, &wrapper));
    assert_ptr_equal(loch_allocator_get_wrapped(wrapper), memory);
    give(wrapper, take(wrapper, 100));
    assert_int_equal(loch_stats_of(memory).allocs, 1);
}

/* --- AllocatorStats --- */

ROW(004_38, "num_allocs")
{
    for (int i = 0; i < 5; i++)
        give(memory, take(memory, 100));
    assert_int_equal(loch_stats_of(memory).allocs, 5);
}
ROW(004_39, "bytes_in_use")
{
    void *block = take(memory, 100);
    assert_int_equal(loch_stats_of(memory).requested_bytes, 100);
    give(memory, block);
}
ROW(004_40, "max_bytes_in_use")
{
    give(memory, take(memory, 100));
    assert_int_equal(loch_stats_of(memory).peak_requested_bytes, 100);
}
ROW(004_41, "max_alloc_size: the largest single allocation")
{
    give(memory, take(memory, 100));
    give(memory, take(memory, 5000));
    give(memory, take(memory, 200));
    assert_int_equal(loch_stats_of(memory).largest_bytes, 5000);
}
ROW(004_42, "bytes_limit: above it an allocation fails")
{
    LOCH_AUTO(allocator) small = NULL;
    CHECK_OK(loch_pool_create(gpu, "small", LOCH_OPTIONS(pool, .limit_bytes = MIB), &small));
    assert_int_equal(loch_stats_of(small).limit_bytes, MIB);
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(small, MIB + 1, &none), LIMIT);
    assert_null(none);
}

/* --- AllocatorRegistry --- */

ROW(004_43, "a registry for the whole process manages all allocators")
{
    LOCH_AUTO(allocator) found = NULL;
    CHECK_OK(loch_registry_add(host, "DefaultCPUAllocator", 100));
    CHECK_OK(loch_registry_acquire("DefaultCPUAllocator", NULL, &found));
    assert_ptr_equal(found, host);
    CHECK_OK(loch_registry_remove("DefaultCPUAllocator", 100));
    loch_allocator_clear(&found);
    CHECK_FAILS(loch_registry_acquire("DefaultCPUAllocator", NULL, &found), NOT_FOUND);
}
static loch_status entry(const loch_registry_entry *it, void *user)
{
    snprintf((char *)user + strlen(user), 100, "%s %d %d;", it->name, it->priority, it->allocator == host);
    return LOCH_OK;
}
ROW(004_44, "allocators_: a list of entries")
{
    char text[400] = "";
    CHECK_OK(loch_registry_add(host, "low", 1));
    CHECK_OK(loch_registry_add(host, "high", 2));
    CHECK_OK(loch_registry_walk(entry, text));
    assert_string_equal(text, "high 2 1;low 1 1;");
}
ROW(004_45, "AllocatorRegistryEntry: name")
{
    CHECK_FAILS(loch_registry_add(host, "", 1), INVALID);
    CHECK_OK(loch_registry_add(host, "name", 1));
    CHECK_FAILS(loch_registry_add(host, "name", 1), EXISTS);
}
ROW(004_46, "AllocatorRegistryEntry: priority")
{
    CHECK_FAILS(loch_registry_add(host, "name", -1), INVALID);
    CHECK_OK(loch_registry_add(host, "name", 0));
}
ROW(004_47, "AllocatorRegistryEntry: allocator, which the registry keeps alive")
{
    loch_allocator *own, *found;
    CHECK_OK(loch_pool_create(cpu, "own", NULL, &own));
    CHECK_OK(loch_registry_add(own, "own", 1));
    loch_allocator_release(own);
    CHECK_OK(loch_registry_acquire("own", NULL, &found));
    give(found, take(found, 10));
    loch_allocator_release(found);
}
ROW(004_48, "the allocator with the highest priority is returned")
{
    LOCH_AUTO(allocator) better = NULL;
    LOCH_AUTO(allocator) best = NULL;
    CHECK_OK(loch_pool_create(cpu, "better", NULL, &better));
    CHECK_OK(loch_registry_add(host, NULL, 10));
    CHECK_OK(loch_registry_add(better, NULL, 20));
    CHECK_OK(loch_registry_acquire_best(cpu, (loch_attributes){0}, &best));
    assert_ptr_equal(best, better);
}
ROW(004_49, "among several of one priority, one of them")
{
    LOCH_AUTO(allocator) other = NULL;
    LOCH_AUTO(allocator) best = NULL;
    CHECK_OK(loch_pool_create(cpu, "other", NULL, &other));
    CHECK_OK(loch_registry_add(host, "first", 10));
    CHECK_OK(loch_registry_add(other, "second", 10));
    CHECK_OK(loch_registry_acquire_best(cpu, (loch_attributes){0}, &best));
    assert_ptr_equal(best, host);
}
