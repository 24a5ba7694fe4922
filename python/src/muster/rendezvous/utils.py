"""Endpoints and options as text: torch's module of this name."""

from __future__ import annotations

from typing import Optional

from muster import _native

__all__ = ["parse_rendezvous_config", "parse_rendezvous_endpoint"]


def parse_rendezvous_endpoint(endpoint: Optional[str], default_port: int) -> tuple[str, int]:
    """Host and port of ``host``, ``host:port``, ``[ipv6]``, ``[ipv6]:port``; empty: localhost."""
    return _native.parse_rendezvous_endpoint(endpoint, default_port)


def parse_rendezvous_config(config_str: str) -> dict[str, str]:
    """``k1=v1,k2=v2`` as options. ValueError names the wrong item."""
    return _native.parse_rendezvous_config(config_str)


_parse_rendezvous_config = parse_rendezvous_config  # launchers import torch's private name
