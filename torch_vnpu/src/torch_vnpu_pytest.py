"""The pytest plugin: `--npu-sanitizer` checks every test, the fixture `npu_sanitizer` one of them.

A module of its own outside the package, so that a pytest run which does not use it loads no torch.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch_vnpu.sanitizer import Sanitizer


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("npu", "torch_vnpu")
    group.addoption(
        "--npu-sanitizer",
        action="store_true",
        help="fail each test in which the NPU sanitizer's stream check finds something",
    )
    group.addoption(
        "--npu-sanitizer-suppressions", metavar="FILE", help="findings that do not count, kind:pattern a line"
    )


def _judge(check: "Sanitizer") -> None:
    from torch_vnpu.sanitizer import render

    if check.findings:
        # The summary of a run shows only the first line, and only some of that.
        pytest.fail(f"{render.headline(check.findings)}\n{check.text()}", pytrace=False)


@pytest.fixture
def npu_sanitizer(request: pytest.FixtureRequest) -> "Iterator[Sanitizer]":
    """The stream check around a test, which fails where something was found; `.findings` has what there is so far."""
    from torch_vnpu.sanitizer import Sanitizer

    with Sanitizer("collect", suppress=request.config.getoption("--npu-sanitizer-suppressions")) as check:
        yield check
    _judge(check)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if not item.config.getoption("--npu-sanitizer") or "npu_sanitizer" in getattr(item, "fixturenames", ()):
        return (yield)
    from torch_vnpu.sanitizer import Sanitizer

    with Sanitizer("collect", suppress=item.config.getoption("--npu-sanitizer-suppressions")) as check:
        result: Any = yield
    _judge(check)
    return result
