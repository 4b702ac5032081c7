"""What the help of `config` and `doctor` says at its end: examples and notes."""

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

DOCTOR_EPILOG = """\
examples:
  streamgauge doctor tap --config streamgauge.toml
      the checks of `tap` with these settings; run it on the host, and as the user, that will run the tap
  streamgauge doctor up --upstream openai=https://api.openai.com
  streamgauge doctor worker --kafka b:9092 --prometheus http://prometheus:9090
  streamgauge doctor tap --through https://llm.example.com --output json
      if the tap has --upstream doctor=http://127.0.0.1:9469, a slow stream is sent through it, and through that address

It also takes every option of `up`, `tap` or `worker` that is a setting. Without one of these words it checks `tap` or
`worker` if the settings name a broker, else `up`. Each line is ok, warn or fail, with what was seen and the cure. Nothing is
stored, sent to a topic or changed.

Exit codes: 0 no check failed, 1 a check failed (a warning is no failure), 2 wrong usage or settings.
"""
