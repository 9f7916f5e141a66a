/* SPDX-License-Identifier: MIT */
/* Functions of loch.safetensors. An open file is a capsule, which closes it at its end: the file never changes, so no
 * gate guards it. */
#include "doors.h"
#include <loch/safetensors.h>
#include <stdlib.h>

#define FILE_NAME "loch.safetensors"

/* What a capsule holds. */
typedef struct file_handle {
    loch_safetensors *file;
    unsigned generation;
} file_handle;

static void file_end(PyObject *capsule)
{
    file_handle *handle = PyCapsule_GetPointer(capsule, FILE_NAME);
    if (lochpy_is_own(handle->generation)) LOCHPY_WITHOUT_GIL(loch_safetensors_close(handle->file));
    free(handle);
}

static const loch_safetensors *file_of(PyObject *capsule)
{
    const file_handle *handle = PyCapsule_GetPointer(capsule, FILE_NAME);
    return handle ? handle->file : NULL;
}

static PyObject *file_make(loch_safetensors *file)
{
    file_handle *handle = malloc(sizeof *handle);
    if (!handle) {
        loch_safetensors_close(file);
        return PyErr_NoMemory();
    }
    *handle = (file_handle){file, lochpy_generation};
    PyObject *capsule = PyCapsule_New(handle, FILE_NAME, file_end);
    if (!capsule) {
        loch_safetensors_close(file);
        free(handle);
    }
    return capsule;
}

PyDoc_STRVAR(doc_open, "_safetensors_open(path, read_only, /)\n--\n\nOpens a file, or the index of a model.");

static PyObject *file_open(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *path;
    int is_read_only;
    loch_safetensors *file = NULL;
    if (!PyArg_ParseTuple(arguments, "O&p:_safetensors_open", PyUnicode_FSConverter, &path, &is_read_only)) return NULL;
    const loch_safetensors_options options = {.size = sizeof options,
                                              .access = is_read_only ? LOCH_READ_ONLY : LOCH_READ_WRITE};
    const int result = LOCHPY_TRY_FILE(loch_safetensors_open(PyBytes_AsString(path), &options, &file));
    Py_DECREF(path);
    return result == 0 ? file_make(file) : NULL;
}

/* --- contents --- */

/* Adds (type, shape, dtype) of a tensor under its name. Walks of files hold no lock: objects may be made. */
static loch_status file_add_info(const loch_safetensors_info *info, void *user)
{
    PyObject *shape = lochpy_make_shape(info->dimensions, info->shape, 1), *name = lochpy_make_text(info->name);
    PyObject *type = lochpy_make_text(info->type);
    PyObject *dtype = info->dtype ? lochpy_make_dtype(info->dtype) : Py_NewRef(Py_None);
    PyObject *row = shape && name && type && dtype ? PyTuple_Pack(3, type, dtype, shape) : NULL;
    const int result = row ? PyDict_SetItem(user, name, row) : -1;
    Py_XDECREF(row);
    Py_XDECREF(dtype);
    Py_XDECREF(type);
    Py_XDECREF(name);
    Py_XDECREF(shape);
    return result == 0 ? LOCH_OK : LOCH_E_CANCELLED;
}

PyDoc_STRVAR(doc_list, "_safetensors_list(file, /)\n--\n\nA dict of the tensors: name to (type, dtype, shape).");

static PyObject *file_list(PyObject *module, PyObject *capsule)
{
    (void)module;
    const loch_safetensors *file = file_of(capsule);
    PyObject *rows = file ? PyDict_New() : NULL;
    if (rows && loch_safetensors_walk(file, file_add_info, rows) != LOCH_OK) Py_CLEAR(rows);
    return rows;
}

static loch_status file_add_metadata(const char *key, const char *value, void *user)
{
    PyObject *name = lochpy_make_text(key), *text = lochpy_make_text(value);
    const int result = name && text ? PyDict_SetItem(user, name, text) : -1;
    Py_XDECREF(name);
    Py_XDECREF(text);
    return result == 0 ? LOCH_OK : LOCH_E_CANCELLED;
}

PyDoc_STRVAR(doc_metadata, "_safetensors_metadata(file, /)\n--\n\nA dict of the metadata.");

static PyObject *file_metadata(PyObject *module, PyObject *capsule)
{
    (void)module;
    const loch_safetensors *file = file_of(capsule);
    PyObject *pairs = file ? PyDict_New() : NULL;
    if (pairs && loch_safetensors_walk_metadata(file, file_add_metadata, pairs) != LOCH_OK) Py_CLEAR(pairs);
    return pairs;
}

/* --- tensors --- */

PyDoc_STRVAR(doc_get, "_safetensors_get(file, name, /)\n--\n\nA view of the mapped file.");

static PyObject *file_get(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *capsule;
    const char *name;
    loch_tensor *tensor = NULL;
    loch_status status;
    if (!PyArg_ParseTuple(arguments, "Os:_safetensors_get", &capsule, &name)) return NULL;
    const loch_safetensors *file = file_of(capsule);
    if (!file) return NULL;
    LOCHPY_WITHOUT_GIL(status = loch_safetensors_acquire_tensor(file, name, &tensor));
    return lochpy_made(status, tensor);
}

