/* Messages for people: they go to the callback of gap_set_log(), or nowhere.  The library never prints by itself. */
#ifndef GAP_LOG_H
#define GAP_LOG_H

enum gap__log_level { GAP__LOG_ERROR, GAP__LOG_WARNING, GAP__LOG_INFO, GAP__LOG_DEBUG };

/* Lines above `level` are dropped before they are formatted; warnings and errors pass by default.  One for the process. */
void gap__log_level_set(int level);
/* One line, without a newline; longer than 500 bytes it is cut.  Costs a load when nobody listens.  The callback runs in the
 * calling thread and under whatever locks the caller holds: it must not call back into the heap. */
void gap__log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
