"""The hutch command: python -m hutch, and the script hutch where this package is installed."""

import os
import sys

from ._find import binary, own_binary
from .errors import HutchError


def main() -> None:
    try:
        program = own_binary() or binary()
    except HutchError as e:
        sys.exit(f"hutch: {e}")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
