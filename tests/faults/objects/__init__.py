"""The campaign of object stores."""
