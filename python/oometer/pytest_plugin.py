"""`@pytest.mark.fits("h100-80gb")`: a test that returns a job, and passes if the job fits there.

@pytest.mark.fits("h100-80gb", strict=True)
def test_finetuning():
    return "jobs/finetune.json"       # a path, a dictionary or a trainer's file, as `oometer.check` takes it
"""

from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fits(gpu, strict=False): the job that the test returns fits on that GPU")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    mark = pyfuncitem.get_closest_marker("fits")
    if mark is None:
        return None
    import oometer

    names = pyfuncitem._fixtureinfo.argnames
    job: Any = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    if job is None:
        pytest.fail("a test marked `fits` returns a job: a path, a dictionary or JSON text", pytrace=False)
    gpu = mark.args[0] if mark.args else None
    try:
        answer = oometer.check(job, gpu=gpu, strict=mark.kwargs.get("strict", False))
    except oometer.JobError as error:
        pytest.fail(f"the job cannot be answered: {error}", pytrace=False)
    if not answer:
        pytest.fail(str(answer), pytrace=False)
    return True
