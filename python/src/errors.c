/* SPDX-License-Identifier: MIT */
/* Exceptions: loch._errors defines the classes and chooses the one of a status. */
#include "core.h"

#include <stdarg.h>

/* Raises the exception of a record. */
static PyObject *errors_raise(const char *chooser, const loch_error *error)
{
    static const char *const remedies[] = {"unknown", "none", "free"};
    PyObject *text = lochpy_make_text(error->sentence), *owner = text ? lochpy_make_text(error->owner) : NULL;
    if (!owner) {
        Py_XDECREF(text);
        return NULL;
    }
    PyObject *exception =
        lochpy_call("loch._errors", chooser, "(sNNKsI)", loch_status_name(error->status), text, owner,
                    (unsigned long long)error->missing_bytes, remedies[error->remedy], (unsigned)error->attempts);
    if (!exception) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
    return NULL;
}

/* Copies the error record: the classes are Python code, which may call Loch. */
static PyObject *errors_raise_record(const char *chooser, loch_status status)
{
    loch_error error = *loch_error_get();
    if (error.status != status || !*error.sentence) {
        error = (loch_error){.status = status};
        PyOS_snprintf(error.sentence, sizeof error.sentence, "%s", loch_status_text(status));
    }
    return errors_raise(chooser, &error);
}

PyObject *lochpy_raise(loch_status status)
{
    return errors_raise_record("failure", status);
}

int lochpy_check_file(loch_status status)
{
    if (status == LOCH_OK) return 0;
    (void)errors_raise_record("file_failure", status);
    return -1;
}

PyObject *lochpy_raise_export(loch_status status)
{
    return errors_raise_record("export_failure", status);
}

PyObject *lochpy_raise_text(loch_status status, const char *format, ...)
{
    loch_error error = {.status = status};
    va_list arguments;
    va_start(arguments, format);
    PyOS_vsnprintf(error.sentence, sizeof error.sentence, format, arguments);
    va_end(arguments);
    return errors_raise("failure", &error);
}
