/* The sentence of each error code, from errors.def, and the version. */
#include "gapless/gapless.h"

/* The public header spells the codes out, for people; this proves that the list says the same. */
#define GAP_ERROR(name, value, text) _Static_assert(name == (value), #name " differs between errors.def and gapless.h");
#include "base/errors.def"
#undef GAP_ERROR

#define GAP_ERROR(name, value, text) +1
_Static_assert(0
#include "base/errors.def"
                   == 1 - GAP_EFORKED,
               "a code of gapless.h is missing in errors.def");
#undef GAP_ERROR

const char *gap_strerror(int code) {
  switch (code) {
#define GAP_ERROR(name, value, text) \
  case value: \
    return text;
#include "base/errors.def"
#undef GAP_ERROR
    default: return "unknown error code";
  }
}

#define QUOTE(x) #x
#define VERSION(major, minor, patch) QUOTE(major) "." QUOTE(minor) "." QUOTE(patch)

const char *gap_version(void) { return VERSION(GAP_VERSION_MAJOR, GAP_VERSION_MINOR, GAP_VERSION_PATCH); }
