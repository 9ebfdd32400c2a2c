/* The Python code that a thread runs, if it runs any: by the C interface of the interpreter in this process, looked up by name, so
 * that the library needs none. */
#ifndef GAP_API_PYTHON_H
#define GAP_API_PYTHON_H

#include <stdbool.h>

/* One frame: its code object, which stays while it is visited, and its line.  False ends the walk.  The interpreter's lock is held. */
typedef bool gap__python_visit(void *arg, void *code, int line);

/* Innermost first.  No lock of ours may be held: the interpreter's is taken, and what waits for that one may be inside this library. */
void gap__python_walk(gap__python_visit *visit, void *arg);
/* From inside a visit: the name of the function and of its file, malloc'ed, and the code object is kept for good, so that its address
 * means this code from now on.  False: they cannot be had. */
bool gap__python_names(void *code, char **function, char **file);

#endif
