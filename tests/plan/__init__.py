"""The plan stage: behaviour tables, guards at their edges, and the laws as properties."""
