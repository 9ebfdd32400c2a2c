"""Everything around the shim, with one over host memory in its place: building, the cache, the doors, the life of a
process."""

import os
import pathlib
import shutil
import stat
import subprocess
import time

import pytest
from conftest import ROOT

if shutil.which(os.environ.get("CXX", "c++")) is None:
    pytest.skip("no C++ compiler", allow_module_level=True)

COMPILING = "compiling the shim for PyTorch 2.11.0+fake, once, at most 15 s ..."
START = """
import os, sys, gapless
from gapless import _shim, _torch
_shim.sources = lambda: os.environ["FAKE_SHIM"]
_shim.WAIT_SECONDS = float(os.environ.get("FAKE_WAIT", _shim.WAIT_SECONDS))
import torch
def library():
    import ctypes
    found = _torch.state.door._library
    for name in ("fake_settings", "fake_pool"):
        getattr(found, name).restype = ctypes.c_char_p
    return found
def start():
    if _torch.state.door is not None and _torch.state.door.name == "a":
        library().fake_start()
torch._C.on_start.append(start)
"""


class Machine:
    """Runs programs with the fake torch, toolkit, driver and shim."""

    def __init__(self, site, folder):
        self.site, self.folder = site, folder
        self.cache = folder / "cache"
        self.shim = folder / "shim"
        shutil.copytree(ROOT / "tests" / "py" / "fake_shim", self.shim)

    def variables(self, **variables):
        return {
            "CUDA_HOME": str(self.site.cuda),
            "LD_LIBRARY_PATH": str(self.site.libraries),
            "FAKE_SHIM": str(self.shim),
            "GAPLESS": "1",
            **variables,
        }

    def run(self, code, **arguments):
        import textwrap

        return self.site.run(START + textwrap.dedent(code), self.cache, **self.variables(**arguments))

    def compiler(self, name, body=""):
        """A C++ compiler that first does something, and notes that it was called to compile."""
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\ncase "$*" in *" -c "*) echo x >>"{self.folder}/compiled";; esac\n{body}\nexec c++ "$@"\n'
        )
        path.chmod(0o755)
        return str(path)

    def compiled(self):
        path = self.folder / "compiled"
        return len(path.read_text().split()) if path.exists() else 0

    def built(self):
        return sorted(self.cache.glob("torch-*.so"))


@pytest.fixture
def machine(site, tmp_path):
    return Machine(site, tmp_path)


SERVES = (
    "torch.cuda.init(); print(_torch.state.door and _torch.state.door.name, gapless.is_enabled(), torch._C.started)"
)


def test_built_once(machine):
    first = machine.run(SERVES)
    assert first.stdout == "a True 1\n" and first.stderr == f"gapless: {COMPILING}\n"
    assert stat.S_IMODE(os.stat(machine.cache).st_mode) == 0o700
    (library,) = machine.built()
    assert stat.S_IMODE(library.stat().st_mode) == 0o600
    assert not list(machine.cache.glob(".*"))
    again = machine.run(SERVES)
    assert again.stdout == first.stdout and again.stderr == ""
    assert machine.built() == [library]


def test_the_example_of_the_article(machine):
    """Nothing is set before; the word comes by os.environ after the import, and goes again while CUDA runs."""
    code = """
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "caching_allocator"
        torch.cuda.init()
        heap = _torch.state.door.heap()
        print(heap.conf_value("strategy"), library().fake_settings().decode())
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ""
        print(heap.conf_value("strategy"), library().fake_settings().decode())
    """
    variables = machine.variables()
    del variables["GAPLESS"]
    result = machine.site.run(START + __import__("textwrap").dedent(code), machine.cache, **variables)
    assert result.stdout == "caching_allocator caching_allocator\ngapless \n"


