"""The campaign of connections and publishes in a cluster whose servers fail by turns."""
