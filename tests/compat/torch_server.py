"""PyTorch's own TCPStore server: prints `PORT=<n>` once it accepts, lives until stdin is closed.

`torch_server.py legacy` starts the older, blocking server instead of the libuv one.
"""

import sys

import torch.distributed as dist


def start(use_libuv: bool = True) -> dist.TCPStore:
    """A server on a port of the kernel's choice, which lives as long as this object."""
    return dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=use_libuv
    )


if __name__ == "__main__":
    server = start(use_libuv="legacy" not in sys.argv[1:])
    print(f"PORT={server.port}", flush=True)
    sys.stdin.read()
