"""The wire formats of the simulator: builders of frames and of whole responses."""
