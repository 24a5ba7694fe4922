"""The commands and programs in python/README.md and docs/guide/python.md, on other ports."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
import servers

ROOT = pathlib.Path(__file__).parent.parent.parent


def blocks(language: str) -> list[object]:
    found = []
    for page in ("python/README.md", "docs/guide/python.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        # Some have the reason why they are not run above them.
        pattern = rf"(<!-- not run: [^\n]*-->\n)?^```{language}\n(.*?)^```"
        for block in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start(2))
            if not block[1]:
                found.append(pytest.param(block[2], id=f"{page}:{line}"))
    return found


def skip_without_torch(block: str) -> None:
    if "torch" in block and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")


def run(command: list[str], folder: pathlib.Path, path: str) -> None:
    environment = {**os.environ, "PATH": path, "TMPDIR": str(folder)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        timeout=servers.PATIENCE_S,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("block", blocks("python"))
def test_python_that_is_shown_runs(block: str, tmp_path: pathlib.Path) -> None:
    skip_without_torch(block)
    (tmp_path / "shown.py").write_text(block, encoding="utf-8")
    run([sys.executable, "shown.py"], tmp_path, os.environ["PATH"])


@pytest.mark.parametrize("block", blocks("sh"))
def test_commands_that_are_shown_run(block: str, tmp_path: pathlib.Path) -> None:
    skip_without_torch(block)
    # torchrun, as this Python would have installed it; python and muster are those under test.
    programs = tmp_path / "bin"
    programs.mkdir()
    torchrun = programs / "torchrun"
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    (programs / "muster").symlink_to(servers.muster_program())
    script = block.replace("29400", str(servers.free_port()))
    run(["bash", "-e", "-c", script], tmp_path, f"{programs}:{os.environ['PATH']}")
