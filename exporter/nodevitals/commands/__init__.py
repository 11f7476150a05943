"""The `nodevitals` command: one module or folder per subcommand."""
