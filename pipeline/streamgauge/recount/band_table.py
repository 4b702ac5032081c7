"""The numbers of the bands. Made from recorded streams by `scripts/calibrate_recount.py`: do not edit."""

# Version -> streams; tokens reported beyond those recounted, lowest and highest; the same for each tool call.
OFFSETS: dict[str, tuple[int, int, int, int, int]] = {
    "all": (0, 0, 0, 0, 0),
}

# Version -> streams; tokens for 1000 characters, lowest and highest; how many tokens fewer or more short answers have; the
# most tokens that each tool call adds.
RATIOS: dict[str, tuple[int, int, int, int, int, int]] = {
    "all": (0, 0, 0, 0, 0, 0),
}
