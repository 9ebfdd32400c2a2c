/* The first words to a server: who we are, which database, and whether it listens. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "secret.h"
#include "store.h"

/* hiredis's own is freed by its own free, which is libc's in every build known; a copy keeps the two apart. */
char *gap__command(int count, const char *const *words, const size_t *lengths, size_t *length) {
  char *theirs = NULL;
  int bytes = redisFormatCommandArgv(&theirs, count, (const char **)(uintptr_t)words, lengths);
  if (bytes < 0) return NULL;
  char *ours = malloc((size_t)bytes);
  if (ours) memcpy(ours, theirs, (size_t)bytes);
  gap__remote_wipe(theirs, (size_t)bytes); /* there may be a password in it */
  redisFreeCommand(theirs);
  return *length = (size_t)bytes, ours;
}

static const struct {
  const char *code, *words;
} errors[] = {
    {"NOAUTH", "it wants a password"},
    {"WRONGPASS", "it does not take the user or the password"},
    {"NOPERM", "the user may not do what is needed"},
    {"DENIED", "it is in protected mode: it serves its own machine only"},
    {"LOADING", "it is still loading its data"},
    {"BUSY", "a script keeps it busy"},
    {"OOM", "it is full"},
    {"MISCONF", "it cannot save its data, and takes none"},
    {"READONLY", "it is a read-only replica"},
    {"MASTERDOWN", "it is a replica whose master is down"},
    {"MOVED", "it is part of a cluster; name servers that are not"},
    {"CLUSTERDOWN", "it is part of a cluster that is down"},
    {"WRONGTYPE", "the key holds something else"},
};

const char *gap__reply_words(const char *text, size_t length) {
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
    size_t bytes = strlen(errors[i].code);
    if (length >= bytes && memcmp(text, errors[i].code, bytes) == 0 && (length == bytes || text[bytes] == ' '))
      return errors[i].words;
  }
  return "it answered with an error";
}

static void say(struct server *s, enum request request, int count, const char *const *words) {
  struct flight f = {.request = request};
  size_t lengths[3] = {0};
  for (int i = 0; i < count; i++) lengths[i] = strlen(words[i]);
  f.command = gap__command(count, words, lengths, &f.length);
  if (f.command) gap__server_push(s, f);
  else gap__server_fail(s, CAUSE_BROKEN, "no memory");
}

void gap__greet(struct server *s) {
  const struct gap__remote_url *url = &s->url;
  char database[16];
  s->state = STATE_GREETING;
  snprintf(database, sizeof database, "%u", url->database);
  if (url->has_password && url->user[0])
    say(s, REQUEST_AUTH, 3, (const char *const[]){"AUTH", url->user, url->password});
  else if (url->has_password) say(s, REQUEST_AUTH, 2, (const char *const[]){"AUTH", url->password});
  if (url->database && s->state == STATE_GREETING) say(s, REQUEST_SELECT, 2, (const char *const[]){"SELECT", database});
  if (s->state == STATE_GREETING) say(s, REQUEST_HELLO, 1, (const char *const[]){"PING"});
}

static const char *greeting_refused(enum request request, const char *text, size_t length) {
  if (request == REQUEST_SELECT) return "it does not have that database";
  const char *words = gap__reply_words(text, length);
  bool known = strcmp(words, gap__reply_words("", 0)) != 0;
  return request == REQUEST_AUTH && !known ? "it does not take the password, or wants none" : words;
}

void gap__greet_reply(struct server *s, enum request request, int type, const char *text, size_t length) {
  bool good = type == REDIS_REPLY_STATUS;
  if (good && request != REQUEST_HELLO) return;
  if (good && length == 4 && memcmp(text, "PONG", 4) == 0) {
    gap__server_up(s);
    return;
  }
  s->doomed = true;
  s->doom = type == REDIS_REPLY_ERROR ? CAUSE_REFUSED : CAUSE_LIE;
  snprintf(s->reason, sizeof s->reason, "%s",
           type == REDIS_REPLY_ERROR ? greeting_refused(request, text, length) : "it is no Redis server");
}
