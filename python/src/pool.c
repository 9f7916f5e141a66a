/* SPDX-License-Identifier: MIT */
/* Pool: an allocator that caches, splits and remaps the memory of a device. Closing a Pool gives up the reference of
 * the object; blocks and tensors of the pool stay valid. */
#include "core.h"
#include "kit/size.h"

#include <string.h>

#define POOL_UNIT ((size_t)16 << 10) /* of pools without handles: small blocks come out of pieces of this size */

typedef struct lochpy_pool {
    PyObject_HEAD lochpy_gate gate;
    loch_allocator *handle; /* owned until the gate is closed */
    unsigned generation;
    PyObject *weak;
    lochpy_pressure *pressures;
} lochpy_pool;

static lochpy_pool *pool_of(PyObject *self)
{
    return (lochpy_pool *)(void *)self;
}

static void pool_end(lochpy_pool *self)
{
    if (!lochpy_is_own(self->generation)) return;
    lochpy_end_pressure(self->handle, &self->pressures);
    LOCHPY_WITHOUT_GIL(loch_allocator_release(self->handle));
}

/* Enters the gate of a pool and returns its allocator. End with pool_leave. */
static loch_allocator *pool_enter(PyObject *self)
{
    if (lochpy_gate_enter(&pool_of(self)->gate)) return pool_of(self)->handle;
    (void)lochpy_raise_text(LOCH_E_INVALID, "the pool is closed");
    return NULL;
}

static void pool_leave(PyObject *self)
{
    if (lochpy_gate_leave(&pool_of(self)->gate)) pool_end(pool_of(self));
}

static PyObject *pool_make_object(PyTypeObject *type, loch_allocator *handle)
{
    lochpy_pool *self = lochpy_new(type);
    if (!self) {
        loch_allocator_release(handle);
        return NULL;
    }
    self->handle = handle;
    self->generation = lochpy_generation;
    return (PyObject *)self;
}

PyObject *lochpy_make_pool(loch_allocator *allocator)
{
    return pool_make_object(lochpy.pool, allocator);
}

int lochpy_read_pool(PyObject *argument, loch_allocator **out)
{
    *out = NULL;
    if (!argument || Py_IsNone(argument)) return 0;
    if (!PyObject_TypeCheck(argument, lochpy.pool)) {
        PyErr_Format(PyExc_TypeError, "a loch.Pool is needed, not %R", argument);
        return -1;
    }
    loch_allocator *pool = pool_enter(argument);
    if (!pool) return -1;
    *out = loch_allocator_retain(pool);
    pool_leave(argument);
    return 0;
}

/* --- create --- */

/* Arguments that pools and children have in common. */
typedef struct pool_arguments {
    PyObject *limit, *idle, *handle_bytes, *round_bytes, *headroom, *initial;
    const char *preset, *captures, *share;
    int wipe, rdma;
} pool_arguments;

static int pool_read_options(const pool_arguments *from, loch_pool_options *out)
{
    static const char *const presets[] = {"standard", "whole_blocks", NULL};
    static const char *const captures[] = {"watched", "none", "shared", NULL};
    static const char *const shares[] = {"none", "fd", "fabric", NULL};
    int preset, capture, share;
    if (lochpy_read_limit(from->limit, &out->limit_bytes) != 0 ||
        lochpy_read_bytes(from->idle, &out->idle_bytes) != 0 ||
        lochpy_read_bytes(from->handle_bytes, &out->handle_bytes) != 0 ||
        lochpy_read_bytes(from->round_bytes, &out->round_bytes) != 0 ||
        lochpy_read_bytes(from->headroom, &out->headroom_bytes) != 0 ||
        lochpy_read_bytes(from->initial, &out->initial_bytes) != 0 ||
        lochpy_read_word("preset", from->preset, presets, &preset) != 0 ||
        lochpy_read_word("captures", from->captures, captures, &capture) != 0 ||
        lochpy_read_word("share", from->share, shares, &share) != 0)
        return -1;
    out->preset = (loch_pool_preset)preset;
    out->captures = (loch_pool_captures)capture;
    out->wipe = from->wipe ? LOCH_POOL_WIPE_FREED : LOCH_POOL_WIPE_NONE;
    if (share || from->rdma)
        out->handle = (loch_handle_options){.size = sizeof out->handle,
                                            .share = share == 1   ? LOCH_SHARE_FD
                                                     : share == 2 ? LOCH_SHARE_FABRIC
                                                                  : LOCH_SHARE_NONE,
                                            .rdma = from->rdma ? LOCH_RDMA_ON : LOCH_RDMA_OFF};
    return 0;
}

