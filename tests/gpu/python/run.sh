#!/bin/bash
# Installs a wheel beside the PyTorch of python3, and tests it on the card: tests/gpu/python/run.sh WHEEL [check.py's arguments]
#
# The wheel is one that `pip wheel --no-deps .` has made.
set -eu
wheel=$1
shift
python3 -m pip install -q --no-index --no-deps --force-reinstall --disable-pip-version-check --root-user-action=ignore "$wheel"
exec python3 "$(dirname "$0")/check.py" "$@"
