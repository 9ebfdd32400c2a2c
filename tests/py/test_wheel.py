"""The wheel: built from this tree, installed in a fresh environment, used from there.  Skipped where what it needs is
not installed (nothing is downloaded)."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
from conftest import CONF_VARIABLES, ROOT

for _module in ("scikit_build_core", "pip"):
    if importlib.util.find_spec(_module) is None:
        pytest.skip(f"{_module} is not installed for {sys.executable}: the wheel is not built", allow_module_level=True)


def clean(**variables):
    left_out = CONF_VARIABLES + ("GAPLESS_LIBRARY", "GAPLESS_COMMAND", "PYTHONDONTWRITEBYTECODE")
    return {**{name: value for name, value in os.environ.items() if name not in left_out}, **variables}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "-w",
            str(folder),
            str(ROOT),
        ],
        check=True,
        env=clean(),
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(folder / "bin" / "python"),
            "install",
            "-q",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
        env=clean(),
    )
    return folder / "bin"


def output(*command, **variables):
    result = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=clean(**variables)
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_one_wheel_for_every_python(wheel):
    assert (
        wheel.name.startswith("gapless-0.1.0-py3-none-")
        and wheel.name.endswith("_x86_64.whl")
        or "aarch64" in wheel.name
    )


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "gapless.pth",
        "gapless/_lib/libgapless.so",
        "gapless/_bin/gapless",
        "gapless/py.typed",
        "gapless/_include/gapless/gapless.h",
        "gapless/_shim_sources/install.cpp",
        "gapless/_crt/crt/host_defines.h",
    ):
        assert name in names
    assert not [name for name in names if name.startswith(("tests", "src"))]


def test_the_command_needs_no_library_of_the_system(wheel, tmp_path):
    zipfile.ZipFile(wheel).extract("gapless/_bin/gapless", tmp_path)
    dynamic = subprocess.run(
        ["readelf", "-d", str(tmp_path / "gapless/_bin/gapless")], capture_output=True, text=True, check=True
    ).stdout
    for name in ("jansson", "zstd", "lzma", "libz."):
        assert name not in dynamic


def test_tag(wheel, tmp_path):
    """tools/wheel_tag.py names the glibc that the binaries need, inside the wheel too, and the wheel still installs."""
    copy = tmp_path / wheel.name
    copy.write_bytes(wheel.read_bytes())
    tagged = pathlib.Path(output(sys.executable, ROOT / "tools" / "wheel_tag.py", copy).strip())
    assert not copy.exists() and re.fullmatch(r"gapless-0\.1\.0-py3-none-manylinux_2_\d+_\w+\.whl", tagged.name)
    said = zipfile.ZipFile(tagged).read("gapless-0.1.0.dist-info/WHEEL").decode()
    assert f"Tag: {tagged.stem.split('-', 2)[2]}\n" in said and "linux_" not in said.replace("manylinux_", "")
    newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", symbols_of(tagged, tmp_path)))
    assert f"manylinux_2_{newest}_" in tagged.name
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    output(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "-q", "--no-index", tagged)
    assert output(folder / "bin" / "gapless", "--version") == "gapless 0.1.0\n"


def symbols_of(wheel, folder):
    text = ""
    for name in ("gapless/_lib/libgapless.so", "gapless/_bin/gapless"):
        zipfile.ZipFile(wheel).extract(name, folder)
        text += output("objdump", "-T", folder / name)
    return text


def test_library(installed):
    code = "import gapless; heap = gapless.Heap('host'); print(heap.alloc(4096) % 512, gapless.__version__)"
    assert output(installed / "python", "-c", code) == "0 0.1.0\n"


def test_command(installed):
    assert output(installed / "gapless", "--version") == "gapless 0.1.0\n"
    assert (
        output(
            installed / "gapless",
            "run",
            "python3",
            "-c",
            "import os; print(os.environ['GAPLESS'])",
            PATH=f"{installed}:{os.environ['PATH']}",
        )
        == "1\n"
    )
    assert "PyTorch: not installed" in output(installed / "gapless", "info")


def test_hook_is_installed(installed):
    code = "import sys; print([type(finder).__name__ for finder in sys.meta_path][0], 'gapless' in sys.modules)"
    assert output(installed / "python", "-c", code) == "GaplessFinder False\n"
