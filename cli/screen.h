/* A terminal that is drawn on again and again, by the few control sequences that every terminal of the last decades knows. */
#ifndef GAP_CLI_SCREEN_H
#define GAP_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* How a line looks: its first byte, which takes no room.  A line without one is plain. */
enum { SCREEN_BOLD = 1, SCREEN_WARM = 2, SCREEN_ALARM = 3, SCREEN_CHOSEN = 4, SCREEN_STYLES = 5 };

enum screen_key { KEY_NONE, KEY_UP = 256, KEY_DOWN, KEY_RESIZED, KEY_END }; /* below 256: the byte */

/* Takes the terminal of standard input and output over until screen_end, also when a signal ends or stops the program meanwhile.  False: they
 * are none. */
bool screen_begin(void);
void screen_end(void);
/* Lines there is room for. */
unsigned screen_rows(void);
/* Shows the lines of a text, as much as there is room for; `colour`: styles are shown by more than weight. */
void screen_draw(const char *text, bool colour);
/* Writes the same as text of a file: without styles, cut nowhere. */
void screen_print(const char *text);
/* Waits for a key, at most so long.  KEY_END: SIGINT, SIGTERM, SIGHUP, or nobody is there any more. */
int screen_wait(int ms);

#endif
