"""Memory that comes and goes beside a measurement: blocks of all sizes on two streams, under a cap, so that pages have to move."""
import random
import threading
import time

import torch

from report import MIB, own_figures

ROOM = 512 * MIB  # of the cap, over what lives already
FILL = 0.5        # the part of it that is used: what is left is idle in pages of the wrong place


class Churn:
    """For a with statement; `stolen()` says how many pages have moved since it began, `refused` how many requests failed."""

    def __init__(self, device, pause_s=0.0003):
        self.device, self.pause_s = device, pause_s
        self.refused = self.served = 0
        self.error = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(self.device).total_memory
        live = own_figures(self.device)["active_bytes.all.current"]
        torch.cuda.set_per_process_memory_fraction(min(1.0, (live + ROOM) / total), self.device)
        self.before = own_figures(self.device)["pages_stolen"]
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(20)
        torch.cuda.set_per_process_memory_fraction(1.0, self.device)
        assert self.error is None, self.error

    def stolen(self):
        return own_figures(self.device)["pages_stolen"] - self.before

    def _run(self):
        try:
            torch.cuda.set_device(self.device)
            self._churn(random.Random(7), [torch.cuda.Stream(self.device) for _ in range(2)])
        except Exception as error:  # pylint: disable=broad-except
            self.error = f"the churning thread: {type(error).__name__}: {error}"

    def _churn(self, rng, streams):
        live = []
        while not self._stop.is_set():
            bytes_ = int(2 ** rng.uniform(19, 25))  # 512 KiB to 32 MiB
            with torch.cuda.stream(rng.choice(streams)):
                try:
                    block = torch.empty(bytes_, dtype=torch.uint8, device=self.device)
                except torch.OutOfMemoryError:
                    self.refused += 1
                    live.clear()
                    continue
                block[:4096].fill_(1)
            self.served += 1
            live.append(block)
            del block
            while sum(map(len, live)) > FILL * ROOM:
                live.pop(rng.randrange(len(live)))
            time.sleep(self.pause_s)
