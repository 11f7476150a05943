"""`nodevitals rules`: check, render and import rule files. The agent does not import this."""