/* Refuses a limit below the unit in which a pool takes memory: the pool would never serve a request. */
static int pool_check_limit(const loch_allocator *pool, size_t limit)
{
    loch_device_properties properties = {.size = sizeof properties};
    if (lochpy_check(loch_device_get_properties(loch_allocator_get_device(pool), &properties)) != 0) return -1;
    const bool is_pinned = loch_attributes_has(loch_allocator_get_attributes(pool), LOCH_ATTRIBUTE_ON_HOST) &&
                           strcmp(properties.driver, "cpu") != 0;
    const size_t unit = properties.granule_bytes && !is_pinned ? properties.granule_bytes : POOL_UNIT;
    if (!limit || limit >= unit) return 0;
    (void)lochpy_raise_text(LOCH_E_INVALID,
                            "a limit of %s never serves a request: the pool takes memory in units of %s",
                            LOCHI_SIZE(limit), LOCHI_SIZE(unit));
    return -1;
}

static PyObject *pool_make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"device",      "name",     "limit", "idle", "kind",     "preset",  "wipe", "handle_bytes",
                            "round_bytes", "captures", "share", "rdma", "headroom", "initial", NULL};
    static const char *const kinds[] = {"device", "pinned", "managed", NULL};
    PyObject *where = NULL;
    const char *name = NULL, *kind = NULL;
    pool_arguments given = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$zOOsspOOsspOO:Pool", names, &where, &name, &given.limit,
                                     &given.idle, &kind, &given.preset, &given.wipe, &given.handle_bytes,
                                     &given.round_bytes, &given.captures, &given.share, &given.rdma, &given.headroom,
                                     &given.initial))
        return NULL;
    int word;
    loch_pool_options options = {.size = sizeof options};
    loch_device *device = NULL;
    if (lochpy_read_word("kind", kind, kinds, &word) != 0 || pool_read_options(&given, &options) != 0 ||
        lochpy_read_device(where, &device) != 0)
        return NULL;
    options.kind = (loch_memory_kind)word;
    if (!device && lochpy_check(loch_device_open("cpu", &device)) != 0) return NULL;
    loch_allocator *pool = NULL;
    const int result = LOCHPY_TRY(loch_pool_create(device, name, &options, &pool));
    loch_device_release(device);
    if (result == 0 && pool_check_limit(pool, options.limit_bytes) == 0) return pool_make_object(type, pool);
    loch_allocator_release(pool);
    return NULL;
}

static PyObject *pool_child(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "limit",        "minimum",     "kind",     "idle",   "preset",   "wipe",
                            "tag",  "handle_bytes", "round_bytes", "captures", "stream", "headroom", NULL};
    static const char *const kinds[] = {"quota", "range", NULL};
    const char *name = NULL, *kind = NULL;
    PyObject *minimum = NULL, *tag = NULL, *stream = NULL;
    pool_arguments given = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|z$OOsOspOOOsOO:child", names, &name, &given.limit, &minimum,
                                     &kind, &given.idle, &given.preset, &given.wipe, &tag, &given.handle_bytes,
                                     &given.round_bytes, &given.captures, &stream, &given.headroom))
        return NULL;
    int word;
    loch_pool_options own = {.size = sizeof own};
    loch_child_options options = {.size = sizeof options, .pool = &own};
    if (lochpy_read_word("kind", kind, kinds, &word) != 0 || pool_read_options(&given, &own) != 0 ||
        lochpy_read_bytes(minimum, &options.minimum_bytes) != 0 || lochpy_read_tag(tag, &options.tag) != 0)
        return NULL;
    options.kind = (loch_child_kind)word;
    options.limit_bytes = own.limit_bytes;
    loch_allocator *parent = pool_enter(self), *child = NULL;
    if (!parent) return NULL;
    lochpy_stream_use use;
    int result = lochpy_read_stream(stream, loch_allocator_get_device(parent), &use);
    options.stream = use.stream;
    if (result == 0) result = LOCHPY_TRY(loch_pool_create_child(parent, name, &options, &child));
    lochpy_stream_done(&use);
    pool_leave(self);
    const bool is_range = options.kind == LOCH_CHILD_RANGE; /* the library refuses what is too small */
    if (result == 0 && (is_range || pool_check_limit(child, options.limit_bytes) == 0)) return lochpy_make_pool(child);
    loch_allocator_release(child);
    return NULL;
}

