#!/bin/bash
# What `gapless report` prints and writes: report.sh COMMAND [--write]
. "$(dirname "$0")/golden.inc"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$data" || exit 1

golden report-json        report made/policy.json --json --quiet --no-what-if
golden report-snapshot    report made/old_layout.pickle --json --quiet --no-what-if --top 2
golden report-bad-file    report README.md
golden report-no-file     report
golden report-bad-cap     report gnn.pickle.xz --cap lots
golden report-bad-top     report gnn.pickle.xz --top 0
golden report-bad-option  report gnn.pickle.xz --tops 3
golden report-no-device   report gnn.pickle.xz --device 3
golden report-no-folder   report gnn.pickle.xz --no-what-if -o missing/report.html
golden help-report        help report

expect() { # expect WORDS COMMAND...: it must succeed
  local words=$1
  shift
  "$@" >/dev/null 2>&1 || { echo "not so: $words"; failures=$((failures + 1)); }
}

# The page holds the data that --json gives, and no way to leave its place.
write_page() {
  "$command" report oom.pickle.xz --no-what-if -o "$folder/page.html" >"$folder/said" 2>&1 &&
    "$command" report oom.pickle.xz --no-what-if --json >"$folder/data.json"
}
expect "a page is written" write_page
expect "it is said what was written" grep -q '^.*page.html: .* KiB, to be opened in a browser$' "$folder/said"
expect "the page has the data" python3 - "$folder" <<'PYTHON'
import json, re, sys
page = open(sys.argv[1] + "/page.html", encoding="utf-8").read()
data = re.search(r'<script type="application/json" id="gapless-data">(.*?)</script>', page, re.DOTALL).group(1)
assert "<" not in data
assert json.loads(data) == json.load(open(sys.argv[1] + "/data.json", encoding="utf-8"))
assert not re.search(r'(src|href)="https?:', page)
PYTHON

# Nothing that was there is lost: an input is not written over, and a page that cannot be written leaves the old one.
cp gnn.pickle.xz "$folder/in.xz"
ln "$folder/in.xz" "$folder/same.html"
refuses() {
  "$@" <"$folder/in.xz" 2>"$folder/error"
  [ $? -eq 2 ] && grep -q 'is an input, which would be overwritten' "$folder/error" && cmp gnn.pickle.xz "$folder/in.xz"
}
expect "report: an input is not overwritten" refuses "$command" report "$folder/in.xz" --quiet -o "$folder/same.html"
expect "report: nor is standard input" refuses "$command" report - --quiet -o "$folder/in.xz"
expect "convert: an input is not overwritten" refuses "$command" convert "$folder/in.xz" "$folder/same.html" --to json
expect "plan: an input is not overwritten" refuses "$command" plan "$folder/in.xz" -o "$folder/in.xz"
expect "tune: an input is not overwritten" refuses "$command" tune "$folder/in.xz" --no-cache --out "$folder/in.xz"
expect "check: an input is not overwritten" refuses "$command" check "$folder/in.xz" --save "$folder/in.xz"
expect "check: nor by --junit" refuses "$command" check "$folder/in.xz" --max-held 1TiB --junit "$folder/same.html"
keeps_old() { echo old >"$folder/old.html" && ! "$command" report README.md -o "$folder/old.html" && [ "$(cat "$folder/old.html")" = old ]; }
expect "what cannot be reported leaves the old page" keeps_old

# Standard input and output; two files.
streams() { "$command" report - --no-what-if --quiet -o - <gnn.pickle.xz | head -c 15 | grep -q '^<!doctype html>'; }
expect "a page goes to standard output" streams
two() { "$command" report made/rank0.pickle.xz made/rank1.pickle.xz --json --no-what-if | python3 -c "
import json, sys
data = json.load(sys.stdin)
assert len(data['panels']) == 2 and data['diff']['panel_b'] == 1 and not data['diff']['same']"; }
expect "two files are compared" two
finish
