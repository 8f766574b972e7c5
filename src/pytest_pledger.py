"""The pytest plugin: the fixture `pledger_env`.

It stands beside the package and not in it: pytest imports it at every start, also in projects that have Pledger among
their dependencies and no test of a workflow, and whatever is inside the package would import all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pledger.testing import Environment


@pytest.fixture
def pledger_env() -> Iterator[Callable[..., Environment]]:
    """Call it for an environment: arguments as in `pledger.testing.environment`, methods as in `Environment`.

        env = pledger_env(workflows=[remind], activities=[send_mail])

    All of them close when the test ends. A run that does not replay then, or is blocked by a bug, fails the test.
    """
    from pledger.testing import EnvironmentFailedError, environment  # noqa: PLC0415 - at the first test that asks

    opened = ExitStack()

    def open_one(**options: Any) -> Environment:
        return opened.enter_context(environment(**options))

    yield open_one
    try:
        opened.close()
    except EnvironmentFailedError as error:
        pytest.fail(str(error), pytrace=False)
