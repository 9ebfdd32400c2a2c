#!/usr/bin/env python3
"""The checks must be able to fail: each rule is broken once, in a tree of its own, and has to be reported."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "/* h */\n#define GAP_API\nenum {\n  GAP_OK = 0,\n  GAP_EINVAL = -1\n};\n"
HEADER += "/* GAP_API void gap_not(void); */\nGAP_API const char *gap_a(int a,\n                          int b);\n"


class Tree(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)

    def put(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def check(self, tool, *arguments):
        command = [sys.executable, str(ROOT / "tools" / tool), str(self.root), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def refused(self, words, tool, *arguments):
        result = self.check(tool, *arguments)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(words, result.stdout)

    def accepted(self, tool, *arguments):
        result = self.check(tool, *arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class Layers(Tree):
    tool = "check_layers.py"

    def setUp(self):
        super().setUp()
        for path in ("base/a.h", "core/heap.h", "trace/history.h", "dev/sim/sim.h", "dev/host/host.h"):
            self.put(f"src/{path}", "/* x */\n")

    def test_downwards(self):
        self.put("src/core/a.c", '#include "base/a.h"\n#include "heap.h"\n#include <stdlib.h>\n')
        self.put("cli/main.c", '#include "core/heap.h"\n#include <jansson.h>\n')
        self.accepted(self.tool)

    def test_plugins(self):
        self.put("plugin/remote/a.c", '#include "base/a.h"\n#include <hiredis/read.h>\n')
        self.accepted(self.tool)
        self.put("plugin/remote/a.c", '#include "core/heap.h"\n')
        self.refused("points the wrong way", self.tool)
        self.put("plugin/remote/a.c", "/* x */\n")
        self.put("src/base/b.c", "#include <hiredis/read.h>\n")
        self.refused("depends on libc", self.tool)

    def test_upwards(self):
        self.put("src/base/b.c", '/* x */\n#include "core/heap.h"\n')
        self.refused("src/base/b.c:2: base includes", self.tool)

    def test_relative_upwards(self):
        self.put("src/base/b.c", '#include "../core/heap.h"\n')
        self.refused("wrong way", self.tool)

    def test_sideways(self):
        self.put("src/core/b.c", '#include "trace/history.h"\n')
        self.refused("wrong way", self.tool)

    def test_backend_to_backend(self):
        self.put("src/dev/host/b.c", '#include "dev/sim/sim.h"\n')
        self.refused("another backend", self.tool)

    def test_library_with_third_party(self):
        self.put("src/conf/b.c", "#include <jansson.h>\n")
        self.refused("libc, pthread and dl only", self.tool)

    def test_missing(self):
        self.put("src/core/b.c", '#include "core/absent.h"\n')
        self.refused("not in the tree", self.tool)

    def test_unknown_layer(self):
        self.put("src/odd/b.c", "\n")
        self.refused("not a known layer", self.tool)

    def test_tests(self):
        self.put("tests/x.h", "\n")
        self.put("src/core/b.c", '#include "tests/x.h"\n')
        self.refused("does not depend on its tests", self.tool)


class Tidy(Tree):
    tool = "tidy.py"

    def test_good(self):
        self.put("src/a.c", "/* a */\nstatic int f(void) {\n  return 1;\n}\n")
        self.accepted(self.tool)

    def test_lines(self):
        for words, line in (("unfinished", "/* TO" + "DO */"), ("one machine", '"/ho' + 'me/x"'), ("a tab", "int\ta;"),
                            ("blanks", "int a; ")):
            self.put("src/a.c", f"/* a */\n{line}\n")
            self.refused(f"src/a.c:2: {words}" if words in ("a tab", "blanks") else words, self.tool)

    def test_no_comment(self):
        self.put("src/a.c", "int a;\n")
        self.refused("does not start with a comment", self.tool)
        self.put("src/a.h", "/* a */\n")
        self.accepted(self.tool)

    def test_no_newline(self):
        self.put("src/a.c", "/* a */")
        self.refused("no newline", self.tool)

    def test_long_file(self):
        self.put("src/a.c", "/* a */\n" + "int a;\n" * 998)
        self.accepted(self.tool)
        self.put("src/a.c", "/* a */\n" + "int a;\n" * 999)
        self.refused("1000 lines", self.tool)

    def test_long_function(self):
        head = "static int long_one(int a,\n                    int b) {\n"
        self.put("src/a.c", "/* a */\n" + head + "  a++;\n" * 66 + "}\n")
        self.accepted(self.tool)
        self.put("src/a.c", "/* a */\n" + head + "  a++;\n\n" * 33 + "  a++;\n}\n")
        self.refused("long_one() has 70 lines", self.tool)

    def test_long_table_is_no_function(self):
        self.put("src/a.c", "/* a */\nstatic const int table[] = {\n" + "  F(1),\n" * 80 + "};\n")
        self.accepted(self.tool)


class Api(Tree):
    tool = "check_api.py"

    def setUp(self):
        super().setUp()
        self.put("include/gapless/gapless.h", HEADER)
        self.put("src/base/errors.def", '/* e */\nGAP_ERROR(GAP_OK, 0, "x")\nGAP_ERROR(GAP_EINVAL, -1, "y")\n')

    def shared_object(self, code, *flags):
        source, library = self.put("lib.c", code), self.root / "lib.so"
        subprocess.run([os.environ.get("CC") or "cc", "-shared", "-fPIC", "-o", library, source, *flags], check=True)
        return library

    def test_not_cpp(self):
        self.put("include/gapless/b.h", "struct b { int class; };\n")
        self.refused("c++11", self.tool)

    def test_not_c99(self):
        self.put("include/gapless/b.h", "_Static_assert(1, \"\");\n")
        self.refused("c99", self.tool)

    def test_errors_differ(self):
        self.put("src/base/errors.def", '/* e */\nGAP_ERROR(GAP_OK, 0, "x")\nGAP_ERROR(GAP_EINVAL, -2, "y")\n')
        self.refused("GAP_EINVAL", self.tool)

    def test_exports(self):
        code = "int gap_a(void) { return 1; }\n"
        self.accepted(self.tool, self.shared_object(code))
        self.refused("exports gap__b", self.tool, self.shared_object(code + "int gap__b(void) { return 1; }\n"))
        self.refused("does not export gap_a", self.tool, self.shared_object("int gap_b(void) { return 1; }\n"))
        self.refused("exports nothing", self.tool, self.shared_object("static int a; int *f(void); typedef int b;\n"))

    def test_command_header(self):
        self.put("include/gapless/tools.h", "/* t */\nvoid gap_tool(void);\n")
        self.accepted(self.tool, self.shared_object("int gap_a(void) { return 1; }\n"))

    def test_needs(self):
        code = "int gap_a(void) { return 1; }\n"
        self.refused("needs libz.so", self.tool, self.shared_object(code, "-Wl,--no-as-needed", "-lz"))


class Format(Tree):
    tool = "check_format.py"

    def setUp(self):
        super().setUp()
        self.put(".clang-format", "BasedOnStyle: Google\n")
        if self.check(self.tool).returncode == 77:
            self.skipTest("clang-format of that version is not here")

    def test_format(self):
        self.put("src/base/a.c", "int f(void) { return 1; }\n")
        self.accepted(self.tool)
        self.put("src/base/a.c", "int f(void)   { return 1; }\n")
        self.refused("make format", self.tool)

    def test_nothing_there(self):
        self.assertEqual(self.check(self.tool).returncode, 1)


class FirstScreen(unittest.TestCase):
    """bench/torch/figures.py --readme, over rows of two folders."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        self.readme = self.root / "README.md"

    def rows(self, folder, *rows):
        (self.root / folder).mkdir()
        (self.root / folder / "torch.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(self):
        command = [sys.executable, str(ROOT / "bench/torch/figures.py"), "--table", "--out", str(self.root / "new"), "--fill",
                   str(self.root / "old"), "--readme", str(self.readme)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def measured(self, name, commit, native, tight):
        figures = {"reserved_bytes.all.peak": 100, "num_sync_all_streams": 0, "num_alloc_retries": 0, "driver_calls": 1, "stalls": 0}
        for side, mode, seconds in (("native", "free", native), ("gapless", "free", native), ("gapless", "tight", tight)):
            yield {"part": "workloads", "workload": name, "side": side, "mode": mode, "peak": 100, "ok": True, "error": "",
                   "seconds": [9, seconds, seconds], "figures": figures, "commit": commit}

    def test_between_the_marks(self):
        from_here, to_here = "<!-- bench/torch/figures.py --readme writes from here -->", "<!-- to here -->"
        self.readme.write_text(f"before\n{from_here}\nold\n{to_here}\nafter\n")
        self.rows("new", *self.measured("gnn", "aaa", 1.0, 1.25), *self.measured("llama_sft", "aaa", 1.0, 1.0))
        self.rows("old", *self.measured("gnn", "bbb", 1.0, 9.0), *self.measured("rlhf", "bbb", 2.0, 4.0))
        self.write()
        before, _, text, _, after = re.split(f"({from_here}|{to_here})", self.readme.read_text())
        self.assertEqual((before, after), ("before\n", "\nafter\n"))
        self.assertIn("(commit aaa; rlhf of bbb;", text)
        self.assertIn("three training and serving programs run at 1.005 P, at 0.50 to 1.00", " ".join(text.split()))

    def test_no_marks(self):
        self.readme.write_text("nothing\n")
        self.rows("new", *self.measured("gnn", "aaa", 1.0, 1.0))
        self.rows("old")
        self.assertEqual(self.write().returncode, 1)
        self.assertEqual(self.readme.read_text(), "nothing\n")


if __name__ == "__main__":
    unittest.main()
