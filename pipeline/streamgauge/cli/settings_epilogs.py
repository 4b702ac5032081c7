"""What the help of `config` says at its end: examples and notes."""

CONFIG_EPILOG = """\
examples:
  streamgauge config show tap --config streamgauge.toml
      every setting of `tap`: its value, and the option, variable or file that it comes from
  streamgauge config show worker --output json
  streamgauge config check streamgauge.toml
      before a roll-out: exit code 0 without a fault, 2 with one

`config show` also takes every option of COMMAND that is a setting. Secrets are printed as ***. `config check` reads the named
files only, neither the environment nor the files that they name.
"""