def test_settings_follow_os_environ(machine):
    code = """
        torch.cuda.init()
        heap = _torch.state.door.heap()
        for string in ("max_memory:32M", "max_memory:wrong", "max_memory:16M"):
            os.environ.update(PYTORCH_CUDA_ALLOC_CONF=string)
            print(heap.conf_value("max_memory"))
        del os.environ["PYTORCH_CUDA_ALLOC_CONF"]
        print(heap.conf_value("max_memory"))
        gapless.configure("max_memory:8M")
        os.environ["GAPLESS_CONF"] = "max_memory:64M"
        print(heap.conf_value("max_memory"), library().fake_settings().decode())
        gapless.configure("")
        print(heap.conf_value("max_memory"))
    """
    result = machine.run(code)
    assert result.stdout.splitlines() == ["32 MiB", "32 MiB", "16 MiB", "not set", "8 MiB max_memory:8M", "64 MiB"]
    assert "max_memory:wrong" in result.stderr


def test_setters_before_and_after_the_start(machine):
    code = """
        torch.cuda.memory._set_allocator_settings("max_memory:24M,max_split_size_mb:64")
        torch.cuda.init()
        heap = _torch.state.door.heap()
        print(heap.conf_value("max_memory"), torch._C.parsed[-1], library().fake_settings().decode())
        torch._C._accelerator_setAllocatorSettings("max_memory:48M")
        print(heap.conf_value("max_memory"), heap.conf_value("max_split_size_mb"))
        try:
            torch._C._accelerator_setAllocatorSettings("max_memory:none")
        except ValueError as error:
            print(type(error).__name__, heap.conf_value("max_memory"))
    """
    assert machine.run(code).stdout.splitlines() == [
        "24 MiB max_split_size_mb:64 max_memory:24M,max_split_size_mb:64",
        "48 MiB unlimited",
        "ConfigError 48 MiB",
    ]


def test_stats_and_explain_and_summary(machine):
    code = """
        print(gapless.stats())
        torch.cuda.init()
        heap = _torch.state.door.heap()
        heap.alloc(1 << 20)
        print(gapless.stats()["allocated_bytes.all.current"], gapless.explain(), "live" in gapless.memory_summary())
    """
    assert machine.run(code).stdout.splitlines() == ["{}", "1048576 explained by the shim True"]


def test_disable_and_enable_again(machine):
    code = """
        torch.cuda.init()
        print(gapless.is_enabled(), gapless.disable(), gapless.is_enabled(), gapless.enable(), gapless.is_enabled())
    """
    assert machine.run(code).stdout == "True True False True True\n"


def test_enable_opens_the_door_at_once(machine):
    variables = machine.variables(GAPLESS="")
    result = machine.site.run(
        START + "print(gapless.enable(), _torch.state.door.name, torch._C.started, gapless.is_enabled())\n" + SERVES,
        machine.cache,
        **variables,
    )
    assert result.stdout == "True a 0 False\na True 1\n"


def test_the_programs_own_allocator_after_enable_wins(machine):
    code = """
        gapless.enable()
        torch.cuda.memory.change_current_allocator(torch.cuda.CUDAPluggableAllocator("x", "a", "f"))
        torch.cuda.init()
        print(_torch.state.door, torch._C.started)
    """
    result = machine.run(code)
    assert result.stdout == "None 1\n" and "the program chose the allocator 'pluggable' itself" in result.stderr


def test_pools(machine):
    code = """
        for contiguous in (False, True):
            pool = gapless.pool(tag="kv", contiguous=contiguous)
            with pool as same:
                print(same is pool, torch.cuda.use_mem_pool.active == [pool.id], library().fake_pool().decode())
            assert not torch.cuda.use_mem_pool.active
    """
    assert machine.run(code).stdout.splitlines() == ["True True 1 1 kv", "True True 2 2 kv"]


def test_a_driver_that_fails_leaves_torchs_allocator(machine):
    result = machine.run(SERVES, FAKE_SHIM_FAILS="1")
    assert result.stdout == "None False 1\n"
    assert result.stderr.endswith("gapless: not used: the fake driver is too old; PyTorch's own allocator stays\n")


def test_a_shim_that_refuses_leaves_torchs_allocator(machine):
    result = machine.run(SERVES, FAKE_SHIM_REFUSES="1")
    assert result.stdout == "None False 1\n" and "not used: the fake shim refuses" in result.stderr


def test_switched_off_by_one_variable(machine):
    result = machine.run(SERVES, GAPLESS="0", PYTORCH_CUDA_ALLOC_CONF="")
    assert result.stdout == "None False 1\n" and result.stderr == "" and not machine.cache.exists()


# ---- building ----