/* --- the end --- */

static void pool_dealloc(PyObject *object)
{
    lochpy_pool *self = pool_of(object);
    PyObject_GC_UnTrack(object);
    if (self->weak) PyObject_ClearWeakRefs(object);
    if (self->handle && lochpy_gate_close(&self->gate)) pool_end(self);
    lochpy_free(object);
}

static int pool_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return lochpy_visit_pressure(pool_of(self)->pressures, visit, arg);
}

/* Breaks cycles through pressure functions. The pool itself stays open. */
static int pool_clear(PyObject *self)
{
    if (!lochpy_gate_enter(&pool_of(self)->gate)) return 0;
    if (lochpy_is_own(pool_of(self)->generation)) lochpy_end_pressure(pool_of(self)->handle, &pool_of(self)->pressures);
    pool_leave(self);
    return 0;
}

static PyObject *pool_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (lochpy_gate_close(&pool_of(self)->gate)) pool_end(pool_of(self));
    Py_RETURN_NONE;
}

static PyObject *pool_enter_with(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *pool_exit_with(PyObject *self, PyObject *unused)
{
    (void)unused;
    return pool_close(self, NULL);
}

/* --- blocks and sessions --- */

static PyObject *pool_alloc(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *block = lochpy_make_block(pool, NULL, arguments, keywords);
    pool_leave(self);
    return block;
}

static PyObject *pool_free(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"address", "stream", NULL};
    PyObject *number, *stream = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$O:free", names, &number, &stream)) return NULL;
    PyObject *exact = PyNumber_Index(number);
    if (!exact) return NULL;
    void *address = PyLong_AsVoidPtr(exact);
    Py_DECREF(exact);
    if (!address && PyErr_Occurred()) return NULL;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    lochpy_stream_use use;
    int result = lochpy_read_stream(stream, loch_allocator_get_device(pool), &use);
    const bool has_stream = stream && !Py_IsNone(stream);
    if (result == 0)
        result = LOCHPY_TRY(has_stream ? loch_allocator_free_on(pool, address, use.stream) : loch_free(pool, address));
    lochpy_stream_done(&use);
    pool_leave(self);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *pool_session(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", NULL};
    const char *name = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|z:session", names, &name)) return NULL;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *session = lochpy_make_session(pool, name);
    pool_leave(self);
    return session;
}

static PyObject *pool_list_blocks(PyObject *self, PyObject *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *list = lochpy_list_blocks(pool);
    pool_leave(self);
    return list;
}

/* --- figures --- */

static PyObject *pool_stats(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"tag", NULL};
    PyObject *name = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:stats", names, &name)) return NULL;
    const bool has_tag = name && !Py_IsNone(name);
    loch_tag tag = 0;
    if (has_tag && lochpy_find_tag(name, &tag) != 0) return NULL;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    loch_stats stats = {.size = sizeof stats};
    const int result =
        LOCHPY_TRY(has_tag ? loch_allocator_get_tag_stats(pool, tag, &stats) : loch_allocator_get_stats(pool, &stats));
    pool_leave(self);
    return result == 0 ? lochpy_make_stats(&stats) : NULL;
}

static int pool_read_info(PyObject *self, loch_pool_info *out)
{
    loch_allocator *pool = pool_enter(self);
    if (!pool) return -1;
    *out = (loch_pool_info){.size = sizeof *out};
    const int result = LOCHPY_TRY(loch_pool_get_info(pool, out));
    pool_leave(self);
    return result;
}

static PyObject *pool_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    loch_pool_info info;
    if (pool_read_info(self, &info) != 0) return NULL;
    return lochpy_make_info(&info);
}

