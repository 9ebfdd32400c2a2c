/* The pickle machine, opcode by opcode, on hand-written byte strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gapless/gapless.h"
#include "trace/unpickle.h"

struct record { /* what the sink saw */
  unsigned dicts, fills, items;
  gap__value last_key, last_value;
};

static int begin(void *arg, gap__value *dict) {
  struct record *record = arg;
  *dict = gap__value_of(GAP__TAG_DICT, record->dicts++);
  return 0;
}

static int fill(void *arg, gap__value dict, const gap__value *items, uint32_t count, bool whole) {
  struct record *record = arg;
  (void)dict;
  (void)whole;
  record->fills++;
  record->items += count;
  record->last_key = items[count - 2];
  record->last_value = items[count - 1];
  return 0;
}

static const struct gap__dict_sink sink = {begin, fill};

/* One run; the machine stays so that values can be looked at. */
struct run {
  struct gap__input input;
  struct gap__unpickler machine;
  struct record record;
  gap__value result;
  char *message;
  int rc;
};

static void start(struct run *run, const void *bytes, size_t count) {
  *run = (struct run){0};
  assert_int_equal(gap__input_open_memory(&run->input, bytes, count, &run->message), 0);
  assert_int_equal(gap__unpickler_init(&run->machine, &run->input, &sink, &run->record, &run->message), 0);
  run->rc = gap__unpickler_run(&run->machine, &run->result);
  assert_true((run->rc == 0) == (run->message == NULL));
}

static void finish(struct run *run) {
  gap__unpickler_destroy(&run->machine);
  gap__input_close(&run->input);
  free(run->message);
}

#define RUN(run, text) start(run, "\x80\x04" text, sizeof("\x80\x04" text) - 1)

static void expect_error(const void *bytes, size_t count, int code, const char *wanted) {
  struct run run;
  start(&run, bytes, count);
  assert_int_equal(run.rc, code);
  if (strncmp(run.message, "byte ", 5) != 0 || !strstr(run.message, wanted))
    fail_msg("'%s' is not in '%s'", wanted, run.message);
  finish(&run);
}

#define FAILS(text, code, wanted) expect_error("\x80\x04" text, sizeof("\x80\x04" text) - 1, code, wanted)

static void expect_int(const void *bytes, size_t count, int64_t wanted) {
  struct run run;
  start(&run, bytes, count);
  assert_int_equal(run.rc, 0);
  assert_int_equal(gap__value_tag(run.result), GAP__TAG_INT);
  assert_true(gap__value_int(run.result) == wanted);
  finish(&run);
}

#define IS_INT(text, wanted) expect_int("\x80\x04" text, sizeof("\x80\x04" text) - 1, wanted)

static void integers(void **state) {
  (void)state;
  IS_INT("K\xff.", 255);
  IS_INT("M\x34\x12.", 0x1234);
  IS_INT("J\xff\xff\xff\xff.", -1);
  IS_INT("J\x00\x00\x00\x80.", INT32_MIN);
  IS_INT("\x8a\x00.", 0);
  IS_INT("\x8a\x01\x80.", -128);
  IS_INT("\x8a\x02\x80\x00.", 128);
  IS_INT("\x8a\x07\xff\xff\xff\xff\xff\xff\x7f.", 0x7fffffffffffff);
  IS_INT("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\xf8.", -((int64_t)1 << 59));
  IS_INT("\x8b\x02\x00\x00\x00\x01\x02.", 0x201);
  IS_INT("\x8a\x0c\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00.", 5);
}

static void integers_of_64_bits(void **state) {
  struct run run;
  uint64_t number = 0;
  (void)state;
  RUN(&run, "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.");
  assert_true(gap__unpickle_u64(&run.machine, run.result, &number));
  assert_true(number == UINT64_MAX);
  finish(&run);
  RUN(&run, "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x08."); /* 2^59: the first that needs the wide way */
  assert_true(gap__unpickle_u64(&run.machine, run.result, &number));
  assert_true(number == (uint64_t)1 << 59);
  finish(&run);
  RUN(&run, "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.");
  assert_int_equal(run.rc, 0);
  assert_false(gap__unpickle_u64(&run.machine, run.result, &number));
  finish(&run);
  FAILS("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", GAP_ELIMIT, "byte 2: an integer of more than 64 bits");
  FAILS("\x8b\x00\x01\x00\x00", GAP_ELIMIT, "an integer of 256 bytes");
  FAILS("\x8b\xff\xff\xff\xff", GAP_ELIMIT, "an integer of 4294967295 bytes");
}

