"""Python imports this at its start wherever the folder is on PYTHONPATH: so every process of a run is watched, however
it was started."""

import os
import sys

if os.environ.get("OOMETER_RUN"):
    from oometer.run.inside import enter

    enter()

# A sitecustomize of the user's own comes after ours.
_here = os.path.dirname(os.path.abspath(__file__))
_others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
for _folder in _others:
    _path = os.path.join(_folder, "sitecustomize.py")
    if os.path.isfile(_path):
        with open(_path, encoding="utf-8") as _file:
            exec(compile(_file.read(), _path, "exec"), {"__name__": "sitecustomize", "__file__": _path})
        break
