"""`nodevitals preflight`."""
