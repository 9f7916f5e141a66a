/* SPDX-License-Identifier: MIT */
/* Exceptions: loch._errors defines the classes and chooses the one of a status. */
#include "core.h"

#include <stdarg.h>

static PyObject *errors_raise(const char *chooser, loch_status status, const char *sentence)
{
    PyObject *text = lochpy_make_text(sentence);
    if (!text) return NULL;
    PyObject *exception = lochpy_call("loch._errors", chooser, "(sN)", loch_status_name(status), text);
    if (!exception) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
    return NULL;
}

/* Copies the sentence of the error record: the classes are Python code, which may call Loch. */
static PyObject *errors_raise_record(const char *chooser, loch_status status)
{
    char sentence[LOCH_ERROR_SENTENCE_MAX];
    const loch_error *error = loch_error_get();
    const char *text = error->status == status && *error->sentence ? error->sentence : loch_status_text(status);
    PyOS_snprintf(sentence, sizeof sentence, "%s", text);
    return errors_raise(chooser, status, sentence);
}

PyObject *lochpy_raise(loch_status status)
{
    return errors_raise_record("failure", status);
}

PyObject *lochpy_raise_export(loch_status status)
{
    return errors_raise_record("export_failure", status);
}

PyObject *lochpy_raise_text(loch_status status, const char *format, ...)
{
    char sentence[2 * LOCH_ERROR_SENTENCE_MAX];
    va_list arguments;
    va_start(arguments, format);
    PyOS_vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return errors_raise("failure", status, sentence);
}
