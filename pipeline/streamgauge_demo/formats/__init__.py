"""The wire formats that the simulator speaks: builders of frames and of whole answers."""
