"""A store that is written in Python, for the tests. Not a test itself."""

from __future__ import annotations

from typing import Optional, Union

import muster

Value = Union[str, bytes]


class PythonStore(muster.Store):
    """A store as a user would write one."""

    def __init__(self, inner: Optional[muster.Store] = None) -> None:
        super().__init__()
        self.inner = inner or muster.HashStore()

    def set(self, key: Value, value: Value) -> None:
        self.inner.set(key, value)

    def get(self, key: Value) -> bytes:
        self.inner.wait([key], self.timeout)
        return self.inner.get(key)

    def add(self, key: Value, value: int) -> int:
        return self.inner.add(key, value)

    def compare_set(self, key: Value, expected_value: Value, desired_value: Value) -> bytes:
        return self.inner.compare_set(key, expected_value, desired_value)

    def check(self, keys: list[str]) -> bool:  # type: ignore[override]
        return self.inner.check(keys)

    def wait(self, keys: list[str], timeout: object = None) -> None:  # type: ignore[override]
        self.inner.wait(keys, self.timeout if timeout is None else timeout)

    def delete_key(self, key: Value) -> bool:
        return self.inner.delete_key(key)

    def num_keys(self) -> int:
        return self.inner.num_keys()

    def list_keys(self) -> list[str]:
        return self.inner.list_keys()

    def append(self, key: Value, value: Value) -> None:
        self.inner.append(key, value)

    def clone(self) -> muster.Store:
        return PythonStore(self.inner.clone())
