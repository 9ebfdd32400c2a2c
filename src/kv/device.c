/* The text of device.cu. */
#include "kv/code.h"
#include "kv/embed.h"

KV_EMBED(gap__kv_device_source);