static PyObject *pool_reset_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    const int result = LOCHPY_TRY(loch_allocator_reset_stats(pool));
    pool_leave(self);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static loch_status pool_print(const void *pool, char *text, size_t bytes, size_t *length)
{
    return loch_pool_print((loch_allocator *)pool, text, bytes, length);
}

static PyObject *pool_report(PyObject *self, PyObject *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *text = lochpy_print(pool_print, pool);
    pool_leave(self);
    return text;
}

static PyObject *pool_limit(PyObject *self, void *unused)
{
    (void)unused;
    loch_pool_info info;
    if (pool_read_info(self, &info) != 0) return NULL;
    if (!info.limit_bytes) Py_RETURN_NONE;
    return PyLong_FromSize_t(info.limit_bytes);
}

static PyObject *pool_idle(PyObject *self, void *unused)
{
    (void)unused;
    loch_pool_info info;
    return pool_read_info(self, &info) == 0 ? PyLong_FromSize_t(info.idle_bytes) : NULL;
}

static int pool_set(PyObject *self, PyObject *value, loch_status (*set)(loch_allocator *, size_t))
{
    size_t bytes = 0;
    const bool is_limit = set == loch_pool_set_limit;
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "a limit cannot be deleted: None removes it");
        return -1;
    }
    if ((is_limit ? lochpy_read_limit : lochpy_read_bytes)(value, &bytes) != 0) return -1;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return -1;
    int result = is_limit ? pool_check_limit(pool, bytes) : 0;
    if (result == 0) result = LOCHPY_TRY(set(pool, bytes));
    pool_leave(self);
    return result;
}

static int pool_set_limit(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    return pool_set(self, value, loch_pool_set_limit);
}

static int pool_set_idle(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    return pool_set(self, value, loch_pool_set_idle);
}

static PyObject *pool_set_grant(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"granted", "limit", NULL};
    PyObject *granted, *limit = NULL;
    size_t bytes, most;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O:set_grant", names, &granted, &limit)) return NULL;
    if (lochpy_read_bytes(granted, &bytes) != 0 || lochpy_read_limit(limit, &most) != 0) return NULL;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    const int result = LOCHPY_TRY(loch_pool_set_grant(pool, bytes, most));
    pool_leave(self);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *pool_add_pressure(PyObject *self, PyObject *function)
{
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    const int result = lochpy_add_pressure(pool, &pool_of(self)->pressures, function);
    pool_leave(self);
    if (result != 0) return NULL;
    Py_INCREF(function);
    return function;
}

static PyObject *pool_remove_pressure(PyObject *self, PyObject *function)
{
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    const int result = lochpy_remove_pressure(pool, &pool_of(self)->pressures, function);
    pool_leave(self);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

/* --- properties --- */

static PyObject *pool_name(PyObject *self, void *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *name = lochpy_make_text(loch_allocator_get_name(pool));
    pool_leave(self);
    return name;
}

static PyObject *pool_device(PyObject *self, void *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *name = lochpy_make_text(loch_device_get_name(loch_allocator_get_device(pool)));
    pool_leave(self);
    return name;
}

static PyObject *pool_parent(PyObject *self, void *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    loch_allocator *parent = loch_allocator_retain(loch_pool_get_parent(pool));
    pool_leave(self);
    if (!parent) Py_RETURN_NONE;
    return lochpy_make_pool(parent);
}

static loch_status pool_visit_child(loch_allocator *child, void *user)
{
    if (lochpy_list_add(user, loch_allocator_retain(child)) == 0) return LOCH_OK;
    loch_allocator_release(child);
    return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a list");
}

static PyObject *pool_make_child(void *item)
{
    return lochpy_make_pool(loch_allocator_retain(item));
}

static void pool_drop_child(void *item)
{
    loch_allocator_release(item);
}

static PyObject *pool_children(PyObject *self, void *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    lochpy_list children = {NULL, 0, 0};
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = loch_pool_walk_children(pool, pool_visit_child, &children));
    PyObject *list = lochpy_list_end(&children, status, pool_make_child, pool_drop_child);
    pool_leave(self);
    return list;
}

static PyObject *pool_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(lochpy_gate_is_closed(&pool_of(self)->gate));
}

