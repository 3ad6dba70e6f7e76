"""Output, errors, prompts, progress and keys, as people and programs get them."""
