"""Services: requests answered by threads, discovery, and calls (ADR-32)."""
