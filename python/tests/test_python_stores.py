"""Classes that users derive from muster.Store, called by muster's own code."""

from __future__ import annotations

from typing import Any, Union

import pytest
from python_store import PythonStore

import muster
from muster import utils

Value = Union[str, bytes]


def test_store_itself_is_not_made() -> None:
    with pytest.raises(TypeError, match="derive a class"):
        muster.Store()


def test_a_class_in_python_lacks_what_it_does_not_define() -> None:
    class Half(muster.Store):
        def get(self, key: Value) -> bytes:
            return 3  # type: ignore[return-value]

    half = Half()
    with pytest.raises(NotImplementedError, match=r"Half has no set\(\)"):
        half.set("k", "v")
    with pytest.raises(
        TypeError, match=r"what Half.get\(\) returns must be a str or bytes, not int"
    ):
        muster.PrefixStore("p", half).get("k")


def test_errors_of_a_class_in_python_come_through() -> None:
    class Broken(PythonStore):
        def set(self, key: Value, value: Value) -> None:
            raise LookupError(key)

    with pytest.raises(LookupError, match="p/k"):
        muster.PrefixStore("p", Broken()).set("k", "v")


class Fruitless(PythonStore):
    """Waits always fail."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def wait(self, keys: Any, timeout: Any = None) -> None:
        raise self.error(f"in vain: {keys}")


def test_a_timeout_of_a_class_in_python_is_one_for_all_that_use_it() -> None:
    store = Fruitless(muster.StoreTimeoutError)
    with pytest.raises(muster.StoreTimeoutError, match="in vain: .'p/x'"):
        muster.PrefixStore("p", store).wait(["x"])
    with pytest.raises(muster.StoreTimeoutError, match="1 of 2"):
        store.barrier("b", 2)
    with pytest.raises(muster.StoreTimeoutError) as raised:
        utils.barrier(store, 2, "b2", 0.1, rank=1, trace_timeout=0.1)
    assert "rank 0 did not come" in str(raised.value)
    assert store.check(["b21/TRACE"])


def test_an_error_of_a_class_in_python_is_the_very_same_object() -> None:
    class Mine(muster.DistStoreError):
        pass

    class Broken(PythonStore):
        error = Mine("my own")

        def set(self, key: Value, value: Value) -> None:
            raise self.error

    store = Broken()
    with pytest.raises(Mine) as raised:
        muster.PrefixStore("p", store).set("k", "v")
    assert raised.value is store.error
    with pytest.raises(Mine):
        muster.PrefixStore("p", muster.PrefixStore("q", store)).multi_set(["k"], ["v"])


class WithoutAppend(PythonStore):
    append = muster.Store.append  # type: ignore[assignment]


def test_append_is_made_of_compare_set() -> None:
    store = WithoutAppend()
    outer = muster.PrefixStore("p", store)
    outer.append("log", "a")
    store.append("p/log", b"b")
    outer.append("log", "")
    assert store.get("p/log") == b"ab"
    assert not outer.has_extended_api()
    assert outer.multi_get(["log"]) == [b"ab"]


def test_append_comes_through_while_others_write() -> None:
    class Contended(WithoutAppend):
        others = 3

        def compare_set(self, key: Value, expected_value: Value, desired_value: Value) -> bytes:
            if self.others:
                self.others -= 1
                self.set(key, f"other {self.others} ")
            return super().compare_set(key, expected_value, desired_value)

    store = Contended()
    store.append("k", "mine")
    assert store.get("k") == b"other 0 mine"


def test_a_prefix_store_needs_a_store() -> None:
    with pytest.raises(ValueError, match="^store argument cannot be None$"):
        muster.PrefixStore("p", None)  # type: ignore[arg-type]


def test_torchs_private_name_of_the_innermost_store() -> None:
    inner = PythonStore()
    outer = muster.PrefixStore("p", muster.PrefixStore("q", inner))
    assert outer._underlying_non_prefix_store is outer.underlying_non_prefix_store is inner


def test_a_class_that_does_not_call_its_base_gets_an_error() -> None:
    class Forgetful(muster.Store):
        def __init__(self) -> None:
            pass

    with pytest.raises(TypeError, match=r"store must be .*super\(\)"):
        muster.PrefixStore("p", Forgetful())


def test_the_representation_of_a_users_store_may_be_any_text() -> None:
    class Odd(PythonStore):
        def __repr__(self) -> str:
            return "\udc80"

    assert "\udc80" in repr(muster.PrefixStore("p", Odd()))
