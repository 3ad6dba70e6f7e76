"""jsync in other libraries: public names of jsync only, each module behind its extra."""
