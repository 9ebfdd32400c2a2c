"""gapless and the import of torch: what asks, what torch's own parsers are shown, and when nothing is touched."""

import pytest

STAYS = "PyTorch's own allocator stays"
ASKS = ("backend:gapless", "gapless", "caching_allocator", "pooled", "heuristic:1,nmalloc:3", "backend:pooled")


@pytest.mark.parametrize(
    "variable", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "GAPLESS_CONF"]
)
@pytest.mark.parametrize("string", ASKS)
def test_torch_does_not_trip(run, variable, string):
    """There is no driver, so torch's allocator stays in the end, with one line; but nothing raises on the way."""
    code = "import torch; torch.cuda.init(); print(torch._C.started, torch._C.backend)"
    result = run(code, **{variable: string})
    assert result.stdout == "1 native\n"
    assert result.stderr.count(STAYS) == 1 and "Traceback" not in result.stderr


def test_without_gapless_torch_trips(run):
    """What the example program meets on a stock PyTorch; and GAPLESS=0 is a stock PyTorch."""
    code = "import torch, os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'caching_allocator'; torch.cuda.init()"
    result = run(code, check=False, GAPLESS="0")
    assert result.returncode == 1 and "Unrecognized key 'caching_allocator'" in result.stderr


def test_parsers_get_their_part(run):
    string = "backend:gapless,expandable_segments:true,max_memory:90%,pinned_num_register_threads:4"
    code = "import torch, os; print(torch.loaded_with); torch.cuda.init(); print(torch._C.parsed[-1])"
    shown = "expandable_segments:True,pinned_num_register_threads:4"
    assert run(code, PYTORCH_CUDA_ALLOC_CONF=string).stdout.splitlines() == ["None", shown]


def test_an_older_torch_is_shown_what_it_knows(run):
    string = "gapless,large_segment_size_mb:32,max_split_size_mb:64"
    code = "import torch; torch.cuda.init(); print(torch._C.parsed[-1])"
    assert run(code, PYTORCH_CUDA_ALLOC_CONF=string, FAKE_TORCH_OLD="1").stdout == "max_split_size_mb:64\n"


def test_users_string_stays_in_sight(run):
    """In os.environ, for children, and for C code after the import."""
    code = """
        import os, subprocess, torch
        child = subprocess.run("echo $PYTORCH_CUDA_ALLOC_CONF", shell=True, capture_output=True, text=True).stdout[:-1]
        print(os.environ["PYTORCH_CUDA_ALLOC_CONF"], torch._C.getenv("PYTORCH_CUDA_ALLOC_CONF"), child)
        torch.cuda.init()
        print(torch._C.getenv("PYTORCH_CUDA_ALLOC_CONF"))
    """
    assert run(code, PYTORCH_CUDA_ALLOC_CONF="pooled").stdout.split() == ["pooled"] * 4


def test_os_environ_after_the_import(run):
    """The popular example: nothing asks before torch is there."""
    code = """
        import torch, os
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "caching_allocator"
        torch.cuda.init()
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ""
        print(torch._C.started)
    """
    result = run(code)
    assert result.stdout == "1\n" and result.stderr.count(STAYS) == 1


def test_os_environ_after_the_import_for_torch_alone(run):
    """A string without a word of ours reaches torch untouched, as it would without this package."""
    code = """
        import torch, os
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:128"
        torch.cuda.init()
        print(torch._C.parsed)
    """
    assert run(code).stdout == "['max_split_size_mb:128']\n"


def test_wrong_keys_stay_torchs_to_refuse(run):
    code = "import torch, os; torch.cuda.init()"
    result = run(code, check=False, PYTORCH_CUDA_ALLOC_CONF="expandeable_segments:True")
    assert "Unrecognized key 'expandeable_segments'" in result.stderr and STAYS not in result.stderr


def test_setters_work(run):
    code = """
        import torch
        torch.cuda.memory._set_allocator_settings("max_split_size_mb:64,max_memory:4G")
        print(torch._C.parsed[-1])
        try:
            torch._C._accelerator_setAllocatorSettings("max_split_size_mb:1")
        except ValueError as error:
            print(error)
    """
    lines = run(code, GAPLESS="1").stdout.splitlines()
    assert lines[0] == "max_split_size_mb:64" and "20 MiB is the least" in lines[1]


def test_setter_refuses_what_nobody_knows(run):
    """As PyTorch does; nothing of the string is applied.  In the environment such a key is warned of."""
    code = """
        import torch, gapless
        for string in ("foo:1,bar:2", "max_split_size_mb:64,foo:1", "foo:1"):
            try:
                torch.cuda.memory._set_allocator_settings(string)
            except ValueError as error:
                print(error)
        torch.cuda.memory._set_allocator_settings("max_memory:4G,max_split_size_mb:32")
        print(torch._C.parsed[-1])
    """
    lines = run(code, GAPLESS="1").stdout.splitlines()
    assert lines == ["Unrecognized key 'foo' in CUDA allocator config."] * 3 + ["max_split_size_mb:32"]


