"""The demo: a provider simulator, driven through the real tap by the official clients, and a view of what the tap saw.

Where everything lies:

    frames.py      one server-sent event as bytes, with what it carries
    formats/       the wire formats: chat, text completions, messages, responses
    texts.py       what the models say
    scenario.py    what a scenario is: what is asked, what is answered and how, what must be seen of it
    building.py    scenarios from frames
    providers/     the scenarios of each provider, as its documentation has them
    scenarios.py   all of them, by the model name that asks for them
    wire.py        an answer as timed socket writes: framing, compression, cuts
    request.py     reading a request
    truth.py       what the simulator did, by its own clock
    simulator.py   the server; `python -m streamgauge_demo.simulator` runs it alone
    asking.py      a scenario's request, as the clients' arguments
    tally.py       what a client saw
    driver.py      the official clients
    verdict.py     a record, and a client's report, against what must be seen
    results.py     all of them
    view.py        the terminal
    child.py       the simulator as a process of its own
    run.py         all together
"""
