/* Completion for three shells, from the same tables. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "conf/conf.h"
#include "manual.h"
#include "usage.h"

/* ---- what there is ---- */

static bool takes(const struct command *command, const char *word) {
  struct usage_reader reader;
  struct usage_line line;
  usage_begin(&reader, command);
  for (usage_next(&reader, &line); line.kind == USAGE_FORM; usage_next(&reader, &line))
    if (strstr(line.text, word)) return true;
  return false;
}

static bool takes_files(const struct command *command) {
  return takes(command, "FILE") || takes(command, "TRACE") || takes(command, " IN ");
}

static bool takes_keys(const struct command *command) { return strcmp(command->name, "conf") == 0; }

/* The next word of "auto, True or False"; "" at the end.  What is no list of words has none. */
static const char *next_word(const char *at, char out[32]) {
  size_t length;
  for (;;) {
    at += strspn(at, ", ");
    length = strcspn(at, ", ");
    if (length != 2 || strncmp(at, "or", 2) != 0) break;
    at += length;
  }
  snprintf(out, 32, "%.*s", (int)length, at);
  return at + length;
}

static bool is_word(const char *text) {
  if (!isalpha((unsigned char)*text)) return false;
  for (; *text; text++)
    if (!isalnum((unsigned char)*text) && *text != '_') return false;
  return true;
}

static bool is_list(const char *range) {
  char word[32];
  int count = 0;
  for (const char *at = next_word(range, word); *word; at = next_word(at, word), count++)
    if (!is_word(word)) return false;
  return count > 1;
}

static void put_values(FILE *out, const struct gap__conf_option *option) {
  char word[32];
  if (!is_list(option->range)) return;
  const char *at = next_word(option->range, word);
  for (bool first = true; *word; at = next_word(at, word), first = false) fprintf(out, "%s%s", first ? "" : " ", word);
}

/* ---- bash ---- */

static const char bash_begin[] =
    "# bash completion for gapless.  Made by: gapless help --completion bash\n"
    "_gapless_offer() {\n"
    "  local word\n"
    "  while IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen -P \"${2-}\" -W \"$1\" -- "
    "\"${cur#\"${2-}\"}\")\n"
    "}\n"
    "_gapless_processes() {\n"
    "  local file list=\n"
    "  for file in \"${XDG_RUNTIME_DIR:-/run/user/$UID}\"/gapless/*.sheet /tmp/gapless-\"$UID\"/*.sheet; do\n"
    "    [[ -e $file ]] && file=${file##*/} && list+=\" ${file%.sheet}\"\n"
    "  done\n"
    "  _gapless_offer \"$list\"\n"
    "}\n"
    "# The keys of a configuration string: what stands before the last comma stays.\n"
    "_gapless_keys() {\n"
    "  local last=${cur##*,} before values=\n"
    "  before=${cur%\"$last\"}\n"
    "  compopt -o nospace\n"
    "  if [[ $last != *:* ]]; then\n"
    "    _gapless_offer \"$gapless_keys\" \"$before\"\n"
    "    return\n"
    "  fi\n"
    "  case ${last%%:*} in\n";

static void bash_keys(FILE *out) {
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    const struct gap__conf_option *option = gap__conf_option_at(i);
    if (!is_list(option->range)) continue;
    fprintf(out, "    %s) values=\"", option->key);
    put_values(out, option);
    fputs("\" ;;\n", out);
  }
  fputs("  esac\n  _gapless_offer \"$values\" \"$before${last%%:*}:\"\n}\n", out);
}

static void bash_values(const struct command *command, FILE *out) {
  struct usage_reader reader;
  struct usage_line line;
  fputs("      case $previous in\n", out);
  usage_begin(&reader, command);
  while (usage_next_option(&reader, &line)) {
    if (!*line.value) continue;
    fputs("        ", out);
    if (line.letter) fprintf(out, "-%c | ", line.letter);
    fprintf(out, "--%s) ", line.name);
    if (strcmp(line.name, "conf") == 0) fputs("_gapless_keys; ", out);
    else if (usage_is_file(line.value)) fputs("compopt -o default; ", out);
    fputs("return ;;\n", out);
  }
  fputs("      esac\n", out);
}

static void bash_command(const struct command *command, FILE *out) {
  struct usage_reader reader;
  struct usage_line line;
  fprintf(out, "    %s)\n", command->name);
  bash_values(command, out);
  fputs("      options=\"", out);
  usage_begin(&reader, command);
  while (usage_next_option(&reader, &line)) fprintf(out, "--%s ", line.name);
  fputs("--help\"\n", out);
  if (takes(command, "PID")) fputs("      what+=processes\n", out);
  if (takes_files(command)) fputs("      what+=files\n", out);
  if (takes_keys(command)) fputs("      what+=keys\n", out);
  fputs("      ;;\n", out);
}

