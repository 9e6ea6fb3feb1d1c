"""The pytest plugin: --kv-backend and what the suite needs. Loaded in every pytest run, so it imports late."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """--kv-backend TARGET, --kv-profile, --kv-seed."""
    group = parser.getgroup("kvledger", "check a KV backend against the law")
    group.addoption("--kv-backend", default="reference", metavar="TARGET", help="a name or module:function")
    group.addoption("--kv-profile", default="ci", choices=("quick", "ci", "deep"), help="how many actions")
    group.addoption("--kv-seed", default=0, type=int, help="the same seed gives the same actions")


def pytest_configure(config: pytest.Config) -> None:
    """A backend that cannot be loaded is one clean line, not an error a test."""
    target = config.getoption("--kv-backend", default="reference")
    if target != "reference":
        from kvledger.spec.world import WrongInput
        from kvledger.tests.kit.load import load_backend

        try:
            load_backend(target)
        except WrongInput as wrong:
            raise pytest.UsageError(str(wrong)) from None
