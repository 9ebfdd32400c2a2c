/* The checksum of what sleeps is the base's. */
#include "base/sum.h"
