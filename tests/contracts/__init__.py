"""What earlier versions wrote, and every later one reads: docs/compatibility.md. A folder for each version that wrote it."""
