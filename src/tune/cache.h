/* A folder that remembers trials from call to call: a result file for each history, named by its contents.
 *
 * Only its owner may enter the folder or read its files; one that belongs to somebody else, or that others may write to, is not
 * used.  A file is replaced whole, never altered. */
#ifndef GAP_TUNE_CACHE_H
#define GAP_TUNE_CACHE_H

#include "tune/store.h"

/* $XDG_CACHE_HOME/gapless/tune, else ~/.cache/gapless/tune; malloc'ed, NULL when neither is known. */
char *gap__cache_default(const char *(*get)(const char *name));
/* Makes the folder where it is missing, and looks at whose it is.  0; GAP_EIO with the reason. */
int gap__cache_open(const char *folder, char *message, size_t bytes);
/* Adds what is known of a history.  0, also when nothing is; else as gap__store_read: then nothing was added. */
int gap__cache_load(const char *folder, const char *hash, const struct gap__settings *, struct gap__tuned_list *,
                    char *message, size_t bytes);
/* 0 or GAP_EIO, GAP_ENOMETA. */
int gap__cache_save(const char *folder, const char *hash, const struct gap__tuned_list *, char *message, size_t bytes);

#endif
