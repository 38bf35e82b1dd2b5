"""The stand-in device, without torch: whoever opens NVIDIA's libraries by name finds it."""

import os
import subprocess
import sys

import pytest
from oometer.run.command import RunError, libraries

ASKS = """
import ctypes
driver, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
count, devices = ctypes.c_int(), ctypes.c_uint()
assert driver.cuInit(0) == driver.cuDeviceGetCount(ctypes.byref(count)) == nvml.nvmlDeviceGetCount_v2(ctypes.byref(devices)) == 0
print(count.value, devices.value)
"""


def test_it_has_the_names_of_nvidias_libraries() -> None:
    try:
        preload = libraries()
    except RunError:
        pytest.skip("the package was built without it")
    env = {**os.environ, "LD_PRELOAD": preload, "OOMETER_DEVICE_COUNT": "3"}
    done = subprocess.run([sys.executable, "-c", ASKS], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "3 3\n", done.stderr
