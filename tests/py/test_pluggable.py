"""Door (b) on the default heap, over a driver without a card (tests/support/fake_cuda.h)."""

import os
import shutil
import subprocess
import textwrap

import pytest
from conftest import BUILD, LIBRARY, ROOT

FAKE_DRIVER = BUILD / "tests" / "libfakecuda.so"
if not FAKE_DRIVER.exists():
    pytest.skip("the fake driver is not built (ninja fakecuda)", allow_module_level=True)
DRIVER_STARTS = 'import ctypes; ctypes.CDLL("libcuda.so.1").fake_cuda_reset(bytes(256))\n'


@pytest.fixture
def driver(tmp_path):
    """A search path on which the fake driver is libcuda.so.1."""
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "libcuda.so.1").symlink_to(FAKE_DRIVER)
    return str(tmp_path / "driver")


def test_functions_as_torch_calls_them(driver, tmp_path):
    """std::function of libstdc++, copied and ended; an exception through the library's frames."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    assert compiler
    program = tmp_path / "pluggable"
    source = ROOT / "tests" / "py" / "pluggable.cpp"
    flags = ["-std=c++17", "-g", "-Wall", "-Wextra", f"-I{ROOT / 'include'}"]
    subprocess.run(
        [compiler, *flags, str(source), str(LIBRARY), f"-Wl,-rpath,{BUILD}", "-ldl", "-o", str(program)], check=True
    )
    environ = {**os.environ, "LD_LIBRARY_PATH": driver}
    result = subprocess.run([str(program)], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout.split() == ["blocks", "routes", "routes", "failures"], (
        result.returncode,
        result.stdout,
        result.stderr,
    )
    assert result.returncode == 0 and result.stderr.count("out of memory") == 1


def test_default_heap(driver, run):
    code = """
        import gapless
        heap = gapless.default_heap()
        assert heap is gapless.default_heap() and heap.device_count == 4
        address = heap.alloc(3 << 20, device=2)
        live = gapless.stats(2)["allocated_bytes.all.current"]
        print(live, "live" in gapless.memory_summary(2), repr(gapless.explain(2)))
        try:
            heap.alloc(1 << 40, device=2)
        except gapless.OutOfMemoryError as error:
            print(gapless.explain(2) in str(error) != "")
        try:
            heap.on_event(print)
        except ValueError:
            print("not for the default heap")
        with gapless.pool(tag="mine") as pool:
            inside = heap.alloc(1 << 20)
        print(heap.find(inside)[1].pool == pool.id)
        heap.free(inside)
        heap.free(address)
        heap.check(2)
    """
    result = run(DRIVER_STARTS + textwrap.dedent(code), torch=False, LD_LIBRARY_PATH=driver)
    assert result.stdout.splitlines() == [f"{3 << 20} True ''", "True", "not for the default heap", "True"]


def test_configured_before_and_after_it_is_made(driver, run):
    code = """
        import gapless
        gapless.configure("max_memory:32M")
        heap = gapless.default_heap()
        print(heap.usage().cap_bytes >> 20)
        gapless.configure("max_memory:16M")
        print(heap.usage().cap_bytes >> 20)
        try:
            gapless.configure("max_memory:little")
        except gapless.ConfigError:
            print(heap.usage().cap_bytes >> 20)
    """
    result = run(DRIVER_STARTS + textwrap.dedent(code), torch=False, LD_LIBRARY_PATH=driver)
    assert result.stdout.split() == ["32", "16", "16"] and result.stderr == ""


def test_door(driver, run):
    """Where the shim cannot be built the door opens by itself, says so, and serves the default heap."""
    code = """
        import gapless, os, torch
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "caching_allocator,max_memory:32M"
        torch.cuda.init()
        heap = gapless.default_heap()
        print(torch._C.backend, gapless.is_enabled(), heap.conf_value("strategy"), heap.usage().cap_bytes >> 20)
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ""
        print(heap.conf_value("strategy"), heap.usage().cap_bytes, gapless.info()["open_door"])
    """
    result = run(DRIVER_STARTS + textwrap.dedent(code), LD_LIBRARY_PATH=driver, CXX="/nowhere/c++")
    assert result.stdout.splitlines() == ["pluggable True caching_allocator 32", "gapless 0 b"]
    assert result.stderr.count("\n") == 1 and "no C++ compiler is found" in result.stderr


def test_driver_that_does_not_suffice(run, site):
    """An old driver is found out before torch's allocator is swapped."""
    result = run(
        "import torch; torch.cuda.init(); print(torch._C.backend)",
        GAPLESS="1",
        GAPLESS_DOOR="b",
        LD_LIBRARY_PATH=str(site.libraries),
    )
    assert result.stdout == "native\n"
    assert "libcuda.so.1 lacks cuGetProcAddress_v2" in result.stderr and result.stderr.count("\n") == 1
