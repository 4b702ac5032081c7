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
    "claude-3-7-sonnet-20250219": (5, 258, 259, 0, 7, 78),
    "claude-4.5-haiku-20251001": (12, 244, 268, 0, 17, 46),
    "claude-haiku-4-5-20251001": (13, 274, 322, 0, 2, 53),
    "claude-opus-4-6": (4, 238, 253, 0, 11, 32),
    "claude-sonnet-4-20250514": (17, 206, 253, 0, 20, 56),
    "claude-sonnet-4-5-20250929": (12, 210, 527, 0, 4, 0),
    "claude-sonnet-4-6": (5, 259, 260, 0, 45, 0),
    "gemini-2.5-pro": (19, 238, 321, 3, 15, 5),
    "glm-4.7-flash": (9, 222, 223, 0, 14, 9),
    "glm-5-turbo-20260315": (5, 270, 271, 0, 11, 6),
    "gpt-4.1-2025-04-14": (5, 217, 259, 0, 6, 0),
    "gpt-4o-2024-08-06": (55, 291, 292, 16, 6, 17),
    "gpt-4o-mini-2024-07-18": (21, 248, 249, 1, 12, 15),
    "gpt-5-mini": (5, 329, 330, 2, 14, 48),
    "gpt-5-mini-2025-08-07": (7, 233, 271, 0, 11, 4),
    "kimi-k2.5": (7, 191, 192, 5, 23, 1),
    "o4-mini-2025-04-16": (15, 238, 445, 0, 38, 27),
}
