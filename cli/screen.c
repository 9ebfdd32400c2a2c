#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/text.h"

enum { ROWS = 24, COLUMNS = 80, ESCAPE_MS = 30 };

static struct {
  struct termios before;
  bool taken;
} terminal;
static volatile sig_atomic_t ended, resized, stopped;
static sigset_t open_signals; /* as they are while screen_wait waits */

/* ---- taking it over ---- */

static void put(const char *text) {
  for (size_t left = strlen(text); left;) {
    ssize_t wrote = write(STDOUT_FILENO, text, left);
    if (wrote < 0 && errno != EINTR) return;
    if (wrote > 0) text += wrote, left -= (size_t)wrote;
  }
}

static void note_signal(int signal) {
  if (signal == SIGWINCH) resized = 1;
  else if (signal == SIGTSTP) stopped = 1;
  else ended = 1;
}

static void catch_signals(void) {
  static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};
  struct sigaction action = {.sa_handler = note_signal};
  sigset_t blocked;
  sigemptyset(&blocked);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    sigaddset(&blocked, wanted[i]);
    sigaction(wanted[i], &action, NULL);
  }
  sigprocmask(SIG_BLOCK, &blocked, &open_signals);
}

static void take(void) {
  struct termios raw = terminal.before;
  raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  put("\033[?1049h\033[?25l\033[2J"); /* the other screen, no cursor, empty */
}

static void give_back(void) {
  put("\033[?25h\033[?1049l");
  tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
}

bool screen_begin(void) {
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &terminal.before)) return false;
  fflush(stdout);
  catch_signals();
  take();
  terminal.taken = true;
  return true;
}

void screen_end(void) {
  if (terminal.taken) give_back();
  terminal.taken = false;
}

static void stop_for_now(void) {
  give_back();
  raise(SIGSTOP);
  take();
  stopped = 0;
}

/* ---- drawing ---- */

static struct winsize size_now(void) {
  struct winsize size = {0};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col)
    size = (struct winsize){.ws_row = ROWS, .ws_col = COLUMNS};
  return size;
}

unsigned screen_rows(void) { return size_now().ws_row; }

static const char *style_of(unsigned char first, bool colour) {
  static const char *const coloured[SCREEN_STYLES] = {"", "\033[1m", "\033[33m", "\033[1;31m", "\033[7m"};
  static const char *const plain[SCREEN_STYLES] = {"", "\033[1m", "", "\033[1m", "\033[7m"};
  return first < SCREEN_STYLES ? (colour ? coloured : plain)[first] : "";
}

static void add_line(struct gap__text *out, const char *line, size_t length, size_t columns, bool colour) {
  bool styled = length && (unsigned char)*line < SCREEN_STYLES;
  gap__text_add(out, "%s", styled ? style_of((unsigned char)*line, colour) : "");
  line += styled, length -= styled;
  gap__text_add_bytes(out, line, length < columns ? length : columns);
  gap__text_add(out, "\033[0m\033[K");
}

/* In one write, so that nothing flickers. */
void screen_draw(const char *text, bool colour) {
  struct winsize size = size_now();
  struct gap__text out = {0};
  gap__text_add(&out, "\033[H");
  for (unsigned row = 0; row < size.ws_row && *text; row++) {
    size_t length = strcspn(text, "\n");
    if (row) gap__text_add(&out, "\r\n");
    add_line(&out, text, length, size.ws_col, colour);
    text += length + (text[length] == '\n');
  }
  gap__text_add(&out, "\033[J");
  put(gap__text_str(&out));
  gap__text_free(&out);
}

void screen_print(const char *text) {
  for (bool at_begin = true; *text; text++) {
    if (!at_begin || (unsigned char)*text >= SCREEN_STYLES) putchar(*text);
    at_begin = *text == '\n';
  }
}

/* ---- keys ---- */

static int byte_within(int ms) {
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  unsigned char byte;
  return poll(&in, 1, ms) == 1 && read(STDIN_FILENO, &byte, 1) == 1 ? byte : -1;
}

/* ESC [ A and the like; a lone ESC is a key too. */
static int key_of(int byte) {
  if (byte != 27) return byte;
  int next = byte_within(ESCAPE_MS);
  if (next != '[' && next != 'O') return 27;
  switch (byte_within(ESCAPE_MS)) {
    case 'A': return KEY_UP;
    case 'B': return KEY_DOWN;
    default: return KEY_NONE;
  }
}

int screen_wait(int ms) {
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  struct timespec patience = {ms / 1000, ms % 1000 * 1000000L};
  int ready = ppoll(&in, 1, &patience, &open_signals);
  if (stopped) {
    stop_for_now();
    return KEY_RESIZED;
  }
  if (ended || (ready < 0 && errno != EINTR)) return KEY_END;
  if (resized) {
    resized = 0;
    return KEY_RESIZED;
  }
  if (ready <= 0) return KEY_NONE;
  int byte = byte_within(0);
  return byte < 0 ? KEY_END : key_of(byte);
}