static const char bash_middle[] =
    "_gapless() {\n"
    "  local line=${COMP_LINE:0:COMP_POINT} cur command previous options= what= quoted= i\n"
    "  local -a words\n"
    "  COMPREPLY=()\n"
    "  cur=${line##*[[:space:]]}\n"
    "  read -ra words <<<\"${line%\"$cur\"}\"\n"
    "  [[ $cur == [\\'\\\"]* ]] && quoted=1 cur=${cur:1}\n"
    "  command=${words[1]-} previous=${words[${#words[@]} - 1]-}\n"
    "  if ((${#words[@]} < 2)); then\n"
    "    _gapless_offer \"$gapless_commands help --help --version\"\n"
    "    return\n"
    "  fi\n"
    "  case $command in\n"
    "    help) _gapless_offer \"$gapless_commands --man --completion --write\" ;;\n";

static const char bash_end[] = "  esac\n"
                               "  if [[ $cur == -* ]]; then\n"
                               "    _gapless_offer \"$options\"\n"
                               "    return\n"
                               "  fi\n"
                               "  [[ $what == *keys* ]] && _gapless_keys\n"
                               "  [[ $what == *processes* ]] && _gapless_processes\n"
                               "  [[ $what == *files* ]] && compopt -o default\n"
                               "  return 0\n"
                               "}\n"
                               "# readline takes a colon for the end of a word, outside of quotes.\n"
                               "_gapless_complete() {\n"
                               "  local cut=${COMP_LINE:0:COMP_POINT} i\n"
                               "  cut=${cut##*[[:space:]]}\n"
                               "  _gapless\n"
                               "  [[ $cut == [\\'\\\"]* || $cut != *:* || $COMP_WORDBREAKS != *:* ]] && return\n"
                               "  cut=${cut%\"${cut##*:}\"}\n"
                               "  for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=${COMPREPLY[i]#\"$cut\"}; done\n"
                               "}\n"
                               "complete -F _gapless_complete gapless\n";

static void bash(FILE *out) {
  fputs(bash_begin, out);
  bash_keys(out);
  fputs("gapless_keys=\"", out);
  for (uint32_t i = 0; i < gap__conf_option_count(); i++)
    fprintf(out, "%s%s:", i ? " " : "", gap__conf_option_at(i)->key);
  fputs("\"\ngapless_commands=\"", out);
  for (int i = 0; i < command_count; i++) fprintf(out, "%s%s", i ? " " : "", all_commands[i]->name);
  fputs("\"\n", out);
  fputs(bash_middle, out);
  for (int i = 0; i < command_count; i++) bash_command(all_commands[i], out);
  fputs(bash_end, out);
}

/* ---- zsh ---- */

/* Inside single quotes; `also`: what the place takes for its own. */
static void zsh_put(FILE *out, const char *text, const char *also) {
  for (; *text; text++) {
    if (*text == '\'') fputs("'\\''", out);
    else if (strchr(also, *text)) fprintf(out, "\\%c", *text);
    else fputc(*text, out);
  }
}

static void zsh_keys(FILE *out) {
  fputs("_gapless_keys() {\n  _values -s , -S : 'configuration key'", out);
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    const struct gap__conf_option *option = gap__conf_option_at(i);
    fprintf(out, " \\\n    '%s[", option->key);
    zsh_put(out, option->help, "[]:\\");
    fputs("]:value:(", out);
    put_values(out, option);
    fputs(")'", out);
  }
  fputs("\n}\n", out);
}

static void zsh_option(const struct usage_line *line, FILE *out) {
  fputs(" \\\n        ", out);
  if (line->letter) fprintf(out, "'(-%c --%s)'{-%c,--%s}'[", line->letter, line->name, line->letter, line->name);
  else fprintf(out, "'--%s[", line->name);
  zsh_put(out, line->text, "[]:\\");
  fputc(']', out);
  if (*line->value) {
    fputc(':', out);
    zsh_put(out, line->value, "[]:\\");
    fputs(strcmp(line->name, "conf") == 0 ? ":_gapless_keys" : usage_is_file(line->value) ? ":_files" : ": ", out);
  }
  fputc('\'', out);
}

static void zsh_command(const struct command *command, FILE *out) {
  struct usage_reader reader;
  struct usage_line line;
  fprintf(out, "    %s)\n      _arguments", command->name);
  usage_begin(&reader, command);
  while (usage_next_option(&reader, &line)) zsh_option(&line, out);
  fputs(" \\\n        '(- *)--help[its help]'", out);
  if (takes_keys(command)) fputs(" \\\n        ':string:_gapless_keys'", out);
  else if (takes_files(command) && takes(command, "PID")) fputs(" \\\n        '*:file or process:_gapless_files'", out);
  else if (takes_files(command)) fputs(" \\\n        '*:file:_files'", out);
  else if (takes(command, "PID")) fputs(" \\\n        ':process:_gapless_processes'", out);
  fputs("\n      ;;\n", out);
}

