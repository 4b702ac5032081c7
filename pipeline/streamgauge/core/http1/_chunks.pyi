"""The interface of core/http1/_chunks.c. The module is missing where it was not built."""

def read_chunks(data: bytes, begin: int, left: int, /) -> tuple[bytes, int, int, int]:
    """Reads chunks of the usual form from the offset `begin` of `data` on, after the `left` bytes of data that a chunk still
    needs there (0: at a size line). Stops before the last chunk, and before everything that is not whole or not usual.

    Returns their data; the offset after them; how many bytes of data the chunk there still needs; and whether the line end
    after the data was read (0 only after a chunk's last byte). Raises ValueError for numbers outside of `data`.
    """
