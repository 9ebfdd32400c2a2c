/* `gapless conf`, as the public header offers it. */
#include "gapless/tools.h"
#include "toolsapi/conf_show.h"

int gap_conf_main(int argc, char **argv, FILE *out, FILE *err) { return gap__conf_main(argc, argv, out, err); }
