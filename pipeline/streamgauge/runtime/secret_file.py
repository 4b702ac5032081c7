"""Reads a secret from a file: a password, or a URL with one. No error quotes the secret."""

from pathlib import Path

# The most that is read of such a file (bytes), as the operator may give the wrong file, which may be large. Secrets are far
# shorter.
_MAX_SECRET = 4096


def read_secret(file: Path, what: str = "password") -> str:
    """The one line of a file, without its line break. `what`: names the secret in sentences.

    Raises ValueError with a sentence for a file that cannot be read, or does not hold exactly one line.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_SECRET + 1).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the {what} in {file} is not UTF-8") from None
    except OSError as fault:
        name, hint = (f" {file}", "") if _is_path(file) else ("", f" (path not shown, because it may be the {what})")
        raise ValueError(f"the {what} file{name} cannot be read: {fault.strerror}{hint}") from None
    if not text or "\0" in text or "\n" in text or len(text) > _MAX_SECRET:
        raise ValueError(f"the {what} file {file} does not contain exactly one line with a {what}")
    return text


def _is_path(file: Path) -> bool:
    """Whether this is certainly a path, and not a secret that an operator gave instead of its file."""
    directory = file.parent
    try:
        return file.exists() or (directory.is_dir() and directory not in (Path.cwd(), Path(file.anchor)))
    except OSError:  # too long for a file name
        return False
