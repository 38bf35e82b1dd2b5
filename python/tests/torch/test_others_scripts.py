"""Scripts that others wrote: the peaks that the oracle recorded of them (tests/run/others_scripts.py), to the byte."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "tests/run"))
pytest.importorskip("trl")
import materials
import others_scripts

RECORDED = json.loads((Path(__file__).parents[3] / "tests/run/others_scripts.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("others")
    materials.make_all(out)
    return out


@pytest.mark.parametrize("name", RECORDED)
def test_the_peak_is_the_oracles(folder: Path, name: str) -> None:
    if others_scripts.digest(name) != RECORDED[name]["sha256"]:
        pytest.skip("another version of the script is installed")
    assert others_scripts.peaks_of_run(name, folder) == RECORDED[name]["peak"]