def test_setter_can_ask(run):
    code = """
        import torch
        torch.cuda.memory._set_allocator_settings("backend:gapless,expandable_segments:True")
        print(torch._C.parsed[-1])
        torch.cuda.init()
    """
    result = run(code)
    assert result.stdout == "expandable_segments:True\n" and result.stderr.count(STAYS) == 1


def test_setters_without_gapless_are_torchs(run):
    code = """
        import torch
        try:
            torch._C._accelerator_setAllocatorSettings("max_memory:4G")
        except ValueError as error:
            print(error)
    """
    assert "Unrecognized key 'max_memory'" in run(code).stdout


def test_what_starts_cuda_below_python_finds_the_door_open(run):
    """_record_memory_history as a program's first word tells the allocator of that moment, which must be ours by then."""
    code = """
        import torch
        torch._C._cuda_record_memory_history("all", max_entries=3)
        print(torch._C.histories)
    """
    assert run(code).stdout == "[(('all',), {'max_entries': 3}, False)]\n"
    assert run(code, GAPLESS="1").stdout == "[(('all',), {'max_entries': 3}, True)]\n"
    assert run(code, GAPLESS="0").stdout == "[(('all',), {'max_entries': 3}, False)]\n"


def test_the_programs_own_allocator_wins(run):
    code = """
        import torch
        torch.cuda.memory.change_current_allocator(torch.cuda.CUDAPluggableAllocator("x.so", "a", "f"))
        torch.cuda.init()
        print(torch._C.backend, len(torch.cuda.memory.swapped))
    """
    result = run(code, GAPLESS="1")
    assert result.stdout == "pluggable 1\n"
    assert (
        result.stderr
        == "gapless: not used: the program chose the allocator 'pluggable' itself; PyTorch's own allocator stays\n"
    )


def test_enable_before_and_after(run):
    assert run("import gapless; print(gapless.enable()); import torch; torch.cuda.init()").stderr.count(STAYS) == 1
    late = run("import torch; torch.cuda.init(); import gapless; print(gapless.enable(), gapless.is_enabled())")
    assert late.stdout == "False False\n" and "too late: CUDA has started already" in late.stderr
    off = run("import gapless; print(gapless.enable())", GAPLESS="0")
    assert off.stdout == "False\n" and "GAPLESS=0 is set" in off.stderr


def test_disable_before_cuda_starts(run):
    code = "import gapless, torch; print(gapless.disable()); torch.cuda.init(); print(torch._C.parsed)"
    result = run(code, PYTORCH_CUDA_ALLOC_CONF="gapless,max_split_size_mb:64")
    assert result.stdout.splitlines()[0] == "True" and result.stderr == ""


def test_looking_starts_nothing(run):
    code = """
        import gapless, torch
        print(gapless.stats(), gapless.explain() == "", gapless.is_enabled(), torch._C.started)
        print(gapless.memory_summary(), end="")
    """
    assert run(code, GAPLESS="1").stdout == "{} True False 0\ngapless is not in use in this process\n"


def test_configure_refuses_at_once(run):
    code = """
        import gapless
        gapless.configure("max_memory:4G,grow_limit:1.1")
        try:
            gapless.configure("grow_limit:0.5")
        except gapless.ConfigError as error:
            print(isinstance(error, ValueError), "grow_limit" in str(error))
    """
    assert run(code, torch=False).stdout == "True True\n"


def test_a_child_process_decides_for_itself(run):
    code = """
        import subprocess, sys, torch
        print(subprocess.run([sys.executable, "-c", "import torch; torch.cuda.init(); print(torch._C.started)"],
                             capture_output=True, text=True).stdout, end="")
    """
    assert run(code, PYTORCH_CUDA_ALLOC_CONF="pooled").stdout == "1\n"


def test_an_installation_without_its_library(run):
    """Something is broken here; torch still starts."""
    code = "import torch; torch.cuda.init(); print(torch._C.started)"
    result = run(code, PYTORCH_CUDA_ALLOC_CONF="backend:gapless", GAPLESS_LIBRARY="/nowhere/libgapless.so")
    assert result.stdout == "1\n" and STAYS in result.stderr and "Traceback" not in result.stderr


def test_torchs_own_strings_load_nothing_of_ours(run):
    """A program that sets torch's keys pays for a small module at the import of torch, and for nothing else."""
    code = """
        import sys, torch
        torch.cuda.init()
        torch._C._accelerator_setAllocatorSettings("max_split_size_mb:64")
        print(sorted(name for name in sys.modules if name.startswith("gapless")), torch._C.parsed)
    """
    result = run(code, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", GAPLESS_LIBRARY="/nowhere")
    assert (
        "gapless.heap" not in result.stdout and "['expandable_segments:True', 'max_split_size_mb:64']" in result.stdout
    )
    assert result.stderr == ""
