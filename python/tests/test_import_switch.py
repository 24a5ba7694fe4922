"""A script for torch runs with its import changed, and sees the same."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch.distributed")

SCRIPT = pathlib.Path(__file__).with_name("switched.py")
SWITCHES = (
    (r"^import torch\.distributed as dist$", "import muster as dist"),
    (r"^from torch\.distributed\.elastic import rendezvous$", "from muster import rendezvous"),
    (r"^from torch\.distributed\.elastic\.rendezvous\b", "from muster.rendezvous"),
)


def seen(script: pathlib.Path, folder: pathlib.Path) -> list[str]:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout.splitlines()


def test_nothing_but_the_imports_differs(tmp_path: pathlib.Path) -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    for pattern, replacement in SWITCHES:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert count > 0, pattern
    assert not re.search(r"^(import|from) torch\b", text, flags=re.MULTILINE)
    switched = tmp_path / "switched.py"
    switched.write_text(text, encoding="utf-8")
    theirs, ours = seen(SCRIPT, tmp_path / "theirs"), seen(switched, tmp_path / "ours")
    assert len(theirs) > 130
    assert ours == theirs


def test_the_script_uses_every_public_name() -> None:
    import torch.distributed as dist
    import torch.distributed.elastic.rendezvous as theirs
    from torch.distributed.elastic.rendezvous import api, dynamic_rendezvous, registry, utils
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous as static

    text = SCRIPT.read_text(encoding="utf-8")
    for module in (theirs, api, dynamic_rendezvous, registry, static, utils):
        for name in module.__all__:
            assert len(re.findall(rf"\b{name}\b", text)) >= 2, name
    for kind in ("Store", "TCPStore", "FileStore", "HashStore", "PrefixStore"):
        assert f"dist.{kind}" in text
        for name in dir(getattr(dist, kind)):
            if not name.startswith("_"):
                assert f".{name}" in text, f"{kind}.{name}"