PyDoc_STRVAR(doc_load,
             "_safetensors_load(file, name, dtype, axis, start, count, device, pool, tag, /)\n--\n\nA tensor in new "
             "memory: all of one in the file, or a part of it.");

static PyObject *file_load(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *capsule, *type, *device, *pool, *tag;
    const char *name;
    long long start, count;
    loch_safetensors_load_options options = {.size = sizeof options};
    lochpy_memory memory;
    if (!PyArg_ParseTuple(arguments, "OsOiLLOOO:_safetensors_load", &capsule, &name, &type, &options.axis, &start,
                          &count, &device, &pool, &tag))
        return NULL;
    const loch_safetensors *file = file_of(capsule);
    if (!file || lochpy_read_dtype(type, &options.dtype) != 0 ||
        lochpy_read_memory(device, pool, NULL, tag, NULL, &memory) != 0)
        return NULL;
    options.start = start;
    options.count = count;
    options.memory = &memory.options;
    loch_tensor *tensor = NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = loch_safetensors_load(file, name, &options, &tensor));
    lochpy_memory_done(&memory);
    return lochpy_made(status, tensor);
}

/* --- save --- */

/* What a save reads from Python. Texts and tensors are borrowed from the tuples. */
typedef struct file_save {
    size_t count, metadata_count;
    const char **names, **keys, **values;
    loch_tensor **tensors;
} file_save;

/* Returns the texts of a tuple of str; NULL with an exception set. The caller frees the array. */
static const char **file_read_texts(PyObject *tuple, size_t *count)
{
    *count = (size_t)PyTuple_Size(tuple);
    const char **texts = calloc(*count + 1, sizeof *texts);
    if (!texts) PyErr_NoMemory();
    for (size_t i = 0; texts && i < *count; i++) {
        PyObject *text = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        if (!PyUnicode_Check(text))
            PyErr_Format(PyExc_TypeError,
                         "names of tensors and metadata are text in a .safetensors file: write %R as a str", text);
        if (PyErr_Occurred() || !(texts[i] = lochpy_text_of(text))) {
            free(texts);
            texts = NULL;
        }
    }
    return texts;
}

/* Returns the tensors of a tuple; NULL with an exception set. The caller frees the array. */
static loch_tensor **file_read_tensors(PyObject *tuple)
{
    const size_t count = (size_t)PyTuple_Size(tuple);
    loch_tensor **tensors = calloc(count + 1, sizeof *tensors);
    if (!tensors) PyErr_NoMemory();
    for (size_t i = 0; tensors && i < count; i++) {
        PyObject *tensor = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        const bool is_tensor = lochpy_is_tensor(tensor);
        if (!is_tensor) PyErr_SetString(PyExc_TypeError, "a tensor to save is not a loch.Tensor");
        if (!is_tensor || lochpy_awake(lochpy_tensor_of(tensor)) != 0) {
            free(tensors);
            return NULL;
        }
        tensors[i] = lochpy_tensor_of(tensor);
    }
    return tensors;
}

PyDoc_STRVAR(doc_save, "_safetensors_save(path, names, tensors, keys, values, /)\n--\n\nWrites a file.");

static PyObject *file_write(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *path, *names, *tensors, *keys, *values;
    if (!PyArg_ParseTuple(arguments, "O&O!O!O!O!:_safetensors_save", PyUnicode_FSConverter, &path, &PyTuple_Type,
                          &names, &PyTuple_Type, &tensors, &PyTuple_Type, &keys, &PyTuple_Type, &values))
        return NULL;
    file_save save = {.count = 0};
    size_t values_count = 0;
    int result = -1;
    if ((save.names = file_read_texts(names, &save.count)) && (save.tensors = file_read_tensors(tensors)) &&
        (save.keys = file_read_texts(keys, &save.metadata_count)) &&
        (save.values = file_read_texts(values, &values_count))) {
        const loch_safetensors_save_options options = {.size = sizeof options,
                                                       .metadata_keys = save.keys,
                                                       .metadata_values = save.values,
                                                       .metadata_count = save.metadata_count};
        if (values_count != save.metadata_count || (size_t)PyTuple_Size(tensors) != save.count)
            PyErr_SetString(PyExc_ValueError, "there are not as many names as tensors, or keys as values");
        else
            result = LOCHPY_TRY_FILE(
                loch_safetensors_save(PyBytes_AsString(path), save.names, save.tensors, save.count, &options));
    }
    free((void *)save.names);
    free((void *)save.keys);
    free((void *)save.values);
    free(save.tensors);
    Py_DECREF(path);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef file_methods[] = {
    LOCHPY_VARIABLE("_safetensors_open", file_open, doc_open),
    LOCHPY_ONE("_safetensors_list", file_list, doc_list),
    LOCHPY_ONE("_safetensors_metadata", file_metadata, doc_metadata),
    LOCHPY_VARIABLE("_safetensors_get", file_get, doc_get),
    LOCHPY_VARIABLE("_safetensors_load", file_load, doc_load),
    LOCHPY_VARIABLE("_safetensors_save", file_write, doc_save),
    {NULL, NULL, 0, NULL},
};

int lochpy_add_safetensors(PyObject *module)
{
    return PyModule_AddFunctions(module, file_methods);
}
