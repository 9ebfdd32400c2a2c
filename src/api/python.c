#include "api/python.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Name, result, arguments; objects are told from one another by nobody here.  All of them are there since Python 3.9. */
#define FUNCTIONS(X) \
  X(Py_IsInitialized, int, (void)) \
  X(PyGILState_GetThisThreadState, void *, (void)) \
  X(PyGILState_Ensure, int, (void)) \
  X(PyGILState_Release, void, (int)) \
  X(PyEval_GetFrame, void *, (void)) \
  X(PyFrame_GetBack, void *, (void *)) \
  X(PyFrame_GetCode, void *, (void *)) \
  X(PyFrame_GetLineNumber, int, (void *)) \
  X(PyObject_GetAttrString, void *, (void *, const char *)) \
  X(PyUnicode_AsUTF8, const char *, (void *)) \
  X(PyErr_Fetch, void, (void **, void **, void **)) \
  X(PyErr_Restore, void, (void *, void *, void *)) \
  X(Py_IncRef, void, (void *)) \
  X(Py_DecRef, void, (void *))

static struct {
  bool found;
#define X(name, result, arguments) result(*name) arguments;
  FUNCTIONS(X)
#undef X
  int (*is_finalizing)(void); /* NULL: nobody tells */
} python;

static void *look_up(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static void find_python(void) {
  bool found = true;
#define X(name, result, arguments) \
  *(void **)(void *)&python.name = look_up(#name); \
  found &= python.name != NULL;
  FUNCTIONS(X)
#undef X
  void *is_finalizing = look_up("Py_IsFinalizing"); /* 3.13; before that with an underscore */
  if (!is_finalizing) is_finalizing = look_up("_Py_IsFinalizing");
  *(void **)(void *)&python.is_finalizing = is_finalizing;
  python.found = found;
}

/* A thread that Python does not know runs none of its code, and would be made known to it for good. */
static bool may_ask(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_python);
  return python.found && python.Py_IsInitialized() && !(python.is_finalizing && python.is_finalizing()) &&
         python.PyGILState_GetThisThreadState();
}

static void walk(gap__python_visit *visit, void *arg) {
  void *frame = python.PyEval_GetFrame(); /* borrowed */
  bool more = frame != NULL;
  if (more) python.Py_IncRef(frame);
  while (more && frame) {
    void *code = python.PyFrame_GetCode(frame), *back;
    more = visit(arg, code, python.PyFrame_GetLineNumber(frame));
    python.Py_DecRef(code);
    back = more ? python.PyFrame_GetBack(frame) : NULL;
    python.Py_DecRef(frame);
    frame = back;
  }
}

void gap__python_walk(gap__python_visit *visit, void *arg) {
  if (!may_ask()) return;
  int state = python.PyGILState_Ensure();
  walk(visit, arg);
  python.PyGILState_Release(state);
}

static char *text_of(void *object, const char *attribute) {
  void *value = python.PyObject_GetAttrString(object, attribute);
  const char *bytes = value ? python.PyUnicode_AsUTF8(value) : NULL;
  char *text = bytes ? strdup(bytes) : NULL;
  if (value) python.Py_DecRef(value);
  return text;
}

/* An exception may be on its way; ours is none of the program's. */
bool gap__python_names(void *code, char **function, char **file) {
  void *type, *value, *trace;
  python.PyErr_Fetch(&type, &value, &trace);
  *function = text_of(code, "co_name");
  *file = text_of(code, "co_filename");
  python.PyErr_Restore(type, value, trace);
  if (*function && *file) {
    python.Py_IncRef(code);
    return true;
  }
  free(*function);
  free(*file);
  return false;
}
