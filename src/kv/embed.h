/* The source of a kernel inside the library: KV_EMBED(symbol) in FILE.c takes the text of FILE.cu, which lies beside it. */
#ifndef GAP_KV_EMBED_H
#define GAP_KV_EMBED_H

#define KV_EMBED(symbol) \
  __asm__(".pushsection .rodata\n.globl " #symbol "\n.hidden " #symbol "\n" #symbol ":\n.incbin \"" __FILE__ \
          "u\"\n.byte 0\n.popsection"); \
  extern const char symbol[]

#endif
