/* The page that draws a report: one HTML file, built in web/ and carried by the command. */
#ifndef GAP_REPORT_PAGE_H
#define GAP_REPORT_PAGE_H

#include <stddef.h>

struct gap__page {
  const char *html; /* NULL: this build has none */
  size_t bytes;
};

struct gap__page gap__page(void);

/* The page with `json` in its place, written to a file or "-".  0; GAP_ENOTSUP: there is no page in this build, or no place in it;
 * GAP_EIO, GAP_ENOMETA; the reason in *message (malloc'ed). */
int gap__page_write(struct gap__page, const char *json, const char *path, char **message);

#endif