static PyObject *pool_repr(PyObject *self)
{
    if (!lochpy_gate_enter(&pool_of(self)->gate)) return PyUnicode_FromString("<loch.Pool, closed>");
    loch_allocator *pool = pool_of(self)->handle;
    PyObject *name = lochpy_make_text(loch_allocator_get_name(pool));
    PyObject *text =
        name ? PyUnicode_FromFormat("<loch.Pool %R on %s>", name, loch_device_get_name(loch_allocator_get_device(pool)))
             : NULL;
    Py_XDECREF(name);
    pool_leave(self);
    return text;
}

/* Two objects of one allocator are equal. */
static PyObject *pool_compare(PyObject *self, PyObject *other, int operation)
{
    if ((operation != Py_EQ && operation != Py_NE) || !PyObject_TypeCheck(other, lochpy.pool)) Py_RETURN_NOTIMPLEMENTED;
    const bool is_open = !lochpy_gate_is_closed(&pool_of(self)->gate) && !lochpy_gate_is_closed(&pool_of(other)->gate);
    const bool is_equal = self == other || (is_open && pool_of(self)->handle == pool_of(other)->handle);
    return PyBool_FromLong(is_equal == (operation == Py_EQ));
}

static Py_hash_t pool_hash(PyObject *self)
{
    const Py_hash_t hash = (Py_hash_t)((uintptr_t)pool_of(self)->handle >> 4);
    return hash == -1 ? -2 : hash;
}

/* --- memory --- */

static PyObject *pool_trim(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"keep", NULL};
    PyObject *argument = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:trim", names, &argument)) return NULL;
    size_t keep, released = 0;
    if (lochpy_read_bytes(argument, &keep) != 0) return NULL;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    const int result = LOCHPY_TRY(loch_allocator_trim(pool, keep, &released));
    pool_leave(self);
    return result == 0 ? PyLong_FromSize_t(released) : NULL;
}

static PyObject *pool_sleep(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *result = lochpy_pool_sleep(pool, arguments, keywords);
    pool_leave(self);
    return result;
}

static PyObject *pool_compact(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *result = lochpy_pool_compact(pool, arguments, keywords);
    pool_leave(self);
    return result;
}

static PyObject *pool_wake(PyObject *self, PyObject *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    size_t restored = 0;
    const int result = LOCHPY_TRY(loch_pool_wake(pool, &restored));
    pool_leave(self);
    return result == 0 ? PyLong_FromSize_t(restored) : NULL;
}

static PyObject *pool_handle(PyObject *self, void *unused)
{
    (void)unused;
    loch_allocator *pool = pool_enter(self);
    if (!pool) return NULL;
    PyObject *number = PyLong_FromVoidPtr(pool);
    pool_leave(self);
    return number;
}

