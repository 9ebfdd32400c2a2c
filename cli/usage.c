#include "usage.h"

#include <stdio.h>
#include <string.h>

void usage_begin(struct usage_reader *reader, const struct command *command) {
  *reader = (struct usage_reader){.at = command->help, .in_forms = true};
}

static void copy(char *out, size_t bytes, const char *from, size_t length) {
  snprintf(out, bytes, "%.*s", (int)length, from);
}

/* Where a run of two blanks begins; the end where there is none. */
static size_t before_gap(const char *line, size_t length) {
  for (size_t i = 0; i + 1 < length; i++)
    if (line[i] == ' ' && line[i + 1] == ' ') return i;
  return length;
}

static size_t blanks(const char *line, size_t length) {
  size_t count = 0;
  while (count < length && line[count] == ' ') count++;
  return count;
}

/* "-x, --name VALUE" */
static void read_option(const char *line, size_t length, struct usage_line *out) {
  size_t head = before_gap(line, length), at = 0;
  if (head > 2 && line[1] != '-') out->letter = line[1], at = line[2] == ',' ? 4 : head;
  if (at + 2 < head) at += 2;
  size_t name = strcspn(line + at, " ");
  if (at + name > head) name = head - at;
  copy(out->name, sizeof out->name, line + at, name);
  at += name;
  at += blanks(line + at, head - at);
  copy(out->value, sizeof out->value, line + at, head - at);
  head += blanks(line + head, length - head);
  copy(out->text, sizeof out->text, line + head, length - head);
}

static void read_line(struct usage_reader *reader, const char *line, size_t length, struct usage_line *out) {
  size_t indent = blanks(line, length);
  bool is_option = indent == 2 && line[indent] == '-';
  if (indent == length) reader->in_forms = reader->in_options = false;
  if (indent == length) out->kind = USAGE_EMPTY;
  else if (reader->in_forms) out->kind = USAGE_FORM;
  else if (is_option) out->kind = USAGE_OPTION;
  else out->kind = reader->in_options && indent > 2 ? USAGE_MORE : USAGE_WORDS;
  if (is_option) reader->in_options = true;
  if (out->kind == USAGE_OPTION) read_option(line + indent, length - indent, out);
  else if (out->kind != USAGE_FORM) copy(out->text, sizeof out->text, line + indent, length - indent);
  else {
    size_t skip = strncmp(line, "usage: ", 7) == 0 ? 7 : indent;
    copy(out->text, sizeof out->text, line + skip, length - skip);
  }
}

void usage_next(struct usage_reader *reader, struct usage_line *out) {
  *out = (struct usage_line){.kind = USAGE_END};
  if (!*reader->at) return;
  size_t length = strcspn(reader->at, "\n");
  read_line(reader, reader->at, length, out);
  reader->at += length + (reader->at[length] == '\n');
}

bool usage_next_option(struct usage_reader *reader, struct usage_line *out) {
  do usage_next(reader, out);
  while (out->kind != USAGE_OPTION && out->kind != USAGE_END);
  return out->kind == USAGE_OPTION;
}

bool usage_is_file(const char *value) {
  static const char *const words[] = {"FILE", "DIR", "OUT", "PLAN", "RESULT", "TRACE"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(value, words[i]) == 0) return true;
  return false;
}

static bool tells(const struct command *command, const char *name) {
  struct usage_reader reader;
  struct usage_line line;
  usage_begin(&reader, command);
  while (usage_next_option(&reader, &line))
    if (strcmp(line.name, name) == 0) return true;
  return false;
}

const char *usage_untold(const struct command *command) {
  for (const struct option *option = command->options; option && option->name; option++)
    if (!tells(command, option->name)) return option->name;
  return NULL;
}
