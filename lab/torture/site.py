"""What processes find on their machines in addition to the network: small disks, and clocks that can be changed."""

import contextlib
import os
import shutil
import subprocess


class Disk:
    """A file system of its own, small enough to be filled."""

    def __init__(self, path, size):
        self.path, self._size = path, size
        self._filler = os.path.join(path, "filler")

    def mount(self):
        os.makedirs(self.path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self._size}", "muster-torture", self.path], check=True)

    def fill(self):
        with contextlib.suppress(OSError), open(self._filler, "ab", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)

    def free(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._filler)

    def empty(self):
        """Removes what was appended; files that are open stay open."""
        for name in os.listdir(self.path):
            os.truncate(os.path.join(self.path, name), 0)

    def clear(self):
        for name in os.listdir(self.path):
            os.unlink(os.path.join(self.path, name))

    def unmount(self):
        if os.path.ismount(self.path):
            subprocess.run(["umount", "--lazy", self.path], check=False)  # a namespace may still have it


class Clocks:
    """A wall clock for each process, set by a file (libfaketime)."""

    def __init__(self, folder, muster):
        self._folder = folder
        self._library = self._find(muster)

    @staticmethod
    def _find(muster):
        if not shutil.which("faketime"):
            return None
        found = subprocess.run(["faketime", "-m", "-f", "+0", "printenv", "LD_PRELOAD"], capture_output=True, text=True,
                               check=False).stdout.strip()
        # Some programs do not start with it.
        works = subprocess.run(["env", f"LD_PRELOAD={found}", muster, "--version"], capture_output=True, check=False)
        return found if found and works.returncode == 0 else None

    @property
    def can_be_moved(self):
        return self._library is not None

    def set(self, name, offset_s):
        path = os.path.join(self._folder, f"clock-{name}")
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(f"{offset_s:+d}\n")
        os.rename(path + ".new", path)

    def environment(self, name):
        """A prefix for commands."""
        if not self._library:
            return ()
        self.set(name, 0)
        return ("env", f"LD_PRELOAD={self._library}", f"FAKETIME_TIMESTAMP_FILE={self._folder}/clock-{name}",
                "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
                "FAKETIME_FORCE_MONOTONIC_FIX=0")  # or waits on the monotonic clock end at once, with new glibcs


class Site:
    def __init__(self, folder, muster):
        self.disk = Disk(os.path.join(folder, "disk"), "1m")  # for logs and port files
        self.store_disk = Disk(os.path.join(folder, "store"), "4m")  # for rendezvous that are kept in a file
        self.clocks = Clocks(folder, muster)

    def build(self):
        self.disk.mount()
        self.store_disk.mount()

    def remove(self):
        self.disk.unmount()
        self.store_disk.unmount()
