/* The head of an HTTP/1 request, as far as `gapless metrics` needs it: a method, a path, who was meant.  Of what comes behind the
 * head nothing is read. */
#ifndef GAP_TOOLSAPI_HTTP_REQUEST_H
#define GAP_TOOLSAPI_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

enum { GAP__HTTP_HEAD_MOST = 8192 };

struct gap__http_request {
  bool is_head; /* HEAD instead of GET: the answer has no body */
  bool
      is_loopback; /* no Host is named, or one that means this machine: a page of the web cannot have asked (DNS rebinding) */
  char path[256]; /* without the query */
};

/* 0: the head is not complete yet; 200: it is; else the status to answer: 400, 405, 414, 431, 505. */
int gap__http_read(const char *bytes, size_t length, struct gap__http_request *out);

#endif
