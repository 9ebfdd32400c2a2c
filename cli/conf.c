/* gapless conf: the work is done, and its help written, beside the table of options. */
#include "cli.h"
#include "gapless/tools.h"
#include "toolsapi/conf_show.h"

static int run(int argc, char **argv) { return gap_conf_main(argc, argv, stdout, stderr); }

const struct command command_conf = {
    .name = "conf",
    .summary = "what a configuration string means: each value in force and who set it",
    .help = gap__conf_usage,
    .run = run,
};
