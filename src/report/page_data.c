/* The page's bytes, as the assembler finds them; a build without the file has none. */
#include "report/page.h"

#ifdef GAP_REPORT_PAGE /* the path of the built page */
#if __has_include(GAP_REPORT_PAGE)
#define HAS_PAGE
#endif
#endif

#ifdef HAS_PAGE

__asm__(".section .rodata\n"
        ".global gap__page_begin\n"
        ".hidden gap__page_begin\n"
        "gap__page_begin:\n"
        ".incbin \"" GAP_REPORT_PAGE "\"\n"
        ".global gap__page_end\n"
        ".hidden gap__page_end\n"
        "gap__page_end:\n"
        ".byte 0\n"
        ".previous\n");

extern const char gap__page_begin[], gap__page_end[];

struct gap__page gap__page(void) {
  return (struct gap__page){gap__page_begin, (size_t)(gap__page_end - gap__page_begin)};
}

#else

struct gap__page gap__page(void) {
  return (struct gap__page){0};
}

#endif
