#!/bin/bash
# The command itself: help, version, names that do not exist: command.sh COMMAND [--write]
. "$(dirname "$0")/golden.inc"

golden help          help
golden help-replay   replay --help
golden help-demo     help demo
golden version       --version
golden no-command
golden near-command  repaly
golden far-command   frobnicate
golden info          info
golden demo-no-data  demo --data /nowhere
finish