def test_two_at_once_build_once(machine):
    compiler = machine.compiler("slow", 'case "$*" in *" -c "*) sleep 0.5;; esac')
    environ = machine.site.environment(
        machine.cache, PYTHONPATH=str(machine.site.fake_torch), **machine.variables(CXX=compiler)
    )
    programs = [
        subprocess.Popen(
            [str(machine.site.python), "-c", START + SERVES],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    answers = [program.communicate(timeout=60) for program in programs]
    assert [out for out, _ in answers] == ["a True 1\n"] * 4
    assert "".join(said for _, said in answers).count(COMPILING) == 1
    assert machine.compiled() == 1 and len(machine.built()) == 1


def test_what_does_not_compile_is_not_tried_again(machine):
    (machine.shim / "part.h").write_text("#error not today\n")
    compiler = machine.compiler("c++-noted")
    first = machine.run(SERVES, CXX=compiler)
    assert first.stdout == "None False 1\n" and "the shim does not compile here (see " in first.stderr
    log = pathlib.Path(first.stderr.partition("(see ")[2].partition(")")[0])
    assert "not today" in log.read_text()
    calls = machine.compiled()
    again = machine.run(SERVES, CXX=compiler)
    assert "did not compile" in again.stderr and COMPILING not in again.stderr and machine.compiled() == calls
    (machine.shim / "part.h").write_text("#define FAKE_ABI 1\n")
    assert machine.run(SERVES, CXX=compiler).stdout == "a True 1\n"


def test_patience_has_an_end_and_the_work_goes_on(machine):
    compiler = machine.compiler("sleepy", 'case "$*" in *" -c "*) sleep 6;; esac')
    begin = time.monotonic()
    first = machine.run(SERVES, CXX=compiler, FAKE_WAIT="0.4")
    assert first.stdout == "None False 1\n" and "still being compiled" in first.stderr and time.monotonic() - begin < 6
    deadline = time.monotonic() + 45
    while not machine.built() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert machine.run(SERVES, CXX=compiler).stdout == "a True 1\n"
    assert machine.compiled() == 1


def test_another_abi_is_not_loaded(machine):
    (machine.shim / "part.h").write_text("#define FAKE_ABI 99\n")
    result = machine.run(SERVES, GAPLESS_DOOR="a")
    assert result.stdout == "None False 1\n" and "speaks version 99" in result.stderr


def test_a_compiler_that_prefers_archives_links_the_librarys_of_the_process(machine):
    """Two C++ libraries in one process take each other's locales for theirs: the first number printed is the end."""
    compiler = machine.compiler("archives", 'set -- "$@" -static-libstdc++')
    assert machine.run(SERVES, CXX=compiler).stdout == "a True 1\n"
    (built,) = machine.built()
    assert b"libstdc++.so.6" in built.read_bytes()


def test_a_cxx_library_inside_the_shim_is_refused(machine):
    own = 'case "$*" in *" -shared "*nodefaultlibs*) exit 1;; *" -shared "*) set -- "$@" -static-libstdc++;; esac'
    (machine.shim / "prints.cpp").write_text(
        "#include <sstream>\nstd::string printed() { std::ostringstream out; out << 0.5; return out.str(); }\n"
    )
    result = machine.run(SERVES, CXX=machine.compiler("own", own))
    assert result.stdout == "None False 1\n" and not machine.built()  # there is no driver for door (b) either
    (log,) = machine.cache.glob("torch-*.log")
    assert "links a C++ library of its own" in log.read_text()


def test_no_compiler_says_what_is_lost(machine):
    result = machine.run(SERVES, CXX="/nowhere/c++")
    assert result.stdout == "None False 1\n"  # there is no driver for door (b) either
    assert (
        result.stderr.count("no C++ compiler is found") == 1 and "without memory statistics, snapshots" in result.stderr
    )


def test_no_driver_builds_nothing(machine):
    result = machine.run(SERVES, LD_LIBRARY_PATH="")
    assert "no CUDA driver: libcuda.so.1" in result.stderr and not machine.cache.exists()


KEY = """
torch.version.git_version = os.environ.get("FAKE_GIT", torch.version.git_version)
torch.version.cuda = os.environ.get("FAKE_CUDA", torch.version.cuda)
torch.__version__ = os.environ.get("FAKE_VERSION", torch.__version__)
torch._C._GLIBCXX_USE_CXX11_ABI = "FAKE_OLD_ABI" not in os.environ
print(_shim.plan(_shim.Torch.of(torch)).name)
"""


def test_key(machine, site):
    """Each thing that a built shim depends on gives it another name."""

    def name(**variables):
        return machine.run(KEY, **variables).stdout.strip()

    header = site.fake_torch / "torch" / "include" / "c10" / "core" / "Allocator.h"
    names = [
        name(),
        name(FAKE_GIT="abc"),
        name(FAKE_CUDA="12.8"),
        name(FAKE_VERSION="2.11.1"),
        name(FAKE_OLD_ABI="1"),
        name(CXX=machine.compiler("other", 'case "$1" in --version) echo other 1.0; exit;; esac')),
    ]
    header.write_text("#pragma once\nstruct Changed;\n")
    names.append(name())
    header.write_text("#pragma once\n")
    (machine.shim / "part.h").write_text("#define FAKE_ABI 1 // changed\n")
    names.append(name())
    assert len(set(names)) == len(names) and all(found.startswith("torch-2.11.") for found in names)
    (machine.shim / "part.h").write_bytes((ROOT / "tests" / "py" / "fake_shim" / "part.h").read_bytes())
    assert name() == names[0]


# ---- where it is kept ----


def folder_of(machine, **variables):
    code = "from gapless import _cache; print(_cache.folder())"
    environ = machine.site.environment("", **variables)
    del environ["GAPLESS_CACHE"]
    result = subprocess.run(
        [str(machine.site.python), "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def test_folder_is_the_users_cache(machine, tmp_path):
    assert folder_of(machine, XDG_CACHE_HOME=str(tmp_path / "xdg")) == str(tmp_path / "xdg" / "gapless")
    assert folder_of(machine, HOME=str(tmp_path / "home")) == str(tmp_path / "home" / ".cache" / "gapless")


@pytest.mark.parametrize("spoil", ["no_folder", "link", "writable", "file"])
def test_an_unsafe_or_read_only_home_gives_way_to_the_temporary_folder(machine, tmp_path, spoil):
    home, temporary = tmp_path / "xdg", tmp_path / "tmp"
    temporary.mkdir()
    mine = temporary / f"gapless-{os.geteuid()}"
    if spoil == "no_folder":
        home.write_text("")  # nothing can be made below a file
    else:
        home.mkdir()
        if spoil == "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            (home / "gapless").symlink_to(tmp_path / "elsewhere")
        elif spoil == "file":
            (home / "gapless").write_text("")
        else:
            (home / "gapless").mkdir()
            (home / "gapless").chmod(0o777)
    assert folder_of(machine, XDG_CACHE_HOME=str(home), TMPDIR=str(temporary)) == str(mine)
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    mine.chmod(0o770)
    assert folder_of(machine, XDG_CACHE_HOME=str(home), TMPDIR=str(temporary)) == "None"


def test_a_library_that_others_may_write_is_not_loaded(machine):
    machine.run(SERVES)
    (library,) = machine.built()
    library.chmod(0o666)
    result = machine.run(SERVES)
    assert COMPILING in result.stderr and stat.S_IMODE(machine.built()[0].stat().st_mode) == 0o600


# ---- door (b) ----


def test_every_hook_is_set(machine):
    code = """
        from gapless import _library, _pluggable
        host = gapless.Heap("host", environment=False)
        _pluggable.default_heap = lambda: host
        gapless.configure("max_memory:16M")
        torch.cuda.init()
        (swapped,) = torch.cuda.memory.swapped
        expected = {setter: _library.address(name) for setter, name in _pluggable._HOOKS}
        print(swapped.names[1:], swapped.hooks == expected, len(expected), torch._C.backend)
        print(gapless.is_enabled(), host.conf_value("max_memory"), gapless.disable())
    """
    result = machine.run(code, GAPLESS_DOOR="b")
    assert result.stdout.splitlines() == ["('gap_torch_alloc', 'gap_torch_free') True 8 pluggable", "True 16 MiB False"]
    assert "CUDAPluggableAllocator cannot be taken out again" in result.stderr