static void an_integer_of_255_bytes(void **state) {
  unsigned char bytes[2 + 2 + 255 + 1] = {0x80, 4, 0x8a, 255, 9};
  (void)state;
  bytes[sizeof bytes - 1] = '.';
  expect_int(bytes, sizeof bytes, 9);
  bytes[200] = 1;
  expect_error(bytes, sizeof bytes, GAP_ELIMIT, "more than 64 bits");
}

static void other_atoms(void **state) {
  struct run run;
  double real = 0;
  (void)state;
  RUN(&run, "G\x3f\xf8\x00\x00\x00\x00\x00\x00.");
  assert_true(gap__unpickle_real(&run.machine, run.result, &real));
  assert_true(real == 1.5);
  finish(&run);
  RUN(&run, "N.");
  assert_int_equal(gap__value_tag(run.result), GAP__TAG_NONE);
  finish(&run);
  RUN(&run, "\x88\x89\x86.");
  const struct gap__list *pair = gap__unpickle_list(&run.machine, run.result);
  assert_int_equal(pair->count, 2);
  assert_true(run.machine.items.at[pair->first] == gap__value_of(GAP__TAG_BOOL, 1));
  assert_true(run.machine.items.at[pair->first + 1] == gap__value_of(GAP__TAG_BOOL, 0));
  finish(&run);
  RUN(&run, "C\x02hiB\x02\x00\x00\x00hi\x8e\x01\x00\x00\x00\x00\x00\x00\x00z\x96\x00\x00\x00\x00\x00\x00\x00\x00.");
  assert_int_equal(gap__value_tag(run.result), GAP__TAG_BYTES);
  assert_int_equal(run.machine.stack.count, 4);
  finish(&run);
}

static void every_string_opcode_interns(void **state) {
  struct run run;
  (void)state;
  RUN(&run, "(\x8c\x03"
            "abcX\x03\x00\x00\x00"
            "abc\x8d\x03\x00\x00\x00\x00\x00\x00\x00"
            "abcU\x03"
            "abcT\x03\x00\x00\x00"
            "abcl.");
  assert_int_equal(run.rc, 0);
  const struct gap__list *list = gap__unpickle_list(&run.machine, run.result);
  assert_int_equal(list->count, 5);
  for (uint32_t i = 1; i < 5; i++)
    assert_true(run.machine.items.at[list->first + i] == run.machine.items.at[list->first]);
  assert_string_equal(gap__strings_text(&run.machine.strings, gap__value_index(run.machine.items.at[list->first])),
                      "abc");
  finish(&run);
}

/* Longer than the window: gathered piece by piece, and found again when it comes twice. */
static void long_strings(void **state) {
  enum { LENGTH = 700000, SIZE = 2 + 1 + 2 * (5 + LENGTH) + 2 };
  unsigned char *bytes = malloc(SIZE), *at = bytes;
  struct run run;
  (void)state;
  memcpy(at, "\x80\x04(", 3);
  at += 3;
  for (unsigned i = 0; i < 2; i++) {
    memcpy(at, "X\x60\xae\x0a\x00", 5); /* 700,000 */
    for (unsigned j = 0; j < LENGTH; j++) at[5 + j] = (unsigned char)('a' + j % 23);
    at += 5 + LENGTH;
  }
  memcpy(at, "t.", 2);
  start(&run, bytes, SIZE);
  assert_int_equal(run.rc, 0);
  const struct gap__list *pair = gap__unpickle_list(&run.machine, run.result);
  gap__value first = run.machine.items.at[pair->first];
  assert_true(first == run.machine.items.at[pair->first + 1]);
  assert_int_equal(strlen(gap__strings_text(&run.machine.strings, gap__value_index(first))), LENGTH);
  finish(&run);
  expect_error(bytes, SIZE / 3, GAP_EFORMAT, "byte 3: the pickle ends in the middle");
  free(bytes);
  FAILS("X\xff\xff\xff\xff", GAP_ELIMIT, "a string of 4294967295 bytes");
  FAILS("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", GAP_ELIMIT, "a string of 18446744073709551615 bytes");
  FAILS("\x8e\xff\xff\xff\xff\xff\xff\xff\xff", GAP_EFORMAT, "ends in the middle");
  FAILS("\x95\xff\xff\xff\xff\xff\xff\xff\xff", GAP_EFORMAT, "a FRAME of");
}

