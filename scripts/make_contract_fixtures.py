"""`python -m scripts.make_contract_fixtures v2`: writes what this version writes into tests/contracts/v2.

Run it once for each release that changes a format, before the release; docs/compatibility.md says when. It refuses to write
into a folder that exists: the files of a version are what that version wrote.
"""

import re
import sys

from tests.contracts.making import FOLDER, make


def main(arguments: list[str]) -> int:
    """Gives the exit code: 2 for a wrong name, or one that exists."""
    if len(arguments) != 1 or not re.fullmatch(r"v[1-9][0-9]*", arguments[0]):
        sys.stderr.write("give the name of a new folder below tests/contracts, as in v2\n")
        return 2
    folder = FOLDER / arguments[0]
    if folder.exists():
        sys.stderr.write(f"{folder} exists: the fixtures of a version are not written again\n")
        return 2
    make(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
