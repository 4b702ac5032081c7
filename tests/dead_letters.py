"""Dead letters, brought back with the parts that `streamgauge deadletter retry` is made of."""

from collections.abc import Sequence

from streamgauge.kafka.dead_letters import DeadLetter, Sender, message_of
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import Topics


async def send_back(brokers: Brokers | str, topics: Topics, letters: Sequence[DeadLetter]) -> None:
    """To where they came from, each durable before the next.

    Raises NotRetriableError at the first that cannot be sent; the command leaves such a letter, says so, and goes on.
    """
    async with Sender(brokers) as sender:
        for one in letters:
            await sender.send(message_of(topics, one))
