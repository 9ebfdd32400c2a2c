"""Fork, exit, threads at the import: the life of a process that uses the package."""

import gapless
import pytest

MIB = 1 << 20


def test_heap_after_fork():
    import os

    with gapless.Heap("host", device_bytes=64 * MIB, environment=False) as heap:
        address = heap.alloc(MIB)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                heap.free(address)  # does nothing
                try:
                    heap.alloc(1)
                except gapless.Error as error:
                    code = 0 if error.code == -17 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        heap.free(address)
        heap.check()


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "os._exit(0)", "heap.close()"])
def test_exit_with_live_blocks(run, ending):
    code = f"""
        import gapless, os, sys
        heap = gapless.Heap("host", device_bytes=64 << 20)
        pool = heap.pool(tag="live")
        with pool:
            address = heap.alloc(1 << 20)
        heap.on_oom(lambda *_: False)
        heap.on_event(lambda event: None)
        {ending}
    """
    result = run(code, torch=False)
    assert result.stderr == "" and result.returncode == 0


def test_default_start_methods(run):
    """Workers as a DataLoader starts them: forked after the import, before CUDA."""
    code = """
        import gapless, multiprocessing as mp, torch
        def work(number):
            return number + len(gapless.stats())
        if __name__ == "__main__":
            gapless.enable()
            with mp.get_context("fork").Pool(2) as pool:
                print(pool.map(work, [1, 2, 3]))
    """
    assert run(code).stdout == "[1, 2, 3]\n"


def test_threads_import_torch_at_once(run):
    code = """
        import threading
        errors = []
        def work():
            try:
                import torch
                torch.cuda.init()
            except Exception as error:
                errors.append(error)
        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        import torch
        print(errors, torch._C.started >= 1)
    """
    assert run(code, PYTORCH_CUDA_ALLOC_CONF="pooled").stdout == "[] True\n"


def test_closed_standard_error(run):
    code = """
        import os, sys
        os.close(2)
        import torch
        torch.cuda.init()
        print(torch._C.started)
    """
    assert run(code, GAPLESS="1").stdout == "1\n"


def test_os_environ_stays_a_mapping(run):
    """Watched or not, os.environ does what it did."""
    code = """
        import os
        from gapless import _environment
        seen = []
        before = dict(os.environ)
        _environment.watch(seen.append)
        assert dict(os.environ) == before == os.environ.copy()
        os.environ["GAPLESS_CONF"] = "a"
        os.environ["UNRELATED"] = "b"
        os.environ.update(PYTORCH_ALLOC_CONF="c")
        os.environ |= {"PYTORCH_ALLOC_CONF": "d"}
        os.environ.setdefault("GAPLESS_CONF", "e")
        os.environ.pop("PYTORCH_ALLOC_CONF")
        del os.environ["GAPLESS_CONF"]
        assert os.system("test $UNRELATED = b -a -z \\"$GAPLESS_CONF\\"") == 0
        try:
            os.environ["GAPLESS_CONF"] = 5
        except TypeError:
            print(seen)
        _environment.watch(None)
        os.environ["GAPLESS_CONF"] = "f"
        print(len(seen), type(os.environ).__name__)
    """
    assert run(code, torch=False).stdout.splitlines() == [
        "['GAPLESS_CONF', 'PYTORCH_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'PYTORCH_ALLOC_CONF', 'GAPLESS_CONF']",
        "5 _Environ",
    ]
