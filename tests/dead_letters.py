"""Returns dead letters with the parts of `streamgauge deadletter retry`."""

from collections.abc import Sequence

from streamgauge.kafka.dead_letters import DeadLetter, Sender, message_of
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import Topics


async def send_back(brokers: Brokers | str, topics: Topics, letters: Sequence[DeadLetter]) -> None:
    """To their topics, each durable before the next.

    Raises NotRetriableError at the first that cannot be sent; the command skips such a letter, reports it, and
    continues.
    """
    async with Sender(brokers) as sender:
        for letter in letters:
            await sender.send(message_of(topics, letter))
