"""The numbers of the bands. Made from recorded streams by `scripts/calibrate_recount.py`: do not edit."""

# Version -> streams; tokens reported beyond those recounted, lowest and highest; the same for each tool call.
OFFSETS: dict[str, tuple[int, int, int, int, int]] = {
    "all": (169, 0, 68, 7, 12),
    "gpt-4.1-2025-04-14": (5, 1, 2, 0, 0),
    "gpt-4.1-mini": (3, 1, 2, 7, 7),
    "gpt-4o-2024-08-06": (55, 0, 2, 7, 16),
    "gpt-4o-mini-2024-07-18": (21, 0, 2, 7, 15),
    "gpt-5": (7, 4, 27, 35, 35),
    "gpt-5-2025-08-07": (20, 3, 57, 10, 11),
    "gpt-5-mini": (5, 6, 49, 22, 22),
    "gpt-5-mini-2025-08-07": (7, 6, 10, 7, 7),
    "gpt-5.4-2026-03-05": (4, 4, 4, 8, 8),
    "gpt-5.4-nano-20260317": (5, 4, 4, 7, 15),
    "gpt-5.5-2026-04-23": (5, 4, 4, 7, 16),
    "gpt-oss-120b": (3, 9, 9, 7, 11),
    "gpt-oss-20b": (6, 4, 14, 13, 13),
    "o4-mini": (3, 4, 36, 14, 14),
    "o4-mini-2025-04-16": (15, 4, 68, 10, 10),
}

# Version -> streams; tokens for 1000 characters, lowest and highest; how many tokens fewer or more short answers have;
# the most tokens that each tool call adds.
RATIOS: dict[str, tuple[int, int, int, int, int, int]] = {
    "all": (396, 191, 527, 20, 55, 21),
    "claude-4.5-haiku-20251001": (12, 244, 268, 0, 17, 46),
    "claude-sonnet-4-20250514": (17, 206, 253, 0, 20, 56),
    "claude-sonnet-4-5-20250929": (12, 210, 527, 0, 4, 0),
    "gemini-2.5-pro": (19, 238, 321, 3, 15, 5),
    "gpt-4.1-2025-04-14": (5, 217, 259, 0, 6, 0),
    "o4-mini-2025-04-16": (15, 238, 445, 0, 38, 27),
}