static void lists_and_tuples(void **state) {
  struct run run;
  (void)state;
  RUN(&run, "]\x94(K\x01K\x02"
            "eh\x00K\x03"
            "a."); /* appended to through the memo, then once more */
  assert_int_equal(run.rc, 0);
  assert_int_equal(gap__unpickle_list(&run.machine, run.result)->count, 3);
  finish(&run);
  RUN(&run, "])K\x01\x85K\x02K\x03\x86K\x04K\x05K\x06\x87(K\x07tl."); /* LIST without its MARK */
  assert_int_equal(run.rc, GAP_EFORMAT);
  finish(&run);
  RUN(&run, "()K\x01\x85K\x02K\x03\x86K\x04K\x05K\x06\x87(K\x07tl.");
  assert_int_equal(run.rc, 0);
  const struct gap__list *list = gap__unpickle_list(&run.machine, run.result);
  assert_int_equal(list->count, 5);
  for (uint32_t i = 0; i < 4; i++)
    assert_int_equal(gap__unpickle_list(&run.machine, run.machine.items.at[list->first + i])->count, i);
  finish(&run);
}

/* Two lists filled in turn must move out of each other's way and keep their items. */
static void lists_grow_apart(void **state) {
  enum { ROUNDS = 1000 };
  unsigned char bytes[16 + ROUNDS * 10], *at = bytes;
  struct run run;
  (void)state;
  at = (unsigned char *)memcpy(at, "\x80\x04]\x94]\x94", 6) + 6;
  for (unsigned i = 0; i < ROUNDS; i++)
    at = (unsigned char *)memcpy(at,
                                 "h\x00K\x07"
                                 "ah\x01K\x09"
                                 "a",
                                 10) +
         10;
  at = (unsigned char *)memcpy(at, "h\x00.", 3) + 3;
  start(&run, bytes, (size_t)(at - bytes));
  assert_int_equal(run.rc, 0);
  for (uint32_t which = 0; which < 2; which++) {
    const struct gap__list *list = &run.machine.lists.at[which];
    assert_int_equal(list->count, ROUNDS);
    for (uint32_t i = 0; i < ROUNDS; i++)
      assert_true(gap__value_int(run.machine.items.at[list->first + i]) == (which ? 9 : 7));
  }
  assert_true(run.machine.items.count < 8 * ROUNDS);
  finish(&run);
}

static void dicts_reach_the_sink(void **state) {
  struct run run;
  (void)state;
  RUN(&run, "}(K\x01K\x02K\x03K\x04uK\x05K\x06s.");
  assert_int_equal(run.rc, 0);
  assert_int_equal(run.record.fills, 2);
  assert_int_equal(run.record.items, 6);
  assert_true(gap__value_int(run.record.last_key) == 5 && gap__value_int(run.record.last_value) == 6);
  finish(&run);
  RUN(&run, "(K\x01K\x02"
            "d.");
  assert_int_equal(run.record.items, 2);
  assert_int_equal(gap__value_tag(run.result), GAP__TAG_DICT);
  finish(&run);
}

static void the_memo(void **state) {
  (void)state;
  IS_INT("K\x05\x94K\x06\x94K\x07h\x00.", 5);
  IS_INT("K\x05q\x01K\x06r\x02\x00\x00\x00j\x01\x00\x00\x00.", 5);
  IS_INT("K\x05q\x00K\x06q\x00h\x00.", 6);
  FAILS("h\x00.", GAP_EFORMAT, "byte 2: memo entry 0 was never stored");
  FAILS("K\x05q\x02h\x01.", GAP_EFORMAT, "byte 6: memo entry 1 was never stored");
  FAILS("K\x05r\xff\xff\xff\x7f.", GAP_ELIMIT, "byte 4: memo index 2147483647");
  FAILS("\x94.", GAP_EFORMAT, "too few values for MEMOIZE");
}

static void the_stack(void **state) {
  (void)state;
  IS_INT("K\x01K\x02"
         "0.",
         1);
  IS_INT("K\x01(K\x02K\x03"
         "1.",
         1);
  IS_INT("K\x01(0.", 1); /* POP of a bare MARK */
  IS_INT("K\x01"
         "2\x86"
         "0K\x04.",
         4);
  FAILS("0", GAP_EFORMAT, "POP without a MARK");
  FAILS("1", GAP_EFORMAT, "POP_MARK without a MARK");
  FAILS("t", GAP_EFORMAT, "TUPLE without a MARK");
  FAILS("e", GAP_EFORMAT, "APPENDS without a MARK");
  FAILS("(e", GAP_EFORMAT, "nothing under the MARK for APPENDS");
  FAILS("(u", GAP_EFORMAT, "nothing under the MARK for SETITEMS");
  FAILS("](K\x01(e", GAP_EFORMAT, "appends to an integer");
  FAILS("K\x01(\x85", GAP_EFORMAT, "too few values for TUPLE1");
  FAILS("]a", GAP_EFORMAT, "too few values for APPEND");
  FAILS("}K\x01s", GAP_EFORMAT, "too few values for SETITEM");
  FAILS("}(K\x01u", GAP_EFORMAT, "a key without a value");
  FAILS("](K\x01K\x01u", GAP_EFORMAT, "sets an item of a list");
  FAILS("K\x01K\x02"
        "a",
        GAP_EFORMAT, "appends to an integer");
  FAILS(")K\x02"
        "a",
        GAP_EFORMAT, "appends to a tuple");
  FAILS(".", GAP_EFORMAT, "too few values for STOP");
  FAILS("K\x01(.", GAP_EFORMAT, "too few values for STOP");
}

