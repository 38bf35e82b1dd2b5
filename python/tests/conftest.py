import sys

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def command() -> list[str]:
    """The command as the package has it."""
    return [sys.executable, "-m", "oometer"]