static PyMethodDef pool_methods[] = {
    LOCHPY_KEYWORDS("child", pool_child,
                    "child($self, /, name=None, *, limit=None, minimum=None, kind='quota', idle=None, "
                    "preset='standard', wipe=False, tag=None, handle_bytes=None, round_bytes=None, captures='watched', "
                    "stream=None, headroom=None)\n--\n\nA pool inside this pool, with a limit of its own."),
    LOCHPY_KEYWORDS("alloc", pool_alloc,
                    "alloc($self, /, bytes, *, stream=None, alignment=None, tag=None, zeroed=False, "
                    "timeout=None, one_handle=False)\n--\n\nAllocates a block of bytes: a Block."),
    LOCHPY_KEYWORDS("free", pool_free, "free($self, /, address, *, stream=None)\n--\n\nFrees a block by its address."),
    LOCHPY_KEYWORDS("session", pool_session,
                    "session($self, /, name=None)\n--\n\nBegins a session: its blocks are freed together."),
    LOCHPY_NONE("blocks", pool_list_blocks, "blocks($self, /)\n--\n\nThe live blocks, as a list of dictionaries."),
    LOCHPY_KEYWORDS("stats", pool_stats,
                    "stats($self, /, tag=None)\n--\n\nStatistics of the pool, or of the blocks with a tag."),
    LOCHPY_NONE("info", pool_info, "info($self, /)\n--\n\nFigures of the pool at one moment."),
    LOCHPY_NONE("reset_stats", pool_reset_stats, "reset_stats($self, /)\n--\n\nSets peaks and counts to the present."),
    LOCHPY_NONE("report", pool_report, "report($self, /)\n--\n\nText for people: what the pool holds and why."),
    LOCHPY_KEYWORDS("set_grant", pool_set_grant,
                    "set_grant($self, /, granted, limit=None)\n--\n\nSets how much of its limit the pool may use now."),
    LOCHPY_ONE(
        "add_pressure", pool_add_pressure,
        "add_pressure($self, function, /)\n--\n\nAdds a function that frees memory when it is short: called with "
        "the bytes of the request, returns the bytes freed. Returns the function."),
    LOCHPY_ONE("remove_pressure", pool_remove_pressure,
               "remove_pressure($self, function, /)\n--\n\nRemoves a pressure function."),
    LOCHPY_KEYWORDS("trim", pool_trim,
                    "trim($self, /, keep=0)\n--\n\nGives cached memory back to the device. Returns the bytes."),
    LOCHPY_KEYWORDS("compact", pool_compact,
                    "compact($self, /, contiguous=None, *, budget=None, stream=None)\n--\n\nJoins free memory by "
                    "moving movable blocks."),
    LOCHPY_KEYWORDS(
        "sleep", pool_sleep,
        "sleep($self, /, contents='pinned', *, tag=None, path=None, pool=None)\n--\n\nGives the memory back "
        "and keeps the addresses. Returns the bytes."),
    LOCHPY_NONE("wake", pool_wake, "wake($self, /)\n--\n\nRestores a sleeping pool. Returns the bytes of contents."),
    LOCHPY_NONE("close", pool_close, "close($self, /)\n--\n\nGives up this object's reference. Blocks stay valid."),
    LOCHPY_NONE("__enter__", pool_enter_with, "__enter__($self, /)\n--\n\nThe pool itself."),
    {"__exit__", pool_exit_with, METH_VARARGS, "Closes the pool."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pool_members[] = {
    {"name", pool_name, NULL, "Name for people.", NULL},
    {"device", pool_device, NULL, "Name of the device.", NULL},
    {"limit", pool_limit, pool_set_limit, "Most bytes held from the device; None for no limit.", NULL},
    {"idle", pool_idle, pool_set_idle, "Most free bytes that the pool keeps; 0 for no cap.", NULL},
    {"parent", pool_parent, NULL, "Parent of a child pool, or None.", NULL},
    {"children", pool_children, NULL, "Children, as a list.", NULL},
    {"closed", pool_closed, NULL, "Whether the pool was closed.", NULL},
    {"handle", pool_handle, NULL, "Address of the loch_allocator, for code in C. Valid while the pool is open.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef pool_offsets[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(lochpy_pool, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot pool_slots[] = {
    {Py_tp_doc, "Pool(device='cpu', *, name=None, limit=None, idle=None, kind='device', preset='standard', wipe=False, "
                "handle_bytes=None, round_bytes=None, captures='watched', share='none', rdma=False, "
                "headroom=None, initial=None)\n--\n\n"
                "A pool of a device's memory. Sizes are bytes, or text such as '40GiB'."},
    {Py_tp_new, LOCHPY_SLOT(pool_make)},
    {Py_tp_dealloc, LOCHPY_SLOT(pool_dealloc)},
    {Py_tp_traverse, LOCHPY_SLOT(pool_traverse)},
    {Py_tp_clear, LOCHPY_SLOT(pool_clear)},
    {Py_tp_repr, LOCHPY_SLOT(pool_repr)},
    {Py_tp_richcompare, LOCHPY_SLOT(pool_compare)},
    {Py_tp_hash, LOCHPY_SLOT(pool_hash)},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_members},
    {Py_tp_members, pool_offsets},
    {0, NULL},
};

static PyType_Spec pool_spec = {
    .name = "loch.Pool",
    .basicsize = sizeof(lochpy_pool),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = pool_slots,
};

int lochpy_add_pool_type(PyObject *module)
{
    lochpy.pool = lochpy_add_type(module, &pool_spec);
    return lochpy.pool ? 0 : -1;
}
