"""What can be wrong with a broker, its topics, or what it lets us do: each a sentence for the operator."""


class TopicsError(Exception):
    """Something about the broker or its topics that the operator can put right: one sentence that says how."""


class BrokerUnreachableError(TopicsError):
    """Nobody answers at the bootstrap address, or not as a Kafka broker does; it may come.

    `why`: a guess at what an operator may have to look at, where there is one.
    """

    def __init__(self, sentence: str, why: str | None = None) -> None:
        super().__init__(why or sentence)
        self.why = why


class BrokerRefusesError(TopicsError):
    """The broker is there, and we and it do not trust each other: TLS, or the log-in."""


class TopicsMissingError(TopicsError):
    """Topics that are needed are not there."""


class TopicsUnfitError(TopicsError):
    """A topic is there but cannot serve: wrong partition count, or times that are the producers' own."""


class TopicsDeniedError(TopicsError):
    """The broker refuses what was asked, or would."""