static void classes_and_calls_are_refused_by_name(void **state) {
  static const struct {
    unsigned char code;
    const char *name;
  } refused[] = {
      {'c', "GLOBAL"},     {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},           {'b', "BUILD"},        {'i', "INST"},
      {'o', "OBJ"},        {0x81, "NEWOBJ"},       {0x92, "NEWOBJ_EX"},       {0x82, "EXT1"},        {0x83, "EXT2"},
      {0x84, "EXT4"},      {'P', "PERSID"},        {'Q', "BINPERSID"},        {0x97, "NEXT_BUFFER"}, {0x90, "ADDITEMS"},
      {0x91, "FROZENSET"}, {0x8f, "EMPTY_SET"},    {0x98, "READONLY_BUFFER"}, {'I', "INT"},          {'g', "GET"}};
  (void)state;
  for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
    unsigned char bytes[] = {0x80, 4, 'N', refused[i].code, 'o', 's', '\n', '.'};
    char wanted[64] = "byte 3: opcode ";
    strcat(strcat(wanted, refused[i].name), " is refused");
    expect_error(bytes, sizeof bytes, GAP_EFORMAT, wanted);
  }
}

static void unknown_opcodes_and_protocols(void **state) {
  (void)state;
  FAILS("\x01", GAP_EFORMAT, "byte 2: 0x01 is not a pickle opcode");
  expect_error("\x80\x01N.", 4, GAP_EFORMAT, "byte 0: pickle protocol 1; 2 to 5 can be read");
  expect_error("\x80\x06N.", 4, GAP_EFORMAT, "pickle protocol 6");
  expect_error("(dp0\n.", 6, GAP_EFORMAT, "byte 0: no pickle of protocol 2 to 5 begins with 0x28");
  expect_error("", 0, GAP_EFORMAT, "byte 0: the pickle ends");
}

static void deep_nesting_is_refused_and_costs_nothing(void **state) {
  enum { DEEP = 1000000 };
  unsigned char *bytes = malloc(DEEP);
  struct run run;
  (void)state;
  memset(bytes, '(', DEEP);
  memcpy(bytes, "\x80\x04", 2);
  expect_error(bytes, DEEP, GAP_ELIMIT, "byte 258: nested more than 256 deep");
  /* lists inside lists need no mark; they are only indices here */
  memset(bytes, ']', DEEP / 2);
  memset(bytes + DEEP / 2, 'a', DEEP / 2);
  memcpy(bytes, "\x80\x04]]", 4);
  memcpy(bytes + DEEP - 3, "...", 3);
  start(&run, bytes, DEEP);
  assert_int_equal(run.rc, 0);
  finish(&run);
  free(bytes);
}

static void a_list_inside_itself(void **state) {
  struct run run;
  (void)state;
  RUN(&run, "]\x94h\x00"
            "a.");
  assert_int_equal(run.rc, 0);
  assert_true(run.machine.items.at[run.machine.lists.at[0].first] == run.result);
  finish(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers),
      cmocka_unit_test(integers_of_64_bits),
      cmocka_unit_test(an_integer_of_255_bytes),
      cmocka_unit_test(other_atoms),
      cmocka_unit_test(every_string_opcode_interns),
      cmocka_unit_test(long_strings),
      cmocka_unit_test(lists_and_tuples),
      cmocka_unit_test(lists_grow_apart),
      cmocka_unit_test(dicts_reach_the_sink),
      cmocka_unit_test(the_memo),
      cmocka_unit_test(the_stack),
      cmocka_unit_test(classes_and_calls_are_refused_by_name),
      cmocka_unit_test(unknown_opcodes_and_protocols),
      cmocka_unit_test(deep_nesting_is_refused_and_costs_nothing),
      cmocka_unit_test(a_list_inside_itself),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
