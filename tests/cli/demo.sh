#!/bin/bash
# The demo: its shape, its end, and that it takes no more than 20 seconds: demo.sh COMMAND [--write]
. "$(dirname "$0")/golden.inc"

within_seconds 20
golden demo demo --data "$data"
no_line_beyond 100 demo
finish
