"""The wheel: it contains what it needs, and works in a fresh environment with nothing else.

MUSTER_WHEEL names it; make_environment has built it.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator

import pytest

WHEEL = os.environ.get("MUSTER_WHEEL", "")
pytestmark = pytest.mark.skipif(not WHEEL, reason="MUSTER_WHEEL names no wheel")

# Libraries that the system provides: glibc, OpenSSL, and those of the interpreter itself.
SYSTEM = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nss_\w+|ssl|crypto|stdc\+\+|gcc_s)\.so.*"
    r"|ld-2.*|lib(c|m|dl|rt|pthread|resolv)-2.*)"
)
IMPORT_MS_MAX = 50


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """With the wheel and nothing else; no compiler, and no other program, is on PATH."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    tools = os.environ.get("MUSTER_PYTHON_TOOLS", sys.executable)
    subprocess.run([tools, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    subprocess.run(
        [tools, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python"]
        + ["install", "--quiet", "--no-index", "--no-deps", WHEEL],
        check=True,
        timeout=300,
        env=alone(),
    )
    return folder


def alone(**variables: str) -> dict[str, str]:
    return {"PATH": "/nowhere", "HOME": "/nowhere", "LANG": "C.UTF-8", **variables}


def python(venv: pathlib.Path, script: str, *options: str, **variables: str) -> str:
    done = subprocess.run(
        [venv / "bin" / "python", *options, "-c", script],
        text=True,
        capture_output=True,
        timeout=120,
        env=alone(**variables),
        cwd=venv,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries() -> Iterator[zipfile.ZipInfo]:
    with zipfile.ZipFile(WHEEL) as wheel:
        yield from wheel.infolist()


def test_every_library_is_in_it_once() -> None:
    libraries = [entry for entry in entries() if "/lib/" in entry.filename]
    names = [pathlib.PurePath(entry.filename).name for entry in libraries]
    assert {"libmuster.so", "libmuster_etcd.so", "libuv.so.1"} <= set(names)
    assert any(name.startswith("libgrpc.so") for name in names)
    assert len({(entry.CRC, entry.file_size) for entry in libraries}) == len(libraries)
    assert not any(re.match(r"lib(ssl|crypto|c|m)\.so", name) for name in names)


def test_it_has_types_program_plugin_and_nothing_else() -> None:
    names = [entry.filename for entry in entries()]
    assert {"muster/py.typed", "muster/_native.pyi", "muster/__init__.py"} <= set(names)
    assert any(re.fullmatch(r"muster_elastic-[\d.]+\.data/scripts/muster", name) for name in names)
    outside = [name for name in names if not name.startswith(("muster/", "muster_elastic-"))]
    assert outside == []
    with zipfile.ZipFile(WHEEL) as wheel:
        reported = next(name for name in names if name.endswith("entry_points.txt"))
        assert "[torchrun.handlers]\nmuster" in wheel.read(reported).decode().replace(" ", "")


def test_all_that_is_loaded_comes_from_it(venv: pathlib.Path) -> None:
    """Also with etcd's client, which loads gRPC. Libraries that the interpreter had loaded before
    do not count."""
    loaded = python(
        venv,
        "def mapped():\n"
        "    lines = open('/proc/self/maps').read().splitlines()\n"
        "    return {line.split(None, 5)[5] for line in lines if line.count('/') > 0}\n"
        "before = mapped()\n"
        "import muster, muster.rendezvous\n"
        "from muster import _native\n"
        "_native.load_etcd()\n"
        "print('\\n'.join(sorted(mapped() - before)))\n",
    ).splitlines()
    libraries = [file for file in loaded if re.search(r"\.so(\.|$)", file)]
    assert any("libgrpc.so" in file for file in libraries)
    strangers = [
        file
        for file in libraries
        if not file.startswith(str(venv.resolve()))
        and not SYSTEM.fullmatch(pathlib.PurePath(file).name)
        and "/lib-dynload/" not in file  # Python's own modules
        and not re.search(r"lib(ffi|uuid|bz2|lzma|expat)", file)  # and their libraries
    ]
    assert strangers == []


def test_the_compilers_libraries_come_from_it_only_if_the_system_has_none(
    venv: pathlib.Path,
) -> None:
    script = "import muster; print(open('/proc/self/maps').read())"
    assert "lib/fallback" not in python(venv, script)
    # As on a system without libstdc++: the first attempt to load the module fails.
    script = (
        "import importlib, sys\n"
        "load, failures = importlib.import_module, []\n"
        "def without(name, package=None):\n"
        "    if name == 'muster._native' and not failures:\n"
        "        failures.append(name)\n"
        "        raise ImportError('libstdc++.so.6: cannot open shared object file')\n"
        "    return load(name, package)\n"
        "importlib.import_module = without\n"
        "import muster\n"
        "assert failures\n"
        "store = muster.HashStore(); store.set('a', 'b'); assert store.get('a') == b'b'\n"
        "print(open('/proc/self/maps').read())\n"
    )
    assert "lib/fallback/libstdc++.so.6" in python(venv, script)


def test_import_is_quick_and_without_torch(venv: pathlib.Path) -> None:
    script = (
        "import sys, time\n"
        "start, work = time.perf_counter(), time.process_time()\n"
        "import muster\n"
        "print(1000 * (time.process_time() - work), 1000 * (time.perf_counter() - start))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy')]\n"
    )
    python(venv, "import muster")  # From here on its files are in the cache, and compiled.
    looks = [[float(time) for time in python(venv, script).split()] for _ in range(7)]
    work, took = (min(times) for times in zip(*looks))
    print(f"import muster: {took:.1f} ms, of which {work:.1f} ms work")
    # Processor time, not waiting time: the machine may be busy.
    assert work < IMPORT_MS_MAX


def test_the_program_and_launch_work(venv: pathlib.Path) -> None:
    program = venv / "bin" / "muster"
    done = subprocess.run([program, "--version"], env=alone(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    module = [venv / "bin" / "python", "-m", "muster"]
    told = subprocess.run([*module, "--version"], env=alone(), capture_output=True, timeout=60)
    assert (told.returncode, told.stdout) == (0, done.stdout)
    failed = subprocess.run([*module, "no-such"], env=alone(), capture_output=True, timeout=60)
    assert failed.returncode == 2
    launched = python(venv, "import muster; muster.launch(['/bin/echo', 'launched'])")
    assert launched == "launched\n"


def test_a_server_and_a_store_work(venv: pathlib.Path) -> None:
    script = (
        "import muster\n"
        "with muster.StoreServer('127.0.0.1') as server:\n"
        "    store = muster.TCPStore('127.0.0.1', server.port)\n"
        "    store.set('key', 'value')\n"
        "    print(store.get('key').decode())\n"
    )
    assert python(venv, script) == "value\n"
