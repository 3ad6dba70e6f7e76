"""The campaign of reads to the end: keys, watches, Arrow, stored messages, and live copies."""
