"""What is installed: packages, wheels, extras."""
