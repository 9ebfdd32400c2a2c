/* Where the recorded histories that come with the source lie. */
#ifndef GAP_DATA_H
#define GAP_DATA_H

#include <stddef.h>

/* Writes the folder into `out`: `given` if not NULL, else tests/data found from the program upwards, else from the working folder.
 * 0, or -1 when there is none. */
int data_folder(const char *given, char *out, size_t bytes);

#endif
