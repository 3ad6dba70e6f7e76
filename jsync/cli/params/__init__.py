"""Parameters of commands: types, tables of options, templates and files."""
