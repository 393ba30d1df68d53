"""Arrays that are larger than memory and live in one ordinary file."""
