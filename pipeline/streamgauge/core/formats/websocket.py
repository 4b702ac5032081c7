"""WebSocket frames (RFC 6455, 5): the text messages of one direction of a connection, and its close.

A frame is: FIN, three reserved bits and an opcode (1 byte); the mask bit and a length of 7 bits, or of 16 or 64 bits that
follow (126, 127); a mask of 4 bytes if the mask bit is set; the payload, which the mask is XORed with. Frames from the client
are masked, frames from the server are not.

The reader is as strict as the endpoints have to be (5.2, 5.4, 5.5): after a frame that they must refuse, they close the
connection, and what follows has no meaning. It knows no extension: the relay does not offer one (decision 60).
"""

from struct import unpack

from streamgauge.core.formats.reader import Content
from streamgauge.core.formats.sse import MAX_EVENT_BYTES, Event

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_DATA = frozenset((_CONTINUATION, _TEXT, _BINARY))
_CONTROL = frozenset((_CLOSE, _PING, _PONG))
_FIN, _OPCODE, _MASKED, _LENGTH = 0x80, 0x0F, 0x80, 0x7F
_RESERVED = 0x70
# A head: 2 bytes, a length of 8 bytes at most, a mask of 4 bytes.
_MASK_BYTES = 4
# Lengths in the first two bytes that announce a longer field: how many bytes it has, and the least length in it.
_LONGER = {126: (2, 126), 127: (8, 1 << 16)}
_MAX_LENGTH = (1 << 63) - 1
_MAX_CONTROL = 125
# The code of a close frame without one, and of a connection that ended without a close frame (7.1.5).
NO_CODE, NO_CLOSE = 1005, 1006
# Codes that an endpoint may send (7.4, and the registry that it founds): those of the protocol, and those from 3000 on.
_CODES = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))


class WebSocketReader:
    """Reads one direction into an event for each text message: see `reader.EventReader`. Memory stays below about twice the
    cap, whatever lengths frames announce, and however many fragments a message has.

    `from_client`: which side sends. `closed`: the code of its close frame; None before. All input after it is ignored.
    `sizes`: the bytes of each message of which the last `feed` returned the event. Binary messages give no event.
    """

    def __init__(self, *, from_client: bool, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.fault = False
        self.closed: int | None = None
        self.sizes: list[int] = []
        self._from_client = from_client
        self._head = bytearray()  # of a frame, until it is whole
        self._head_bytes = 2
        self._opcode: int | None = None  # of the frame whose payload comes
        self._is_final = False
        self._left = 0  # bytes of its payload that have not come
        self._mask = b""
        self._control = bytearray()  # the payload of a control frame
        self._message: int | None = None  # the opcode of a message that has begun and not ended
        self._content = Content(max_event_bytes)
        self._message_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """The bytes that are held of a message or frame that has not ended."""
        return len(self._content) + len(self._head) + len(self._control)

    @property
    def is_between_messages(self) -> bool:
        """Whether no message and no frame has begun that has not ended."""
        return not self._head and self._opcode is None and self._message is None

    def feed(self, data: bytes) -> list[Event]:
        """The events of the text messages that `data` ends."""
        events: list[Event] = []
        self.sizes = []
        at = 0
        while at < len(data) and not self.fault and self.closed is None:
            if self._opcode is None:
                at = self._take_head(data, at)
                if self._opcode is None or self._left:
                    continue
            else:
                at = self._take_payload(data, at, self._opcode)
            if not self._left and (event := self._end_frame(self._opcode)) is not None:
                events.append(event)
        return events

    def finish(self) -> Event | None:
        """The text message that is pending, of which a part came."""
        return self._content.take() if self._message == _TEXT and not self.fault else None

    def discard(self) -> None:
        """Discard what is held of the pending message."""
        self._content.discard()

    def _take_head(self, data: bytes, at: int) -> int:
        """Take bytes of a frame's head; returns the position after them."""
        piece = data[at : at + self._head_bytes - len(self._head)]
        self._head += piece
        at += len(piece)
        if len(self._head) == 2 == self._head_bytes:
            masked, length = self._head[1] & _MASKED, self._head[1] & _LENGTH
            if self._is_refused(self._head[0], masked != 0, length):
                self._break()
                return at
            self._head_bytes += (_LONGER[length][0] if length in _LONGER else 0) + (_MASK_BYTES if masked else 0)
        if len(self._head) == self._head_bytes:
            self._begin_frame(bytes(self._head))
        return at

    def _is_refused(self, first: int, masked: bool, length: int) -> bool:
        """Whether the first two bytes of a frame break the protocol."""
        opcode, is_final = first & _OPCODE, first & _FIN != 0
        if first & _RESERVED or masked is not self._from_client:
            return True
        if opcode in _CONTROL:
            return not is_final or length > _MAX_CONTROL
        return opcode not in _DATA or (opcode == _CONTINUATION) is (self._message is None)

    def _begin_frame(self, head: bytes) -> None:
        self._head.clear()
        self._head_bytes = 2
        length = head[1] & _LENGTH
        if length in _LONGER:
            size, least = _LONGER[length]
            (length,) = unpack("!H" if size == 2 else "!Q", head[2 : 2 + size])
            if not least <= length <= _MAX_LENGTH:
                self._break()
                return
        opcode = head[0] & _OPCODE
        self._opcode, self._is_final, self._left = opcode, head[0] & _FIN != 0, length
        self._mask = head[-_MASK_BYTES:] if self._from_client else b""
        if opcode in (_TEXT, _BINARY):
            self._message, self._message_bytes = opcode, 0

    def _take_payload(self, data: bytes, at: int, opcode: int) -> int:
        piece = data[at : at + self._left]
        at += len(piece)
        self._left -= len(piece)
        if self._mask:
            piece, turn = _unmasked(piece, self._mask), len(piece) % _MASK_BYTES
            self._mask = self._mask[turn:] + self._mask[:turn]
        if opcode in _CONTROL:
            self._control += piece
        elif self._message == _TEXT:
            self._content.add(piece)
            self._message_bytes += len(piece)
        return at

    def _end_frame(self, opcode: int) -> Event | None:
        """End a frame. Returns the event of the message that it ends, if that is a text."""
        self._opcode = None
        if opcode in _CONTROL:
            if opcode == _CLOSE:
                self._close(bytes(self._control))
            self._control.clear()
            return None
        if not self._is_final:
            return None
        message, self._message = self._message, None
        if message != _TEXT:
            return None
        self.sizes.append(self._message_bytes)
        return self._content.take()

    def _close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2]) if payload else NO_CODE
        if payload and (len(payload) == 1 or code not in _CODES):
            self._break()
        else:
            self.closed = code

    def _break(self) -> None:
        self.fault = True
        self._opcode = self._message = None
        self._left = 0
        self._head.clear()
        self._control.clear()
        self._content.discard()


def _unmasked(piece: bytes, mask: bytes) -> bytes:
    """The bytes of a payload; `mask`: begins with the byte for the first of them."""
    size = len(piece)
    masks = (mask * (size // _MASK_BYTES + 1))[:size]
    return (int.from_bytes(piece) ^ int.from_bytes(masks)).to_bytes(size)