static void zsh(FILE *out) {
  fputs("#compdef gapless\n# zsh completion for gapless.  Made by: gapless help --completion zsh\n", out);
  zsh_keys(out);
  fputs("_gapless_processes() {\n"
        "  local -a found\n"
        "  found=(${XDG_RUNTIME_DIR:-/run/user/$UID}/gapless/*.sheet(N:t:r) /tmp/gapless-$UID/*.sheet(N:t:r))\n"
        "  compadd -a found\n}\n"
        "_gapless_files() { _gapless_processes; _files }\n"
        "_gapless() {\n  local -a commands\n  commands=(\n",
        out);
  for (int i = 0; i < command_count; i++) {
    fprintf(out, "    '%s:", all_commands[i]->name);
    zsh_put(out, all_commands[i]->summary, ":\\");
    fputs("'\n", out);
  }
  fputs("    'help:the help of a command'\n  )\n"
        "  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
        "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n"
        "    help) _describe command commands ;;\n",
        out);
  for (int i = 0; i < command_count; i++) zsh_command(all_commands[i], out);
  fputs("  esac\n}\n_gapless \"$@\"\n", out);
}

/* ---- fish ---- */

static void fish_put(FILE *out, const char *text) {
  fputc('\'', out);
  for (; *text; text++) {
    if (*text == '\'' || *text == '\\') fputc('\\', out);
    fputc(*text, out);
  }
  fputc('\'', out);
}

static void fish_seen(const struct command *command, FILE *out) {
  fprintf(out, "complete -c gapless -n '__fish_seen_subcommand_from %s'", command->name);
}

static void fish_option(const struct command *command, const struct usage_line *line, FILE *out) {
  fish_seen(command, out);
  if (line->letter) fprintf(out, " -s %c", line->letter);
  fprintf(out, " -l %s", line->name);
  if (*line->value) fputs(usage_is_file(line->value) ? " -r -F" : " -x", out);
  if (strcmp(line->name, "conf") == 0) fputs(" -a '(__gapless_keys)'", out);
  fputs(" -d ", out);
  fish_put(out, line->text);
  fputc('\n', out);
}

static void fish_command(const struct command *command, FILE *out) {
  struct usage_reader reader;
  struct usage_line line;
  fprintf(out, "complete -c gapless -n __fish_use_subcommand -a %s -d ", command->name);
  fish_put(out, command->summary);
  fputc('\n', out);
  usage_begin(&reader, command);
  while (usage_next_option(&reader, &line)) fish_option(command, &line, out);
  if (takes_files(command)) fish_seen(command, out), fputs(" -F\n", out);
  if (takes(command, "PID")) fish_seen(command, out), fputs(" -a '(__gapless_processes)'\n", out);
  if (takes_keys(command)) fish_seen(command, out), fputs(" -a '(__gapless_keys)'\n", out);
}

/* A key for each line, or a key with each of its words; behind what is typed up to the last comma. */
static void fish_keys(FILE *out) {
  fputs("function __gapless_keys\n  set -l before (string replace -r '[^,]*$' '' -- (commandline -ct))\n"
        "  for word in",
        out);
  for (uint32_t i = 0; i < gap__conf_option_count(); i++) {
    const struct gap__conf_option *option = gap__conf_option_at(i);
    char word[32];
    if (!is_list(option->range)) {
      fprintf(out, " %s:", option->key);
      continue;
    }
    for (const char *at = next_word(option->range, word); *word; at = next_word(at, word))
      fprintf(out, " %s:%s", option->key, word);
  }
  fputs("\n    echo $before$word\n  end\nend\n", out);
}

static void fish(FILE *out) {
  fputs("# fish completion for gapless.  Made by: gapless help --completion fish\ncomplete -c gapless -f\n", out);
  fish_keys(out);
  fputs("function __gapless_processes\n  set -q XDG_RUNTIME_DIR; or set -l XDG_RUNTIME_DIR /run/user/(id -u)\n"
        "  for file in $XDG_RUNTIME_DIR/gapless/*.sheet /tmp/gapless-(id -u)/*.sheet\n"
        "    string replace -r '.*/(.*)\\.sheet' '$1' $file\n  end\nend\n",
        out);
  for (int i = 0; i < command_count; i++) fish_command(all_commands[i], out);
  fputs("complete -c gapless -n __fish_use_subcommand -a help -d 'the help of a command'\n", out);
}

/* ---- the whole ---- */

int completion(const char *shell, FILE *out) {
  static const struct {
    const char *name;
    void (*write)(FILE *);
  } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
    if (strcmp(shell, shells[i].name) != 0) continue;
    shells[i].write(out);
    return 0;
  }
  return -1;
}
