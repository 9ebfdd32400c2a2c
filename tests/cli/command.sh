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

# Two cards of a driver that is none; the second time they lack virtual memory management and what stands on it.
drivers=$(mktemp -d)
trap 'rm -rf "$drivers"' EXIT
ln -s "$(dirname "$command")/tests/libfakecuda.so" "$drivers/libcuda.so.1"
cd "$drivers" || exit 1
export LD_LIBRARY_PATH=. FAKE_CUDA_CARDS=2 FAKE_CUDA_LACKS=0
golden info          info
FAKE_CUDA_CARDS=1 FAKE_CUDA_LACKS=1 golden info-lacks    info
golden info-json     info --json
rm libcuda.so.1 && : >libcuda.so.1
golden info-none     info
golden demo-no-data  demo --data /nowhere
finish
