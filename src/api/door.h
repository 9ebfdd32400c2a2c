/* Where a process with a gapless heap can be asked, for both sides: a Unix socket named by the process's number, in a folder
 * of the user's own.
 *
 * Whoever asks and whoever answers are checked: the folder and the socket belong to the user whose process it is, nobody
 * else may enter the folder, neither is a symbolic link, and the kernel says who is at the other end.  Sockets are reached through the
 * open folder, so that nothing can be put in its place between a look and a use. */
#ifndef GAP_API_DOOR_H
#define GAP_API_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>

/* What is asked: a line.  The answer is a trace (docs/trace-format.md), or a line that begins with "gapless: ". */
#define GAP__DOOR_ASK_STATE "gapless state 1\n"
enum { GAP__DOOR_LINE_MOST = 64, GAP__DOOR_PATH_BYTES = 512, GAP__DOOR_FOLDERS = 3, GAP__DOOR_NAME_BYTES = 80 };

/* The folders in which the door of a user's process may be, the usual one first; "" is none. */
void gap__door_folders(uid_t user, char paths[GAP__DOOR_FOLDERS][GAP__DOOR_PATH_BYTES]);
/* Opens one of them, and makes it first when `make`.  The descriptor, or a negative GAP_E...: GAP_EIO, it is not there or cannot be made;
 * GAP_EINVAL, it is not the user's alone. */
int gap__door_open_folder(const char *path, uid_t user, bool make);
/* The one in which this process's own sockets are; it is made. */
int gap__door_open_own_folder(void);
/* The address of a name in an open folder. */
void gap__door_address(int folder, const char *name, struct sockaddr_un *out);
/* Is the name a socket of that user? */
bool gap__door_is_socket(int folder, const char *name, uid_t user);

/* A socket that listens, which does not block; it gets its name when it does, so that one that does not answer is nobody's.  `type`: SOCK_STREAM,
 * SOCK_SEQPACKET.  *about: the file, for gap__door_remove.  The descriptor, or GAP_EIO. */
int gap__door_listen(int folder, const char *name, int type, int backlog, struct stat *about);
/* Takes a name away, if it is still that socket's: another process may have taken it (a number that came again). */
void gap__door_remove(int folder, const char *name, const struct stat *about);
/* Is it this user's socket, and nobody listens there: its process was killed. */
bool gap__door_is_deaf(int folder, const char *name, int type);
/* Who is at the other end, as the kernel says: this user, or root? */
bool gap__door_knows(int fd);
/* Of a clock that only goes forward. */
int64_t gap__door_now_ms(void);

#endif
