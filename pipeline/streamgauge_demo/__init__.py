"""The demo: the official clients send requests through a real tap to a provider simulator, and a view shows what the tap
recorded.

The modules:

    frames.py      one server-sent event as bytes, with what it carries
    formats/       the wire formats: chat, text completions, messages, responses
    texts.py       the generated texts
    scenario.py    the type of a scenario: request, response with its timing, expected results
    building.py    scenarios from frames
    providers/     the scenarios of each provider, after its documentation
    scenarios.py   all scenarios, by the model name that selects them
    wire.py        a response as timed socket writes: framing, compression, cuts
    provider.py    the server of a simulated provider; each response is a script
    truth.py       what the simulator did, by its own clock
    simulator.py   the provider of the scenarios; `python -m streamgauge_demo.simulator` runs it alone
    asking.py      a scenario's request, as the clients' arguments
    tally.py       what a client received
    driver.py      the official clients
    verdict.py     compares a record, and a client's result, with the expected ones
    results.py     the results of all scenarios
    view.py        the terminal
    child.py       the simulator in its own process
    run.py         the whole demo
    traffic.py     rounds of traffic through a tap that runs already; `python -m streamgauge_demo.traffic URL` runs it alone
"""
