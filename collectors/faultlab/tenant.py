"""A process that computes on a GPU for a part of the time, when told to on its input."""

from __future__ import annotations

import sys
import threading
import time

import torch

PERIOD_S = 0.004


def main() -> None:
    """Read `on` and `off` from the input and answer each with `ok`."""
    device, share = int(sys.argv[1]), float(sys.argv[2])
    values = torch.ones(2048, 2048, device=torch.device("cuda", device), dtype=torch.bfloat16)
    running = threading.Event()

    def work() -> None:
        while True:
            running.wait()
            began = time.perf_counter()
            while time.perf_counter() - began < share * PERIOD_S:
                values @ values
            torch.cuda.synchronize(device)
            time.sleep(max(0.0, PERIOD_S * (1 - share)))

    threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "on":
            running.set()
        else:
            running.clear()
        time.sleep(0.02)
        sys.stdout.write("ok\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
