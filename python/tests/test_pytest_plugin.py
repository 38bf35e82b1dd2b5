from importlib.metadata import entry_points

import pytest


def test_a_marked_test_returns_a_job(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        JOB = {"version": 1, "model": {"preset": "llama-2-7b"}, "data": {"sequence_length": 512}}

        @pytest.fixture
        def job():
            return JOB

        @pytest.mark.fits("h100-80gb")
        def test_fits(job):
            return job

        @pytest.mark.fits("t4")
        def test_is_too_large(job):
            return job

        @pytest.mark.fits("h100-80gb")
        def test_returns_nothing():
            pass

        @pytest.mark.fits("no-such-gpu")
        def test_elsewhere(job):
            return job
        """
    )
    installed = any(entry.name == "oometer" for entry in entry_points(group="pytest11"))
    result = pytester.runpytest(*([] if installed else ["-p", "oometer.pytest_plugin"]))
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["*Does not fit on t4*", "*returns a job*", "*/gpu/name*"])
