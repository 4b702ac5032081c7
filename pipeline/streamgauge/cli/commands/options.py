"""Short forms of the options and arguments that commands declare."""

from typing import Any

import click

from streamgauge.cli.parser import Argument, PathType


def option(flag: str, about: str, metavar: str = "", **more: Any) -> click.Option:
    """An option with a value."""
    names = ["from_", flag] if flag == "--from" else [flag]  # `from` is a word of Python
    return click.Option(names, help=about, metavar=metavar or None, show_default=True, **more)


def file_option(flag: str, about: str, metavar: str = "FILE", **more: Any) -> click.Option:
    """An option with a path, as text."""
    return option(flag, about, metavar, type=click.Path(readable=False), **more)


def switch(flag: str, about: str, **more: Any) -> click.Option:
    """An option without a value."""
    return click.Option([flag], help=about, is_flag=True, **more)


def output(*forms: str, about: str = "form of the output") -> click.Option:
    """The option that selects the form of the output; the first one is the default."""
    return option("--output", about, type=click.Choice(forms), default=forms[0])


def paths(name: str, metavar: str, about: str, **more: Any) -> Argument:
    """An argument of any number of paths, as text."""
    return Argument(name, metavar, about, many=True, type=PathType(), **more)
