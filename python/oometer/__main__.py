"""The command `oometer`: the native one's commands, and those that need Python."""

import sys

from oometer import _core


def main() -> None:
    """Runs the command with this process's arguments and exits with its code."""
    arguments = sys.argv[1:]
    name = arguments[0] if arguments else ""
    if name == "mcp":
        from oometer.mcp_server import main as serve

        sys.exit(serve(arguments[1:]))
    if name == "run":
        from oometer.run.command import main as run

        sys.exit(run(arguments[1:]))
    sys.exit(_core.command(["oometer", *arguments]))


if __name__ == "__main__":
    main()
