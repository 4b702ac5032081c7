"""Errors about a broker, its topics, or this client's rights. The text of each is a sentence for the operator."""


class TopicsError(Exception):
    """A problem of the broker or its topics that the operator can fix; the text is one sentence with what to do."""


class BrokerUnreachableError(TopicsError):
    """No server answers at the bootstrap address, or it does not answer like a Kafka broker. A retry may succeed.

    `why`: the likely cause as a sentence, if one was found; None otherwise.
    """

    def __init__(self, sentence: str, why: str | None = None) -> None:
        super().__init__(why or sentence)
        self.why = why


class BrokerRefusesError(TopicsError):
    """The broker answers, but TLS or the log-in fails until an operator acts."""


class TopicsMissingError(TopicsError):
    """Required topics do not exist."""


class TopicsUnfitError(TopicsError):
    """A topic exists but cannot be used: wrong partition count, or message times that producers set."""


class TopicsDeniedError(TopicsError):
    """The broker denied a request, or its authorized operations show that it would."""
