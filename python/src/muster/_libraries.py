"""Loads muster._native, also on systems without the libraries that it was built with.

A wheel contains the compiler's own libraries, but a program should have only one of each: they are
loaded only where the system's are missing or too old. This module is imported before all others of
the package.
"""

from __future__ import annotations

import ctypes
import importlib
import pathlib

FALLBACK = pathlib.Path(__file__).parent / "lib" / "fallback"
# In this order: the second needs the first.
LIBRARIES = ("libgcc_s.so.1", "libstdc++.so.6")
# Parts of the loader's message if they are missing, or lack a version that is needed.
SYMPTOMS = (*LIBRARIES, "GLIBCXX_", "CXXABI_", "GCC_")


def load_native() -> None:
    """Makes sure that muster._native is loaded. ImportError if it cannot be."""
    try:
        importlib.import_module("muster._native")
    except ImportError as failure:
        if not any(symptom in str(failure) for symptom in SYMPTOMS):
            raise
        _load_fallback(failure)
        importlib.import_module("muster._native")


def _load_fallback(failure: ImportError) -> None:
    for name in LIBRARIES:
        try:
            ctypes.CDLL(str(FALLBACK / name), mode=ctypes.RTLD_GLOBAL)
        except OSError as also:
            raise ImportError(
                f"muster cannot be loaded: {failure}; and its own copy of {name} cannot be: "
                f"{also}. Please install libstdc++ (Debian: apt-get install libstdc++6)"
            ) from failure


load_native()
