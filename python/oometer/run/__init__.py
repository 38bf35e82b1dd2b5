"""`oometer run`: a script as it is, in real PyTorch, on a stand-in device whose kernels do nothing.

command.py starts the script and reports; the modules that run inside its processes are site/ (how they get there),
inside.py, values.py (what is read from the device) and watch.py (steps and peaks).
"""
